"""The connection to one MCP server: the SDK's client, opened again after it was lost."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.client.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from dragoman.calling.errors import CallForbidden, CallRefused, ClientError, ProtocolError, ServerUnavailable
from dragoman.core.durations import Backoff
from dragoman.core.exceptions import leaves
from dragoman.extensions.mcp.servers.readers import problem_of, valid_answers
from dragoman.extensions.mcp.servers.tasks_extension import TasksExtension
from dragoman.extensions.mcp.servers.transport import (
    FORBIDDEN_CODE,
    SESSION_LOST_CODE,
    SILENT_CODE,
    UNAVAILABLE_CODE,
    UNREADABLE_CODE,
    GuardedHttp,
    OpenRequests,
    StderrLog,
    http_streams,
    stdio_streams,
)
from dragoman.extensions.mcp.sources import McpSpec
from dragoman.ports import OutboundStreams
from dragoman.version import __version__

log = logging.getLogger("dragoman.mcp")

HTTP_CONNECT_TIMEOUT: Final = 30.0
COMMAND_START_TIMEOUT: Final = 120.0
"""Seconds until a server has answered the first requests. A command may have to download its package first."""

LISTEN_BACKOFF: Final = Backoff(1.0, 60.0)
"""Between two attempts to open the stream that announces changes of the tools."""

MAX_PROBLEM_CHARACTERS: Final = 500
_UNREADABLE_BY_SDK: Final = "Failed to parse "
"""How the SDK's errors begin for events of a stream over HTTP that are no messages."""

T = TypeVar("T")

Elicit = Callable[[types.ElicitRequestParams], Awaitable[types.ElicitResult | types.ErrorData]]
"""Answers a question that a server asks while a call is open (2025-11-25 and before)."""


