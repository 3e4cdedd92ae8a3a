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

from dragoman.agents.mcp import discovery, tasks_extension
from dragoman.agents.mcp.call_state import read_call_state
from dragoman.agents.mcp.connection import McpConnection, call_error
from dragoman.agents.mcp.discovery import DiscoveredServer
from dragoman.agents.mcp.open_calls import OpenCalls
from dragoman.agents.mcp.transport import SESSION_LOST_CODE
from dragoman.agents.mcp.turn import McpTurn
from dragoman.agents.values import NewId
from dragoman.calling.breaker import CircuitBreaker
from dragoman.calling.errors import ClientError, ProtocolError, ServerUnavailable
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.mcp_sources import McpSpec
from dragoman.core.task import states
from dragoman.core.task.log import AppendRejected, StatusChange
from dragoman.ports import LeaseLost, OutboundStreams, TurnContext, TurnResult

log = logging.getLogger("dragoman.mcp")

TASK_CANCEL_TIMEOUT: Final = 5.0
"""Seconds for a server's task to end after its cancel. Shorter than the runtime waits for the agent."""


class McpAgent:
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
        self.server = server
        self.breaker = breaker
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
        self._new_id = new_id
        self._clock = clock
        self._sleep = sleep
        self._on_availability_change = on_availability_change
        self._on_tools_changed = on_tools_changed
        self._running: dict[str, McpTurn] = {}

    # RemoteAgent, for the runtime -------------------------------------------------------------------------------

    @property
    def leaked_threads(self) -> int:
        """Always 0: turns use no threads."""
        return 0

    @property
    def is_worker_backed(self) -> bool:
        """Always False."""
        return False

    @property
    def capacity(self) -> int:
        """The most concurrent turns: none while unavailable, one as a probe while half open."""
        if self.is_unavailable:
            return 0
        return 1 if self.breaker.is_half_open else self.server.turns

    @property
    def seconds_absent(self) -> float:
        """Seconds since it became unavailable."""
        return self.breaker.seconds_open

    @property
    def problem(self) -> str:
        """Why it is unavailable; empty while it is available."""
        return self.breaker.last_error if self.is_unavailable else ""

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
        if error := self.breaker.last_error:
            return (
                f"The last call to the MCP server failed ({error}) and will be retried. After "
                f"{self.breaker.max_failures} consecutive failures the agent counts as unavailable, and the turn is "
                "returned to the queue."
            )
        if turn.handle:
            return "The MCP server runs the call as a task of its own, which is polled."
        return "The tool was called and has not answered yet." if turn.calls.is_sent else ""

    @property
    def running(self) -> int:
        """The number of running turns."""
        return len(self._running)

    # ToolServer, for its turns ----------------------------------------------------------------------------------

    @property
    def tools(self) -> Sequence[types.Tool]:
        """The tools as last read."""
        return self.discovered.tools if self.discovered is not None else ()

    @property
    def is_unavailable(self) -> bool:
        """Whether it should not be called."""
        return self.breaker.is_open or self.discovered is None

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
            self.discovered = replace(self.discovered, tools=tools)
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
            return await discovery.discover(self.server, client)
        except MCPError as error:
            failure = call_error(error)
            if failure is None:
                raise ProtocolError(f"{location}: {error.message} ({error.code})") from None
            if error.code == SESSION_LOST_CODE:
                self.connection.drop(client)
            raise failure from None
        except RuntimeError:  # the SDK, whose client was closed meanwhile
            raise ServerUnavailable.for_reason(f"{location}: the connection ended", may_have_arrived=False) from None
        except ProtocolError as error:
            raise ProtocolError(f"{location}: {error.message.removeprefix(f'{location}: ')}") from None

    def apply(self, discovered: DiscoveredServer) -> bool:
        """Applies what was read. Returns whether the spec has changed."""
        changed = self.discovered is None or self.spec != discovered.spec
        self.discovered, self.spec = discovered, discovered.spec
        return changed

    # Turns ------------------------------------------------------------------------------------------------------

    async def take_turn(self, context: TurnContext) -> TurnResult:
        """Runs one turn. Raises WorkerLost when the server is unavailable, or the turn's end is unknown."""
        turn = McpTurn(context, self, self._new_id, clock=self._clock, sleep=self._sleep)
        self._running[context.task_id] = turn
        work = asyncio.create_task(turn.run(), name=f"turn of {context.task_id} at an MCP server")
        try:
            await asyncio.wait([work])  # unlike `await work`, does not cancel it when this turn is canceled
            return work.result()
        except asyncio.CancelledError:
            try:
                if turn.handle and context.cancel_reason in ("client", "deadline"):
                    await self._cancel_task(turn, work)
            finally:
                # Before `work.cancel()`, after which it would look canceled.
                ended_by_itself = work.done() and not work.cancelled() and work.exception() is None
                work.cancel()
                await asyncio.wait([work])
            if ended_by_itself and context.cancel_reason == "client":
                return work.result()
            if not turn.calls.is_sent and context.cancel_reason == "drain":
                await turn.mark_unsent()
            raise
        except (LeaseLost, AppendRejected):
            # The claim is lost: nothing more of this turn is written, not even this result.
            return TurnResult(StatusChange(states.CANCELED))
        finally:
            del self._running[context.task_id]

    async def _cancel_task(self, turn: McpTurn, work: asyncio.Task[TurnResult]) -> None:
        """Cancels the server's task of a turn, and waits for its end, for a limited time."""
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
