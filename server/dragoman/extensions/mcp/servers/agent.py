"""An MCP server as an agent, as the runtime sees it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import mcp_types as types
from mcp.client.client import Client

from dragoman.agents.called.agent import CalledAgent, CalledTurn
from dragoman.calling.breaker import CircuitBreaker
from dragoman.calling.errors import CallRefused, ProtocolError, ServerUnavailable
from dragoman.core.schemas import SchemaCheck, compile_schema
from dragoman.extensions.mcp.servers import discovery, tasks_extension
from dragoman.extensions.mcp.servers.call_state import read_call_state
from dragoman.extensions.mcp.servers.connection import McpConnection, McpRefused
from dragoman.extensions.mcp.servers.discovery import DiscoveredServer
from dragoman.extensions.mcp.servers.open_calls import OpenCalls
from dragoman.extensions.mcp.sources import McpSpec
from dragoman.ports import OutboundStreams, TurnContext

log = logging.getLogger("dragoman.mcp")

T = TypeVar("T")


class McpAgent(CalledAgent):
    """Implements `dragoman.ports.RemoteAgent`. Unavailable until its tools were read, and while its breaker is open."""

    kind = "MCP server"
    log = log

    def __init__(
        self,
        server: McpSpec,
        outbound: OutboundStreams,
        max_response_bytes: int,
        breaker: CircuitBreaker,
        new_turn: Callable[[TurnContext, McpAgent], CalledTurn],
        *,
        on_availability_change: Callable[[], None] = lambda: None,
    ) -> None:
        """new_turn: creates its turns. on_availability_change: also called when it loses its connection."""
        spec = discovery.unread_spec(server)
        super().__init__(spec, server.location, server.turns, breaker, on_availability_change)
        self.server = server
        self.discovered: DiscoveredServer | None = None
        self.calls = OpenCalls()
        self.connection = McpConnection(
            server,
            outbound,
            max_response_bytes,
            elicit=self.calls.elicit,
            on_tools_changed=self.wake.set,
            on_lost=lambda _: self.availability_changed(),
        )
        self._output_checks: dict[str, SchemaCheck] = {}
        """The checks of results, by tool."""
        self._new_turn = new_turn

    # For its turns ----------------------------------------------------------------------------------

    @property
    def tools(self) -> Sequence[types.Tool]:
        """The tools as last read."""
        return self.discovered.tools if self.discovered is not None else ()

    def check_output(self, tool: str, value: object) -> str:
        """Why the structured content of a result does not match what its tool declares; empty if it does."""
        check = self._output_checks.get(tool)
        return "" if check is None or check.invalid else check.find_problem(value)

    def has_output_schema(self, tool: str) -> bool:
        """Whether a result of a tool has structured content in any case."""
        return tool in self._output_checks

    @property
    def is_known(self) -> bool:
        """Whether its tools were read."""
        return self.discovered is not None

    @property
    def left_out(self) -> Sequence[str]:
        """The tools that cannot be read, with the reason."""
        return self.discovered.left_out if self.discovered is not None else ()

    @property
    def is_reachable(self) -> bool:
        """Whether it is available over an open connection."""
        return self.connection.is_open and not self.is_unavailable

    async def connect(self) -> None:
        """Opens a connection if none is open. Raises ClientError; no tool was called."""
        await self.connection.client()

    async def call(self, request: Callable[[Client], Awaitable[T]]) -> T:
        """The answer to one call. Raises ClientError."""
        return await self.connection.call(request)

    @property
    def announces_changes(self) -> bool:
        """Whether the server says when its list of tools changes."""
        return self.discovered is not None and self.discovered.announces_changes

    async def read_tools(self) -> None:
        """Reads the list of tools once more, for the SDK and for choices of tools. Raises ClientError."""
        tools = await self.call(discovery.read_tools)
        if self.discovered is not None and self.discovered.tools != tools:
            self._take(replace(self.discovered, tools=tools))
            self.wake.set()

    # Discovery --------------------------------------------------------------------------------------------------

    async def discover(self) -> DiscoveredServer:
        """Reads what the server offers, over a new connection if none is open. Raises ClientError."""
        await self.connect()
        try:
            async with asyncio.timeout(discovery.DISCOVERY_TIMEOUT):
                return await self.call(lambda client: discovery.discover(self.server, client, self.connection.left_out))
        except TimeoutError:
            text = f"{self.location}: did not describe itself within {discovery.DISCOVERY_TIMEOUT:g} s"
            raise ServerUnavailable.for_reason(text, may_have_arrived=False) from None
        except (ProtocolError, CallRefused) as error:
            raise ProtocolError(f"{self.location}: {error.summary.removeprefix(f'{self.location}: ')}") from None

    def apply(self, discovered: DiscoveredServer) -> bool:
        """Applies what was read. Returns whether the spec has changed."""
        changed = self.discovered is None or self.spec != discovered.spec
        self._take(discovered)
        self.spec = discovered.spec
        return changed

    def _take(self, discovered: DiscoveredServer) -> None:
        schemas = {tool.name: discovery.output_schema_of(tool) for tool in discovered.tools}
        self.discovered = discovered
        self._output_checks = {name: compile_schema(schema) for name, schema in schemas.items() if schema is not None}

    # Turns ------------------------------------------------------------------------------------------------------

    def new_turn(self, context: TurnContext) -> CalledTurn:
        """A turn that has not begun."""
        return self._new_turn(context, self)

    async def cancel_task(self, task: str, metadata: bytes) -> None:
        await self.call(lambda client: tasks_extension.cancel_task(client, task))

    async def has_ended(self, task: str) -> bool:
        try:
            found = await self.call(lambda client: tasks_extension.get_task(client, task))
        except McpRefused as refused:
            if refused.rpc_code == types.INVALID_PARAMS:  # it does not know the task
                return True
            raise
        return found.status in ("completed", "cancelled", "failed")

    def may_have_work(self, task_state: bytes, attempt: int) -> bool:
        state = read_call_state(task_state)
        return bool(state.handle or state.open_call) or (attempt > 1 and not state.unsent)

    async def cancel_waiting(self, task_state: bytes, metadata: bytes) -> bool:
        state = read_call_state(task_state)
        if state.open_call:
            self.calls.discard(state.open_call)
            return False
        if state.handle:
            await self.cancel_idle(state.handle, metadata)
        return True

    async def close(self) -> None:
        """Cancels its calls and closes the connection, which ends a child process."""
        await self.calls.close()
        await self.connection.close()
