"""An MCP server as an agent, as the runtime sees it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from dragoman.agents.called import CalledAgent
from dragoman.agents.values import NewId
from dragoman.calling.breaker import CircuitBreaker
from dragoman.calling.errors import ClientError, ProtocolError, ServerUnavailable
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.mcp_sources import McpSpec
from dragoman.core.schemas import SchemaCheck, compile_schema
from dragoman.extensions.mcp.servers import discovery, tasks_extension
from dragoman.extensions.mcp.servers.call_state import read_call_state
from dragoman.extensions.mcp.servers.connection import McpConnection, call_error
from dragoman.extensions.mcp.servers.discovery import DiscoveredServer
from dragoman.extensions.mcp.servers.open_calls import OpenCalls
from dragoman.extensions.mcp.servers.transport import SESSION_LOST_CODE
from dragoman.extensions.mcp.servers.turn import McpTurn
from dragoman.ports import OutboundStreams, TurnContext, TurnResult

log = logging.getLogger("dragoman.mcp")

TASK_CANCEL_TIMEOUT: Final = 5.0
"""Seconds for a server's task to end after its cancel. Shorter than the runtime waits for the agent."""


class McpAgent(CalledAgent[McpTurn]):
    """Implements `dragoman.ports.RemoteAgent`. Unavailable until its tools were read, and while its breaker is open."""

    def __init__(
        self,
        server: McpSpec,
        outbound: OutboundStreams,
        max_response_bytes: int,
        breaker: CircuitBreaker,
        new_id: NewId,
        *,
        on_availability_change: Callable[[], None] = lambda: None,
        on_tools_changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """on_availability_change: called when it becomes unavailable or loses its connection, and when it responds
        again. on_tools_changed: called when it says that its tools have changed. clock: monotonic seconds."""
        super().__init__(breaker, server.turns)
        self.server = server
        self.spec: AgentSpec = discovery.placeholder_spec(server)
        self.discovered: DiscoveredServer | None = None
        self.calls = OpenCalls()
        self.connection = McpConnection(
            server,
            outbound,
            max_response_bytes,
            elicit=self.calls.elicit,
            on_tools_changed=on_tools_changed,
            on_lost=lambda _: on_availability_change(),
        )
        self._output_checks: dict[str, SchemaCheck] = {}
        """The checks of results, by tool."""
        self._new_id = new_id
        self._clock = clock
        self._sleep = sleep
        self._on_availability_change = on_availability_change
        self._on_tools_changed = on_tools_changed

    # RemoteAgent, for the runtime -------------------------------------------------------------------------------

    def runner_of(self, task_id: str) -> str:
        """Describes where the turn of a task runs; empty when none does."""
        turn = self._running.get(task_id)
        if turn is None:
            return ""
        tool = f", tool {turn.output.state.tool}" if turn.output.state.tool else ""
        task = f", as its task {turn.handle}" if turn.handle else ""
        return f"MCP server {self.server.location}{tool}{task}"

    def describe_run(self, task_id: str) -> str:
        """Describes the state of a task's turn: the last error, or what it waits for."""
        turn = self._running.get(task_id)
        if turn is None:
            return ""
        if failure := self.describe_failure():
            return failure
        if turn.handle:
            return "The MCP server runs the call as a task of its own, which is polled."
        return "The tool was called and has not answered yet." if turn.is_sent else ""

    # ToolServer, for its turns ----------------------------------------------------------------------------------

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
    def is_unavailable(self) -> bool:
        """Whether it should not be called."""
        return self.breaker.is_open or self.discovered is None

    @property
    def left_out(self) -> Sequence[str]:
        """The tools that cannot be read, with the reason."""
        return self.discovered.left_out if self.discovered is not None else ()

    @property
    def is_connected(self) -> bool:
        """Whether it is available over an open connection."""
        return self.connection.is_open and not self.is_unavailable

    async def client(self) -> Client:
        """The open client; see `McpConnection.client`."""
        return await self.connection.client()

    def drop_connection(self, client: Client) -> None:
        """Lets the next call open another connection, unless that has happened since `client` was opened."""
        self.connection.drop(client)

    @property
    def announces_changes(self) -> bool:
        """Whether the server says when its list of tools changes."""
        return self.discovered is not None and self.discovered.announces_changes

    async def read_tools(self, client: Client) -> None:
        """Reads the list of tools once more, for the SDK and for choices of tools. Raises MCPError, ProtocolError."""
        tools = await discovery.read_tools(client)
        if self.discovered is not None and self.discovered.tools != tools:
            self._take(replace(self.discovered, tools=tools))
            self._on_tools_changed()

    def record_success(self) -> None:
        """Records an answer."""
        if self.breaker.record_success():
            log.info("%s responds again", self.server.location, extra={"agent": self.spec.id})
            self._on_availability_change()

    def record_failure(self, reason: str) -> None:
        """Records a call without an answer."""
        if self.breaker.record_failure(reason):
            log.warning("%s is unavailable: %s", self.server.location, reason, extra={"agent": self.spec.id})
            self._on_availability_change()

    # Discovery --------------------------------------------------------------------------------------------------

    async def discover(self) -> DiscoveredServer:
        """Reads what the server offers, over a new connection if none is open. Raises ClientError."""
        location = self.server.location
        client = await self.client()
        try:
            async with asyncio.timeout(discovery.DISCOVERY_TIMEOUT):
                return await discovery.discover(self.server, client, self.connection.left_out)
        except TimeoutError:
            text = f"{location}: did not describe itself within {discovery.DISCOVERY_TIMEOUT:g} s"
            raise ServerUnavailable.for_reason(text, may_have_arrived=False) from None
        except ValidationError as error:
            raise ProtocolError(f"{location}: its answer is not valid MCP ({error.error_count()} errors)") from None
        except MCPError as error:
            failure = call_error(error)
            if failure is None:
                raise ProtocolError(f"{location}: {error.message} ({error.code})") from None
            if error.code == SESSION_LOST_CODE:
                self.connection.drop(client)
            if isinstance(failure, ProtocolError):
                raise ProtocolError(f"{location}: {failure.message}") from None
            raise failure from None
        except RuntimeError:  # the SDK, whose client was closed meanwhile
            raise ServerUnavailable.for_reason(f"{location}: the connection ended", may_have_arrived=False) from None
        except ProtocolError as error:
            raise ProtocolError(f"{location}: {error.message.removeprefix(f'{location}: ')}") from None

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

    def new_turn(self, context: TurnContext) -> McpTurn:
        """A turn that has not begun."""
        return McpTurn(context, self, self._new_id, clock=self._clock, sleep=self._sleep)

    async def stop(self, turn: McpTurn, context: TurnContext, work: asyncio.Task[TurnResult]) -> None:
        """Cancels the server's task of a turn for a client or a deadline, and waits for its end, for a limited time."""
        if turn.handle and context.cancel_reason in ("client", "deadline"):
            with suppress(TimeoutError):
                async with asyncio.timeout(TASK_CANCEL_TIMEOUT):
                    await self._cancel_handle(turn.handle)
                    turn.wake()
                    await asyncio.wait([work])

    async def _cancel_handle(self, handle: str) -> None:
        try:
            await tasks_extension.cancel_task(await self.client(), handle)
        except (MCPError, ClientError) as error:
            log.warning("%s did not cancel its task %s: %s", self.server.location, handle, error)

    async def on_canceled(self, task_state: bytes, metadata: bytes) -> None:
        """Cancels the call of our task, which was canceled while it waited for its caller."""
        state = read_call_state(task_state)
        if state.open_call:
            self.calls.discard(state.open_call)
        if state.handle and not self.is_unavailable:
            await self._cancel_handle(state.handle)

    async def close(self) -> None:
        """Cancels its calls and closes the connection, which ends a child process."""
        await self.calls.close()
        await self.connection.close()
