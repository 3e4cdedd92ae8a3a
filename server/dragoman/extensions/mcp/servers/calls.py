"""The calls of one turn: repeated while the server is available."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from dragoman.calling.errors import ServerUnavailable
from dragoman.core.durations import Backoff
from dragoman.extensions.mcp.servers.connection import call_error
from dragoman.extensions.mcp.servers.open_calls import OpenCalls
from dragoman.extensions.mcp.servers.transport import SESSION_LOST_CODE
from dragoman.ports import WorkerLost

MCP_RETRY_BACKOFF: Final = Backoff(0.2, 5.0)
"""Between two attempts of a call that may be repeated."""

T = TypeVar("T")


class ToolServer(Protocol):
    """The parts of its agent that a turn uses."""

    @property
    def tools(self) -> Sequence[types.Tool]: ...

    @property
    def calls(self) -> OpenCalls: ...

    @property
    def is_unavailable(self) -> bool: ...

    async def client(self) -> Client:
        """The open client. Raises ClientError."""
        ...

    def drop_connection(self, client: Client) -> None:
        """Lets the next call open another connection, unless that has happened since `client` was opened."""
        ...

    @property
    def announces_changes(self) -> bool:
        """Whether the server says when its list of tools changes."""
        ...

    async def read_tools(self, client: Client) -> None:
        """Reads the list of tools once more. Raises MCPError, ProtocolError."""
        ...

    def has_output_schema(self, tool: str) -> bool:
        """Whether a result of a tool has structured content in any case."""
        ...

    def check_output(self, tool: str, value: object) -> str:
        """Why structured content does not match what its tool declares; empty if it does."""
        ...

    def record_success(self) -> None: ...

    def record_failure(self, reason: str) -> None: ...


class ServerCalls:
    """The calls of one turn."""

    def __init__(
        self,
        server: ToolServer,
        mark_unsent: Callable[[], Awaitable[None]],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """mark_unsent: stores that no tool was called."""
        self.is_sent = False
        """Whether a tool may have been called in this turn."""
        self._server = server
        self._mark_unsent = mark_unsent
        self._sleep = sleep

    async def client(self) -> Client:
        """The client. Raises WorkerLost when the server stays unavailable, CallForbidden, ProtocolError."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._server.client()
            except ServerUnavailable as failure:
                await self.wait_to_retry(failure, attempt)

    async def wait_to_retry(self, failure: ServerUnavailable, attempt: int) -> None:
        """Waits before the next attempt. Raises WorkerLost instead once the server is unavailable."""
        self._server.record_failure(failure.summary)
        if self._server.is_unavailable:
            if not self.is_sent:
                await self._mark_unsent()
            raise WorkerLost("The MCP server is unavailable.", may_have_started=self.is_sent)
        await self._sleep(MCP_RETRY_BACKOFF.delay(attempt))

    async def repeat(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """Repeats a call that runs no tool until it is answered. Raises WorkerLost, MCPError."""
        attempt = 0
        while True:
            attempt += 1
            client = await self.client()
            try:
                result = await call(client)
            except MCPError as error:
                failure = call_error(error)
                if failure is None:
                    self._server.record_success()
                    raise
                if not isinstance(failure, ServerUnavailable):
                    raise failure from None
                if error.code == SESSION_LOST_CODE:
                    self._server.drop_connection(client)
                await self.wait_to_retry(failure, attempt)
            else:
                self._server.record_success()
                return result