class McpConnection:
    """Keeps at most one client to a server. The client lives in a task of its own, as the SDK requires."""

    def __init__(
        self,
        server: McpSpec,
        outbound: OutboundStreams,
        max_response_bytes: int,
        *,
        elicit: Elicit,
        on_tools_changed: Callable[[], None] = lambda: None,
        on_lost: Callable[[str], None] = lambda _: None,
        timeout: float | None = None,
    ) -> None:
        """on_tools_changed: called when the list of tools may have changed. on_lost: called with the reason when an
        open connection ends by itself. timeout: seconds to open a connection."""
        self.server = server
        self._outbound = outbound
        self._max_response_bytes = max_response_bytes
        self._elicit = elicit
        self._on_tools_changed = on_tools_changed
        self._on_lost = on_lost
        self._timeout = timeout or (COMMAND_START_TIMEOUT if server.command else HTTP_CONNECT_TIMEOUT)
        self.left_out: list[str] = []
        """The tools of the last list that cannot be read, with the reason."""
        self._lock = asyncio.Lock()
        self._link: _Link | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a client."""
        return self._link is not None and not self._link.ended.is_set()

    async def client(self) -> Client:
        """The open client, or a new one. Raises ServerUnavailable, CallForbidden, ProtocolError.

        Whatever it raises, no tool was called.
        """
        async with self._lock:
            if self._link is not None and self._link.ended.is_set():
                await self._close_link()
            if self._link is None:
                self._link = await self._open()
            assert self._link.client is not None
            return self._link.client

    async def call(self, request: Callable[[Client], Awaitable[T]]) -> T:
        """The answer to one call over the open client, or a new one. Raises ClientError, and nothing of the SDK."""
        client = await self.client()
        try:
            with valid_answers():
                return await request(client)
        except MCPError as error:
            if error.code == SESSION_LOST_CODE:
                self.drop(client)
            raise call_error(error) from None
        except RuntimeError as error:  # the SDK: about an answer that it did not expect, or a client closed meanwhile
            if self._link is None or self._link.client is not client:
                raise ServerUnavailable.for_reason("the connection ended") from None
            raise ProtocolError(str(error)[:2000]) from None

    async def close(self) -> None:
        """Closes the client, and ends the child process."""
        async with self._lock:
            await self._close_link()

    def drop(self, client: Client) -> None:
        """Marks this client as lost, unless another was opened since: the next call opens another."""
        if self._link is not None and self._link.client is client:
            self._link.ended.set()

    async def _close_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _open(self) -> _Link:
        link = _Link()
        # In a context of its own: it outlives the turn that opens it, whose trace is not its own.
        name = f"connection to {self.server.location}"
        link.task = asyncio.create_task(self._run(link), name=name, context=contextvars.Context())
        try:
            async with asyncio.timeout(self._timeout):
                await link.opened.wait()
        except TimeoutError:
            await link.close()
            raise _unavailable(f"{self.server.location}: did not answer within {self._timeout:g} s") from None
        except BaseException:
            await link.close()
            raise
        if link.error is not None:
            await link.close()
            raise link.error
        log.info("connected to %s (MCP %s)", self.server.location, link.protocol_version)
        return link

    async def _run(self, link: _Link) -> None:
        """Opens a client and keeps it until the link ends."""
        stderr = StderrLog(self.server.id or self.server.location)
        http = GuardedHttp(self._outbound, self.server.silence, self._max_response_bytes)
        try:
            async with self._streams(http, stderr, link) as streams:
                client = Client(
                    _Opened(streams),
                    mode="auto",
                    cache=None,
                    client_info=types.Implementation(name="dragoman", version=__version__),
                    elicitation_callback=self._on_elicitation,
                    message_handler=self._on_message,
                    extensions=[TasksExtension()],
                )
                async with client:
                    if http.last_failure:  # the SDK takes any failure of its first request for an older server
                        raise _unavailable(http.last_failure)
                    link.client = client
                    link.opened.set()
                    listening = asyncio.create_task(self._listen(client), name=f"changes of {self.server.location}")
                    try:
                        await link.ended.wait()
                    finally:
                        listening.cancel()
                        await asyncio.wait([listening])
        except BaseException as error:
            link.error = self._explain(_first_of(error), stderr)
            if not isinstance(error, Exception):
                raise
        finally:
            was_open, link.client = link.opened.is_set(), None
            link.ended.set()
            link.opened.set()
            if was_open and not link.closes:
                reason = self._lost_reason(stderr)
                log.warning("lost the connection to %s: %s", self.server.location, reason)
                self._on_lost(f"{self.server.location}: {reason}")

    @asynccontextmanager
    async def _streams(self, http: GuardedHttp, stderr: StderrLog, link: _Link) -> AsyncIterator[tuple[Any, Any]]:
        if self.server.command:
            requests = OpenRequests(self.server.silence, self.left_out)
            async with stdio_streams(
                self.server, stderr, self._max_response_bytes, requests, link.ended.set
            ) as streams:
                yield streams
        else:
            requests = OpenRequests(None, self.left_out)  # the outbound client counts the seconds without a byte
            async with http_streams(self.server, http, self._max_response_bytes, requests, link.ended.set) as streams:
                yield streams

    def _explain(self, error: BaseException, stderr: StderrLog) -> ClientError:
        """The error of a connection that could not be opened."""
        location = self.server.location
        if isinstance(error, ClientError):
            return error
        if isinstance(error, MCPError):
            found = call_error(error)
            if isinstance(found, ServerUnavailable) and self.server.command:
                reason = found.message if isinstance(found, ServerSilent) else self._lost_reason(stderr)
                return _unavailable(f"{location}: {reason}")
            return ProtocolError(f"{location}: {found.summary}") if isinstance(found, McpRefused) else found
        if isinstance(error, OSError):
            return _unavailable(f"{location}: cannot be started: {error.strerror or error}")
        if isinstance(error, ValidationError):
            return ProtocolError(f"{location}: its answer is not valid MCP: {problem_of(error)}")
        return ProtocolError(f"{location}: {type(error).__name__}: {error}")

    def _lost_reason(self, stderr: StderrLog) -> str:
        if not self.server.command:
            return "the connection ended"
        return "the process ended" + (f"; last line of its output: {stderr.last_line}" if stderr.last_line else "")

    # What the server sends by itself ----------------------------------------------------------------------------

    async def _on_elicitation(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        return await self._elicit(params)

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_tools_changed()

    async def _listen(self, client: Client) -> None:
        """Follows changes of the tools (2026-07-28); earlier servers send them by themselves."""
        tools = client.server_capabilities.tools
        if client.session.discover_result is None or tools is None or not tools.list_changed:
            return
        failures = 0
        while True:
            with suppress(SubscriptionLost, TimeoutError):
                try:
                    async with client.listen(tools_list_changed=True) as changes:
                        failures = 0
                        self._on_tools_changed()  # earlier changes may have been missed
                        async for _ in changes:
                            self._on_tools_changed()
                except MCPError as error:
                    if error.code == types.METHOD_NOT_FOUND:
                        return
            failures += 1
            await asyncio.sleep(LISTEN_BACKOFF.delay(failures))


class _Link:
    """One client, and the task that it lives in."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.client: Client | None = None
        self.opened = asyncio.Event()
        """Set once there is a client, or an error."""
        self.error: ClientError | None = None
        self.ended = asyncio.Event()
        self.closes = False

    @property
    def protocol_version(self) -> str:
        return self.client.protocol_version if self.client is not None else ""

    async def close(self) -> None:
        """Ends the client, by force if it was not opened yet."""
        assert self.task is not None
        self.closes = True
        self.ended.set()
        if self.client is None:
            self.task.cancel()
        await asyncio.wait([self.task])


