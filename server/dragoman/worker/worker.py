"""A worker: dials in with its agents, runs the turns it is given, and dials in again when the line breaks."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.calling.errors import ClientError
from dragoman.calling.tls import tls_advice
from dragoman.core import trace
from dragoman.core.backoff import Backoff
from dragoman.core.task import states
from dragoman.ports import Agent, TurnResult, WorkerLost
from dragoman.ports.tracing import Tracer
from dragoman.worker.frames import encode_registration, failed_turn_end
from dragoman.worker.stream import ServerStream
from dragoman.worker.turn_context import RemoteTurnContext
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

log = logging.getLogger("dragoman.worker")

DEFAULT_WORKER_TURNS: Final = 100
"""Turns of one agent that a worker takes at the same time, unless it is told otherwise."""

RECONNECT_BACKOFF: Final = Backoff(0.5, 15.0)
"""Until a worker whose connection broke connects again."""

STOPPING_NOTICE_SECONDS: Final = 30.0
"""Seconds before the end of a drain at which turns are told (`turn.stopping`)."""

DRAIN_STOP_TIMEOUT: Final = 5.0
"""Seconds for agents to stop at the end of a drain, and for the server to hear of it."""

_PERMANENT_ERRORS: Final = frozenset(
    ("INVALID_ARGUMENT", "ALREADY_EXISTS", "UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED")
)
"""How a stream ends that would end so again: somebody has to change something."""


@dataclass(slots=True)
class _WorkerTurn:
    """One turn that runs here."""

    agent: str
    turn_context: RemoteTurnContext
    task: asyncio.Task[None]


class Worker:
    """Some agents at one server. Use `run`, and `drain` to end it."""

    def __init__(
        self,
        agents: Sequence[Agent],
        server: str,
        *,
        key: Callable[[], str] = str,
        ca: Path | None = None,
        cert: Path | None = None,
        name: str = "",
        turns: int = DEFAULT_WORKER_TURNS,
        tracer: Tracer | None = None,
    ) -> None:
        """`server` is HOST:PORT or grpcs://HOST:PORT, `key` gives what proves who the worker is, or nothing,
        each time that it dials. `turns`: how many of each
        agent at the same time. `tracer` is told of turns. `name`: for people, by default host and process."""
        self._agents = {agent.spec.id: agent for agent in agents}
        self._server = server
        self._key = key
        self._ca = ca
        self._cert = cert
        self._name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._turns = turns
        self._tracer = tracer
        self._stream: ServerStream | None = None
        self._frame_bytes = 0
        self._running: dict[str, _WorkerTurn] = {}
        self._unfinished_turns: Counter[str] = Counter()
        """Turns whose functions have not ended, those of earlier lines too."""
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopped = asyncio.Event()
        self._stream_ended: asyncio.Future[ClientError | None] | None = None
        self.ready = asyncio.Event()
        """Set while the server serves the agents."""

    @property
    def running(self) -> int:
        """Turns that run now."""
        return len(self._running)

    async def run(self) -> None:
        """Serves until `drain` is done. Raises ClientError when the server refuses the worker for good."""
        failures = 1  # the first connection of all: a server that is not up yet is tried again after the second delay
        while not self._stopped.is_set():
            trouble = await self._serve()
            if self._stopped.is_set() or (self._draining and not self._running):
                return
            if trouble is not None and trouble.code in _PERMANENT_ERRORS:
                raise trouble
            was_up = self._frame_bytes > 0
            failures = 1 if was_up else failures + 1
            wait = RECONNECT_BACKOFF.delay(failures)
            self._frame_bytes = 0
            why = trouble.message if trouble else "it ended the stream"
            if not was_up and (hint := tls_advice(why)):
                why += f"; {hint}"
            log.warning("the line to %s is broken (%s); dialling again in %g s", self._server, why, wait)
            try:
                async with asyncio.timeout(wait):
                    await self._stopped.wait()
            except TimeoutError:
                continue

    async def _serve(self) -> ClientError | None:
        """One line, until it is broken. Gives why."""
        self._stream_ended = asyncio.get_running_loop().create_future()
        self._stream = line = ServerStream(
            self._server,
            token=self._key(),
            ca=self._ca,
            cert=self._cert,
            on_frame=self._on_frame,
            on_end=self._stream_ended.set_result,
        )
        agents = [
            encode_registration(agent.spec, 0 if self._draining else max(self._turns - self._unfinished_turns[name], 0))
            for name, agent in self._agents.items()
        ]
        line.send(hello=wk.Hello(name=self._name, agents=agents))
        try:
            return await self._stream_ended
        finally:
            self.ready.clear()
            line.close()
            self._stream = None
            for turn in tuple(self._running.values()):
                self._abort_turn(turn, "the line to the server is broken")

    # What the server says ---------------------------------------------------------------------------------------

    def _on_frame(self, frame: wk.ConnectResponse) -> None:
        kind = frame.WhichOneof("frame")
        match kind:
            case "welcome":
                self._on_welcome(frame.welcome)
            case "turn_start":
                self._start_turn(frame.turn_start)
            case "committed" | "message_arrived" | "cancel" | "stopping" | "turn_over":
                turn = self._running.get(getattr(frame, kind).turn_id)
                if turn is not None:
                    self._dispatch(turn, frame)

    def _dispatch(self, turn: _WorkerTurn, frame: wk.ConnectResponse) -> None:
        match frame.WhichOneof("frame"):
            case "committed":
                turn.turn_context.on_committed(frame.committed.number)
            case "message_arrived":
                turn.turn_context.on_message(frame.message_arrived)
            case "cancel":
                self._cancel(turn, frame.cancel.reason)
            case "stopping":
                turn.turn_context.stopping = True
            case "turn_over":
                log.warning(
                    "the server takes no more of a turn: %s", frame.turn_over.reason,
                    extra={"task": turn.turn_context.task_id, "agent": turn.agent},
                )  # fmt: skip
                self._abort_turn(turn, frame.turn_over.reason)

    def _on_welcome(self, welcome: wk.Welcome) -> None:
        assert self._stream is not None
        self._frame_bytes = welcome.max_frame_bytes
        seconds = [pace.ToNanoseconds() / 1e9 for pace in (welcome.heartbeat, welcome.lease)]
        self._stream.set_timings(heartbeat=seconds[0], lease=seconds[1])
        if self._draining:
            return
        self.ready.set()
        log.info(
            "serving %s at %s", ", ".join(self._agents), self._server,
            extra={"principal": welcome.principal, "turns": self._turns},
        )  # fmt: skip

    # Turns ------------------------------------------------------------------------------------------------------

    def _start_turn(self, start: wk.TurnStart) -> None:
        line = self._stream
        agent = self._agents.get(start.agent_id)
        assert line is not None
        if agent is None:
            line.send(turn_end=failed_turn_end(start.turn_id, f'"{start.agent_id}" is no agent of this worker'))
            return
        desk = RemoteTurnContext(start, line.send, self._frame_bytes)
        work = self._run_turn(agent, desk, line)
        task = asyncio.get_running_loop().create_task(work, name=f"turn {start.turn_id} of task {start.task_id}")
        self._running[start.turn_id] = _WorkerTurn(start.agent_id, desk, task)
        self._unfinished_turns[start.agent_id] += 1
        self._idle.clear()

    async def _run_turn(self, agent: Agent, turn_context: RemoteTurnContext, stream: ServerStream) -> None:
        try:
            await turn_context.finish(
                await (
                    self._call_agent_traced(agent, turn_context)
                    if turn_context.traceparent
                    else self._call_agent(agent, turn_context)
                )
            )
        except WorkerLost as lost:
            log.warning("a turn is given back: %s", str(lost) or "the process that ran it is gone",
                extra={"task": turn_context.task_id, "agent": turn_context.agent})  # fmt: skip
            await turn_context.give_back()
        except Exception:
            log.exception(
                "a turn could not be ended", extra={"task": turn_context.task_id, "agent": turn_context.agent}
            )
        finally:
            self._unfinished_turns[turn_context.agent] -= 1
            if stream is self._stream:
                self._running.pop(turn_context.turn_id, None)
            # The line that there is now began with one turn fewer for each that had not ended by then.
            if self._stream is not None and not self._draining:
                self._stream.send(credit=wk.Credit(agent_id=turn_context.agent, turns=1))
            if not self._running:
                self._idle.set()

    async def _call_agent(self, agent: Agent, turn_context: RemoteTurnContext) -> TurnResult | None:
        """How the turn ended; None when it stopped, as it was asked to."""
        try:
            return await agent.take_turn(turn_context)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            return None

    async def _call_agent_traced(self, agent: Agent, turn_context: RemoteTurnContext) -> TurnResult | None:
        """The same as a part of the trace that the server names, and as a span of it where somebody records those.
        To be called in an asyncio task of its own."""
        if self._tracer is None:
            trace.CURRENT_TRACE.set(turn_context.traceparent)
            return await self._call_agent(agent, turn_context)
        parent, began = trace.parse_traceparent(turn_context.traceparent), time.perf_counter()
        context = self._tracer.start_span(parent)
        if not trace.is_recorded(context):
            trace.CURRENT_TRACE.set(context)
            return await self._call_agent(agent, turn_context)
        self._tracer.activate(context)
        ending = None
        try:
            ending = await self._call_agent(agent, turn_context)
        finally:
            failed = ending is not None and ending.status.state == states.FAILED
            self._tracer.record_span(
                f"turn {turn_context.agent}", "consumer", context, parent, time.perf_counter() - began,
                ("dragoman.agent", "dragoman.task", "dragoman.attempt"), (turn_context.agent, turn_context.task_id, turn_context.attempt),
                "the turn failed" if failed else "",
            )  # fmt: skip
        return ending

    def _cancel(self, turn: _WorkerTurn, reason: str) -> None:
        if not turn.turn_context.cancelled:
            turn.turn_context.cancelled, turn.turn_context.cancel_reason = True, reason
            turn.task.cancel()

    def _abort_turn(self, turn: _WorkerTurn, reason: str) -> None:
        """The turn is over at the server: whoever still works on it works for nothing."""
        self._running.pop(turn.turn_context.turn_id, None)
        turn.turn_context.on_turn_over(reason)
        self._cancel(turn, "fenced")
        if not self._running:
            self._idle.set()

    # The end ----------------------------------------------------------------------------------------------------

    async def drain(self, grace: float, on_progress: Callable[[int], None] | None = None) -> None:
        """Takes no more turns, gives those that run `limit` seconds to end, gives the others back, and hangs up.

        `report` is told once a second how many turns are left.
        """
        self._draining = True
        if self._stream is not None:
            self._stream.send(drain=wk.Drain())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        while self._running and loop.time() < deadline:
            if loop.time() >= deadline - STOPPING_NOTICE_SECONDS:
                for turn in self._running.values():
                    turn.turn_context.stopping = True
            if on_progress is not None:
                on_progress(len(self._running))
            await self._wait_idle(min(1.0, max(0.0, deadline - loop.time())))
        for turn in tuple(self._running.values()):
            self._cancel(turn, "drain")
        await self._wait_idle(DRAIN_STOP_TIMEOUT)
        self._stopped.set()
        if self._stream is not None and self._stream_ended is not None:
            self._stream.half_close()
            try:
                async with asyncio.timeout(DRAIN_STOP_TIMEOUT):
                    await asyncio.wait([self._stream_ended])
            except TimeoutError:
                pass
            if not self._stream_ended.done():
                self._stream_ended.set_result(None)

    async def _wait_idle(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            pass
