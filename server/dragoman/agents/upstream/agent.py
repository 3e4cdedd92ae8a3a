"""An upstream agent as the runtime sees it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from dragoman.agents.called.agent import CalledAgent
from dragoman.agents.called.turn import Sleep
from dragoman.agents.upstream.discovery import DiscoveredAgent
from dragoman.agents.upstream.transport import DEFAULT_TRANSPORT_LIMITS, LinkedContents, UpstreamTransport
from dragoman.agents.upstream.turn import UpstreamTurn
from dragoman.agents.upstream.turn_writer import read_task_state
from dragoman.agents.values import NewId
from dragoman.calling.breaker import CircuitBreaker
from dragoman.calling.errors import CallRefused, ClientError
from dragoman.core.agent_sources import UpstreamSpec
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import InvalidAgentResponse
from dragoman.ports import AGENT_STOP_TIMEOUT, TurnContext, TurnResult
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.upstream")


class UpstreamAgent(CalledAgent[UpstreamTurn]):
    """Implements `dragoman.ports.RemoteAgent`. Unavailable until its card was read, and while its breaker is open."""

    kind = "upstream agent"
    log = log

    def __init__(
        self,
        spec: AgentSpec,
        upstream: UpstreamSpec,
        breaker: CircuitBreaker,
        new_id: NewId,
        *,
        from_settings: bool = True,
        on_availability_change: Callable[[], None] = lambda: None,
        idle_timeout: float | None = DEFAULT_TRANSPORT_LIMITS.idle_timeout,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """idle_timeout: seconds without a byte after which a call fails."""
        super().__init__(spec, upstream.location, upstream.turns, breaker, on_availability_change)
        self.upstream = upstream
        self.from_settings = from_settings
        self.discovered: DiscoveredAgent | None = None
        self.all_transports: Sequence[UpstreamTransport] = ()
        """Transports to its interfaces, the best first; none before its card was read."""
        self.supports_streaming = spec.streaming  # whether it streams, as far as is known
        self.idempotent = False
        """Whether it knows idempotency keys: a repeated send with the same key starts nothing."""
        self.required_extensions = ""  # URIs that each call has to activate, separated by commas
        self.is_removed = False
        self._idle_timeout = idle_timeout
        self.transports: Sequence[UpstreamTransport] = ()  # transports in the order in which they are tried
        self.linked_contents: LinkedContents | None = None
        self._failed_transports: list[UpstreamTransport] = []  # transports that failed since the last success
        self._new_id = new_id
        self._sleep = sleep

    @property
    def problem(self) -> str:
        if self.is_removed:
            return f"{self.location}: an operator removed it"
        return super().problem

    def runner_of(self, task_id: str) -> str:
        turn = self._running.get(task_id)
        if turn is None:
            return ""
        task = f" as its task {turn.upstream_task}" if turn.upstream_task else ""
        problem = f"; the last call failed: {self.breaker.last_error}" if self.breaker.last_error else ""
        return f"upstream {self.transports[0].interface if self.transports else self.location}{task}{problem}"

    def describe_wait(self, turn: UpstreamTurn) -> str:
        waits = "It has the message and has not responded yet" if not turn.upstream_task else "Its task is being read"
        return f"{waits}. A call that receives nothing for {self._idle_timeout:g} s is aborted and repeated."

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

    def new_turn(self, context: TurnContext) -> UpstreamTurn:
        return UpstreamTurn(context, self, self._new_id, self._sleep)

    async def stop(self, turn: UpstreamTurn, context: TurnContext, work: asyncio.Task[TurnResult]) -> None:
        """Cancels the upstream task of a turn for a client or a deadline, and waits until the turn ends.

        A client's cancel waits as long as the upstream task goes on, a deadline up to the timeout.
        """
        if context.cancel_reason not in ("client", "deadline") or not (turn.is_sent or turn.upstream_task):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(AGENT_STOP_TIMEOUT if context.cancel_reason != "client" else None):
                if not turn.upstream_task:
                    known = asyncio.create_task(turn.writer.task_known.wait())
                    try:
                        await asyncio.wait([known, work], return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        known.cancel()
                if not work.done() and turn.upstream_task:
                    await self.cancel(turn.upstream_task, context.cancel_metadata)
                    turn.wake()
                await asyncio.wait([work])
        if not work.done():
            # CANCELED would claim that the upstream task has stopped. By now the runtime has muted the turn and ended
            # our task itself: `Timings.mute_timeout` is shorter.
            log.warning("%s did not confirm that its task has stopped", self.location, extra={"task": context.task_id})

    async def cancel(self, task_id: str, metadata: bytes = b"") -> None:
        """Cancels an upstream task. The turn reads the result. `metadata`: of the request, a serialized Struct."""
        request = pb.CancelTaskRequest(id=task_id)
        if metadata:
            request.metadata.MergeFromString(metadata)
        try:
            await self.transport.call("CancelTask", request, extensions=self.required_extensions)
        except CallRefused as refused:
            self.record_success()
            log.info("%s did not cancel its task %s: %s", self.location, task_id, refused.summary)
        except ClientError as failed:
            self.record_failure(failed.summary)
            log.warning("%s could not be reached to cancel its task %s: %s", self.location, task_id, failed.summary)
        except InvalidAgentResponse as error:
            log.warning("%s responded to a cancel with an invalid response: %s", self.location, error)

    async def on_canceled(self, task_state: bytes, metadata: bytes) -> None:
        task = read_task_state(task_state).task
        if task and not self.is_unavailable:
            await self.cancel(task, metadata)

    async def close(self) -> None:
        for transport in self.transports:
            await transport.close()
