"""The worker: connects to a server, runs its turns, and reconnects after a broken stream."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from dragoman.calling.errors import ClientError
from dragoman.calling.tls import tls_advice
from dragoman.core import trace
from dragoman.core.durations import Backoff
from dragoman.core.exceptions import is_a
from dragoman.core.task import states
from dragoman.ports import Agent, AgentStillRuns, TurnResult, WorkerLost
from dragoman.ports.remote_agents import failed_turn_end
from dragoman.ports.tracing import Span, Tracer
from dragoman.runtime.lease import GuardedSteps, watch_lease
from dragoman.supervision import wait_for
from dragoman.worker.frames import encode_registration
from dragoman.worker.stream import ServerStream
from dragoman.worker.turn_context import RemoteTurnContext
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

log = logging.getLogger("dragoman.worker")

RECONNECT_BACKOFF: Final = Backoff(0.5, 15.0)  # seconds until a worker reconnects after a broken connection
STOPPING_NOTICE_SECONDS: Final = 30.0  # seconds before the end of a drain at which turns see `turn.stopping`

DRAIN_STOP_TIMEOUT: Final = 2.0
"""Seconds for agents to stop at the end of a drain, and again for the server to end the stream."""

_PERMANENT_ERRORS: Final = frozenset(
    ("INVALID_ARGUMENT", "ALREADY_EXISTS", "UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED")
)
"""Status codes after which a reconnect would fail again, until someone changes the configuration."""


class Worker:
    """Runs agents for one server. Call `run`, and `drain` to end it."""

    def __init__(
        self,
        agents: Sequence[Agent],
        server: str,
        *,
        key: Callable[[], str] = str,
        name: str = "",
        turns: int = 100,
        tracer: Tracer | None = None,
        open_stream: Callable[..., ServerStream] = ServerStream,
    ) -> None:
        """`server`: HOST:PORT or grpcs://HOST:PORT. `key`: returns the credential for each connection, or "". `name`:
        shown to operators, by default host and process id. `turns`: concurrent turns per agent. `tracer`: records
        turns as spans. `open_stream`: opens the stream of each connection, for example with certificates."""
        self._agents = {agent.spec.id: agent for agent in agents}
        self._server = server
        self._key = key
        self._name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._turns = turns
        self._tracer = tracer
        self._open_stream = open_stream
        self._stream: ServerStream | None = None
        self._leased = asyncio.Event()  # the current stream has had a lease
        self._frame_bytes = 0
        self._running: dict[str, RemoteTurnContext] = {}
        self._unfinished_turns: Counter[str] = Counter()
        """Turns by agent whose functions still run, including those of earlier streams."""
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopped = asyncio.Event()
        self._stream_ended: asyncio.Future[ClientError | None] | None = None
        self.ready = asyncio.Event()  # set while the agents are registered at the server

    @property
    def running(self) -> int:
        return len(self._running)

    def running_turns(self) -> list[str]:
        """The running turns, for the log."""
        return [f"agent {turn.agent} (task {turn.task_id})" for turn in tuple(self._running.values())]

    async def run(self) -> None:
        """Runs until `drain` is done. Raises ClientError if the server rejects the worker permanently."""
        failures = 1  # a server that is not up yet is retried after the second delay
        while not self._stopped.is_set():
            error = await self._serve()
            if self._stopped.is_set() or (self._draining and not self._running):
                return
            if error is not None and error.code in _PERMANENT_ERRORS:
                raise error
            was_up = self._frame_bytes > 0
            failures = 1 if was_up else failures + 1
            wait = RECONNECT_BACKOFF.delay(failures)
            self._frame_bytes = 0
            reason = error.message if error else "the server ended the stream"
            if not was_up and (hint := tls_advice(reason)):
                reason += f"; {hint}"
            log.warning("the connection to %s is broken (%s); reconnecting in %g s", self._server, reason, wait)
            await wait_for(self._stopped, wait)

    async def _serve(self) -> ClientError | None:
        """Runs one stream until it ends. Returns the error, None if the server ended it."""
        self._stream_ended, self._leased = asyncio.get_running_loop().create_future(), asyncio.Event()
        self._stream = stream = self._open_stream(
            self._server, token=self._key(), on_frame=self._on_frame, on_end=self._stream_ended.set_result
        )
        agents = [
            encode_registration(agent.spec, 0 if self._draining else max(self._turns - self._unfinished_turns[name], 0))
            for name, agent in self._agents.items()
        ]
        stream.send(hello=wk.Hello(name=self._name, agents=agents))
        watching = asyncio.create_task(watch_lease(stream.lease, self._end_lapsed_turns), name="watch lease")
        try:
            return await self._stream_ended
        finally:
            watching.cancel()
            self.ready.clear()
            stream.close()
            self._stream = None
            for turn in tuple(self._running.values()):
                self._abort_turn(turn, "the connection to the server is broken")

    def _end_lapsed_turns(self) -> None:
        """Stops the turns that began before a lapse of the lease."""
        for turn in tuple(self._running.values()):
            if turn.loses_lease():
                turn.interrupt()

    # Frames from the server ---------------------------------------------------------------------------------------

    def _on_frame(self, frame: wk.ConnectResponse) -> None:
        kind = frame.WhichOneof("frame")
        turn = self._running.get(getattr(getattr(frame, kind), "turn_id", "")) if kind else None
        match kind:
            case "welcome":
                self._on_welcome(frame.welcome)
            case "turn_start":
                self._start_turn(frame.turn_start)
            case "heartbeat":
                if frame.heartbeat.lease.ToNanoseconds() > 0:
                    self._leased.set()
            case _ if turn is None:
                pass  # a turn that has ended here before the server knew
            case "committed":
                turn.on_committed(frame.committed.number)
            case "message_arrived":
                turn.on_message(frame.message_arrived)
            case "task_call_result":
                turn.on_call_result(frame.task_call_result)
            case "cancel":
                turn.cancel(frame.cancel.reason, frame.cancel.metadata.SerializeToString())
            case "stopping":
                turn.stopping = True
            case "turn_revoked":
                log.warning(
                    "the server has ended a turn: %s", frame.turn_revoked.reason,
                    extra={"task": turn.task_id, "agent": turn.agent},
                )  # fmt: skip
                self._abort_turn(turn, frame.turn_revoked.reason)

    def _on_welcome(self, welcome: wk.Welcome) -> None:
        assert self._stream is not None
        self._frame_bytes = welcome.max_frame_bytes
        heartbeat, lease = (duration.ToNanoseconds() / 1e9 for duration in (welcome.heartbeat, welcome.lease))
        self._stream.set_timings(heartbeat=heartbeat, lease=lease)
        if self._draining:
            return
        self.ready.set()
        log.info(
            "serving %s at %s", ", ".join(self._agents), self._server,
            extra={"principal": welcome.principal, "turns": self._turns},
        )  # fmt: skip

    # Turns --------------------------------------------------------------------------------------------------------

    def _start_turn(self, start: wk.TurnStart) -> None:
        stream = self._stream
        agent = self._agents.get(start.agent_id)
        assert stream is not None
        if agent is None:
            stream.send(turn_end=failed_turn_end(start.turn_id, f'"{start.agent_id}" is not an agent of this worker'))
            return
        turn_context = RemoteTurnContext(start, stream.send, self._frame_bytes, stream.lease.hold())
        work = self._run_turn(agent, turn_context, stream)
        name = f"turn {start.turn_id} of task {start.task_id}"
        turn_context.task = asyncio.get_running_loop().create_task(work, name=name)
        self._running[start.turn_id] = turn_context
        self._unfinished_turns[start.agent_id] += 1
        self._idle.clear()

    async def _run_turn(self, agent: Agent, turn_context: RemoteTurnContext, stream: ServerStream) -> None:
        turn_context.begun = True
        try:
            await turn_context.finish(
                await (
                    self._call_agent_traced(agent, turn_context)
                    if turn_context.traceparent
                    else self._call_agent(agent, turn_context)
                )
            )
        except AgentStillRuns:
            log.warning("the agent of a canceled turn still runs", extra={"task": turn_context.task_id})
        except WorkerLost as lost:
            log.warning("turn returned to the server: %s", str(lost) or "the process that ran it has died",
                extra={"task": turn_context.task_id, "agent": turn_context.agent})  # fmt: skip
            await turn_context.give_back(lost)
        except BaseException as error:
            task = asyncio.current_task()
            if not is_a(error, Exception) and (task is None or task.cancelling()):  # this process ends
                raise
            turn_context.fail(error)
        finally:
            self._unfinished_turns[turn_context.agent] -= 1
            if stream is self._stream:
                self._running.pop(turn_context.turn_id, None)
            # A newer stream started with one credit less for each turn that still ran.
            if self._stream is not None and not self._draining:
                self._stream.send(credit=wk.Credit(agent_id=turn_context.agent, turns=1))
            if not self._running:
                self._idle.set()

    async def _call_agent(self, agent: Agent, turn_context: RemoteTurnContext) -> TurnResult | None:
        """The result of the turn; None if it stopped after a cancel."""
        if turn_context.canceled:
            return None
        try:
            await self._leased.wait()  # the server may start turns before it has answered a heartbeat
            steps = GuardedSteps(agent.take_turn(turn_context), turn_context.hold, turn_context.loses_lease, agent)
            try:
                return await steps
            finally:
                turn_context.agent_begun = steps.begun
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            return None

    async def _call_agent_traced(self, agent: Agent, turn_context: RemoteTurnContext) -> TurnResult | None:
        """`_call_agent` within the server's trace, with a span if that trace is recorded.

        Sets context variables: call it in an asyncio task of its own.
        """
        parent, started_at = trace.parse_traceparent(turn_context.traceparent), time.perf_counter()
        context = turn_context.traceparent if self._tracer is None else self._tracer.start_span(parent)
        if self._tracer is None or not trace.is_recorded(context):
            trace.CURRENT_TRACE.set(context)
            return await self._call_agent(agent, turn_context)
        self._tracer.activate(context)
        result = None
        try:
            result = await self._call_agent(agent, turn_context)
        finally:
            failed = result is not None and result.status.state == states.FAILED
            self._tracer.record_span(Span(
                f"turn {turn_context.agent}", "consumer", context, parent, time.perf_counter() - started_at,
                ("dragoman.agent", "dragoman.task", "dragoman.attempt"),
                (turn_context.agent, turn_context.task_id, turn_context.attempt),
                "the turn failed" if failed else "",
            ))  # fmt: skip
        return result

    def _abort_turn(self, turn: RemoteTurnContext, reason: str) -> None:
        """Stops a turn that has ended at the server."""
        self._running.pop(turn.turn_id, None)
        turn.on_turn_over(reason)
        turn.cancel("lease_lost")
        if not self._running:
            self._idle.set()

    # Shutdown -----------------------------------------------------------------------------------------------------

    async def drain(self, grace: float) -> None:
        """Takes no more turns, waits `grace` seconds for running ones, returns the rest, and disconnects."""
        self._draining = True
        if self._stream is not None:
            self._stream.send(drain=wk.Drain())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        while self._running and loop.time() < deadline:
            if loop.time() >= deadline - STOPPING_NOTICE_SECONDS:
                for turn in self._running.values():
                    turn.stopping = True
            await wait_for(self._idle, min(1.0, max(0.0, deadline - loop.time())))
        for turn in tuple(self._running.values()):
            turn.cancel("drain")
        await wait_for(self._idle, DRAIN_STOP_TIMEOUT)
        self._stopped.set()
        if self._stream is not None and self._stream_ended is not None:
            self._stream.half_close()
            await asyncio.wait([self._stream_ended], timeout=DRAIN_STOP_TIMEOUT)
            if not self._stream_ended.done():
                self._stream_ended.set_result(None)