class _Opened:
    """Streams that are open already, as a transport of the SDK."""

    def __init__(self, streams: tuple[Any, Any]) -> None:
        self._streams = streams

    async def __aenter__(self) -> tuple[Any, Any]:
        return self._streams

    async def __aexit__(self, *_: object) -> None:
        """Does nothing: the owner of the streams closes them."""


class McpRefused(CallRefused):
    """An error that the server answered a call with."""

    def __init__(self, code: int, message: str, data: object) -> None:
        super().__init__("UNKNOWN", message)
        self.rpc_code = code
        self.data = data

    @property
    def summary(self) -> str:
        """The server's text and its code."""
        return f"{self.message} ({self.rpc_code})"


class ServerSilent(ServerUnavailable):
    """Nothing came from the server for too long; the text says for how long."""


def call_error(error: MCPError) -> ClientError:
    """The error of a call, as all called agents have it: `McpRefused` for one that the server has sent."""
    arrived = not isinstance(error.data, dict) or error.data.get("arrived") is not False
    match error.code:
        case types.CONNECTION_CLOSED:
            return ServerUnavailable.for_reason("the connection was lost")
        case _ if error.code == SILENT_CODE:
            return ServerSilent.for_reason(error.message)
        case _ if error.code == UNAVAILABLE_CODE:
            return ServerUnavailable.for_reason(error.message, may_have_arrived=arrived)
        case _ if error.code == SESSION_LOST_CODE:
            return ServerUnavailable.for_reason(error.message, may_have_arrived=False)
        case _ if error.code == FORBIDDEN_CODE:
            return CallForbidden(error.message)
        case _ if error.code == UNREADABLE_CODE or error.message.startswith(_UNREADABLE_BY_SDK):
            return ProtocolError(error.message[:MAX_PROBLEM_CHARACTERS])
    return McpRefused(error.code, error.message, error.data)


def _unavailable(text: str) -> ServerUnavailable:
    return ServerUnavailable.for_reason(text, may_have_arrived=False)


def _first_of(error: BaseException) -> BaseException:
    """The first error in a group of them."""
    return leaves(error)[0]
