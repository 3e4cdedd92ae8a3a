"""An upstream agent as the runtime sees it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from google.protobuf.message import Message

from dragoman.agents.called.agent import CalledAgent, CalledTurn
from dragoman.agents.upstream.discovery import DiscoveredAgent
from dragoman.agents.upstream.transport import DEFAULT_TRANSPORT_LIMITS, LinkedContents, UpstreamTransport
from dragoman.agents.upstream.turn_writer import read_task_state
from dragoman.calling.breaker import CircuitBreaker
from dragoman.calling.errors import CallRefused, ServerUnavailable
from dragoman.core.agent_sources import UpstreamSpec
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.task import states
from dragoman.ports import TurnContext
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.upstream")


class UpstreamAgent(CalledAgent):
    """Implements `dragoman.ports.RemoteAgent`. Unavailable until its card was read, and while its breaker is open."""

    kind = "upstream agent"
    log = log

    def __init__(
        self,
        spec: AgentSpec,
        upstream: UpstreamSpec,
        breaker: CircuitBreaker,
        new_turn: Callable[[TurnContext, UpstreamAgent], CalledTurn],
        *,
        from_settings: bool = True,
        on_availability_change: Callable[[], None] = lambda: None,
        idle_timeout: float | None = DEFAULT_TRANSPORT_LIMITS.idle_timeout,
    ) -> None:
        """new_turn: creates its turns. idle_timeout: seconds without a byte after which a call fails."""
        super().__init__(spec, upstream.location, upstream.turns, breaker, on_availability_change)
        self.upstream = upstream
        self.from_settings = from_settings
        self.discovered: DiscoveredAgent | None = None
        self.all_transports: Sequence[UpstreamTransport] = ()
        """Transports to its interfaces, the best first; none before its card was read."""
        self.supports_streaming = spec.streaming  # whether it streams, as far as is known
        self.idempotent = False  # whether it knows idempotency keys: a repeated send with the same key starts nothing
        self.required_extensions = ""  # URIs that each call has to activate, separated by commas
        self.is_removed = False
        self.idle_timeout = idle_timeout
        self.transports: Sequence[UpstreamTransport] = ()  # transports in the order in which they are tried
        self.linked_contents: LinkedContents | None = None
        self._failed_transports: list[UpstreamTransport] = []  # transports that failed since the last success
        self._new_turn = new_turn

    @property
    def problem(self) -> str:
        if self.is_removed:
            return f"{self.location}: an operator removed it"
        return super().problem

    @property
    def transport(self) -> UpstreamTransport:
        return self.transports[0]

    @property
    def is_known(self) -> bool:
        return bool(self.transports)

    def record_success(self) -> None:
        self._failed_transports.clear()
        super().record_success()

    def use_another_address(self) -> bool:
        self._failed_transports.append(self.transports[0])
        if others := [one for one in self.transports if one not in self._failed_transports]:
            log.info("%s does not respond; trying %s", self.transports[0].interface, others[0].interface)
            self.transports = [*others, *self._failed_transports]
            return True
        self._failed_transports.clear()
        return False

    def drop_transport(self, transport: UpstreamTransport) -> bool:
        """Drops a transport that lacks a method, unless another turn did. Keeps the only one, and returns False."""
        if transport is not self.transports[0]:
            return True  # another turn has dropped it
        others = [one for one in self.transports if one is not transport]
        if not others:
            return False
        log.warning("%s lacks a required method; using %s instead", transport.interface, others[0].interface)
        self.transports = others
        return True

    def new_turn(self, context: TurnContext) -> CalledTurn:
        return self._new_turn(context, self)

    async def cancel_task(self, task: str, metadata: bytes) -> None:
        request = pb.CancelTaskRequest(id=task)
        if metadata:
            request.metadata.MergeFromString(metadata)
        await self._call("CancelTask", request)

    async def has_ended(self, task: str) -> bool:
        try:
            found = await self._call("GetTask", pb.GetTaskRequest(id=task, history_length=0))
        except CallRefused as refused:
            if refused.remote_error.is_task_not_found:
                return True
            raise
        return isinstance(found, pb.Task) and states.is_terminal(found.status.state)

    async def _call(self, rpc: str, request: Message) -> Message:
        if not self.transports:
            raise ServerUnavailable.for_reason(f"{self.location}: its card is not read yet", may_have_arrived=False)
        return await self.transport.call(rpc, request, extensions=self.required_extensions)

    def may_have_work(self, task_state: bytes, attempt: int) -> bool:
        state = read_task_state(task_state)
        return bool(state.task) or (attempt > 1 and not state.unsent)

    async def cancel_waiting(self, task_state: bytes, metadata: bytes) -> bool:
        if task := read_task_state(task_state).task:
            await self.cancel_idle(task, metadata)
        return True

    async def close(self) -> None:
        for transport in self.transports:
            await transport.close()
