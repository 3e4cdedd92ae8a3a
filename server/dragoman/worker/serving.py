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

from dragoman.client.failure import ClientError
from dragoman.client.trust import advice
from dragoman.core import states, trace
from dragoman.ports import Agent, Ending, ProcessLost
from dragoman.ports.tracing import Tracer
from dragoman.worker.card import registration
from dragoman.worker.desk import WorkerDesk
from dragoman.worker.frames import failed
from dragoman.worker.line import Line
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

log = logging.getLogger("dragoman.worker")

TURNS: Final = 100
"""Turns of one agent that a worker takes at the same time, unless it is told otherwise."""

AGAIN: Final = (0.5, 15.0)
"""Seconds until it dials again: at first, and at most."""

STOPPING: Final = 30.0
"""Seconds before the end of a drain at which turns are told (`turn.stopping`)."""

LAST_WORDS: Final = 5.0
"""Seconds for agents to stop at the end of a drain, and for the server to hear of it."""

_HOPELESS: Final = frozenset(
    ("INVALID_ARGUMENT", "ALREADY_EXISTS", "UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED")
)
"""How a stream ends that would end so again: somebody has to change something."""


@dataclass(slots=True)
class _Running:
    """One turn that runs here."""

    agent: str
    desk: WorkerDesk
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
        turns: int = TURNS,
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
        self._line: Line | None = None
        self._frame_bytes = 0
        self._running: dict[str, _Running] = {}
        self._busy: Counter[str] = Counter()
        """Turns whose functions have not ended, those of earlier lines too."""
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopped = asyncio.Event()
        self._over: asyncio.Future[ClientError | None] | None = None
        self.welcomed = asyncio.Event()
        """Set while the server serves the agents."""

    @property
    def running(self) -> int:
        """Turns that run now."""
        return len(self._running)

    async def run(self) -> None:
        """Serves until `drain` is done. Raises ClientError when the server refuses the worker for good."""
        wait = AGAIN[0]
        while not self._stopped.is_set():
            trouble = await self._serve()
            if self._stopped.is_set() or (self._draining and not self._running):
                return
            if trouble is not None and trouble.code in _HOPELESS:
                raise trouble
            was_up = self._frame_bytes > 0
            wait = AGAIN[0] if was_up else min(2 * wait, AGAIN[1])
            self._frame_bytes = 0
            why = trouble.message if trouble else "it ended the stream"
            if not was_up and (hint := advice(why)):
                why += f"; {hint}"
            log.warning("the line to %s is broken (%s); dialling again in %g s", self._server, why, wait)
            try:
                async with asyncio.timeout(wait):
                    await self._stopped.wait()
            except TimeoutError:
                continue

    async def _serve(self) -> ClientError | None:
        """One line, until it is broken. Gives why."""
        self._over = asyncio.get_running_loop().create_future()
        self._line = line = Line(
            self._server, token=self._key(), ca=self._ca, cert=self._cert, hear=self._hear, ended=self._over.set_result
        )
        agents = [
            registration(agent.spec, 0 if self._draining else max(self._turns - self._busy[name], 0))
            for name, agent in self._agents.items()
        ]
        line.say(hello=wk.Hello(name=self._name, agents=agents))
        try:
            return await self._over
        finally:
            self.welcomed.clear()
            line.close()
            self._line = None
            for turn in tuple(self._running.values()):
                self._drop(turn, "the line to the server is broken")

    # What the server says ---------------------------------------------------------------------------------------

    def _hear(self, frame: wk.ConnectResponse) -> None:
        kind = frame.WhichOneof("frame")
        match kind:
            case "welcome":
                self._welcome(frame.welcome)
            case "turn_start":
                self._begin(frame.turn_start)
            case "committed" | "message_arrived" | "cancel" | "stopping" | "turn_over":
                turn = self._running.get(getattr(frame, kind).turn_id)
                if turn is not None:
                    self._tell(turn, frame)

    def _tell(self, turn: _Running, frame: wk.ConnectResponse) -> None:
        match frame.WhichOneof("frame"):
            case "committed":
                turn.desk.committed(frame.committed.number)
            case "message_arrived":
                turn.desk.arrived(frame.message_arrived)
            case "cancel":
                self._cancel(turn, frame.cancel.reason)
            case "stopping":
                turn.desk.stopping = True
            case "turn_over":
                log.warning(
                    "the server takes no more of a turn: %s", frame.turn_over.reason,
                    extra={"task": turn.desk.task_id, "agent": turn.agent},
                )  # fmt: skip
                self._drop(turn, frame.turn_over.reason)

    def _welcome(self, welcome: wk.Welcome) -> None:
        assert self._line is not None
        self._frame_bytes = welcome.max_frame_bytes
        seconds = [pace.ToNanoseconds() / 1e9 for pace in (welcome.heartbeat, welcome.lease)]
        self._line.keep(heartbeat=seconds[0], lease=seconds[1])
        if self._draining:
            return
        self.welcomed.set()
        log.info(
            "serving %s at %s", ", ".join(self._agents), self._server,
            extra={"principal": welcome.principal, "turns": self._turns},
        )  # fmt: skip

    # Turns ------------------------------------------------------------------------------------------------------

    def _begin(self, start: wk.TurnStart) -> None:
        line = self._line
        agent = self._agents.get(start.agent_id)
        assert line is not None
        if agent is None:
            line.say(turn_end=failed(start.turn_id, f'"{start.agent_id}" is no agent of this worker'))
            return
        desk = WorkerDesk(start, line.say, self._frame_bytes)
        work = self._turn(agent, desk, line)
        task = asyncio.get_running_loop().create_task(work, name=f"turn {start.turn_id} of task {start.task_id}")
        self._running[start.turn_id] = _Running(start.agent_id, desk, task)
        self._busy[start.agent_id] += 1
        self._idle.clear()

    async def _turn(self, agent: Agent, desk: WorkerDesk, line: Line) -> None:
        try:
            await desk.end(await (self._traced(agent, desk) if desk.traceparent else self._run(agent, desk)))
        except ProcessLost as lost:
            log.warning("a turn is given back: %s", str(lost) or "the process that ran it is gone",
                extra={"task": desk.task_id, "agent": desk.agent})  # fmt: skip
            await desk.give_back()
        except Exception:
            log.exception("a turn could not be ended", extra={"task": desk.task_id, "agent": desk.agent})
        finally:
            self._busy[desk.agent] -= 1
            if line is self._line:
                self._running.pop(desk.turn, None)
            # The line that there is now began with one turn fewer for each that had not ended by then.
            if self._line is not None and not self._draining:
                self._line.say(credit=wk.Credit(agent_id=desk.agent, turns=1))
            if not self._running:
                self._idle.set()

    async def _run(self, agent: Agent, desk: WorkerDesk) -> Ending | None:
        """How the turn ended; None when it stopped, as it was asked to."""
        try:
            return await agent.take_turn(desk)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            return None

    async def _traced(self, agent: Agent, desk: WorkerDesk) -> Ending | None:
        """The same as a part of the trace that the server names, and as a span of it where somebody records those.
        To be called in an asyncio task of its own."""
        if self._tracer is None:
            trace.CURRENT.set(desk.traceparent)
            return await self._run(agent, desk)
        parent, began = trace.read(desk.traceparent), time.perf_counter()
        context = self._tracer.begin(parent)
        if not trace.is_recorded(context):
            trace.CURRENT.set(context)
            return await self._run(agent, desk)
        self._tracer.enter(context)
        ending = None
        try:
            ending = await self._run(agent, desk)
        finally:
            failed = ending is not None and ending.status.state == states.FAILED
            self._tracer.record(
                f"turn {desk.agent}", "consumer", context, parent, time.perf_counter() - began,
                ("dragoman.agent", "dragoman.task", "dragoman.attempt"), (desk.agent, desk.task_id, desk.attempt),
                "the turn failed" if failed else "",
            )  # fmt: skip
        return ending

    def _cancel(self, turn: _Running, reason: str) -> None:
        if not turn.desk.cancelled:
            turn.desk.cancelled, turn.desk.cancel_reason = True, reason
            turn.task.cancel()

    def _drop(self, turn: _Running, why: str) -> None:
        """The turn is over at the server: whoever still works on it works for nothing."""
        self._running.pop(turn.desk.turn, None)
        turn.desk.over(why)
        self._cancel(turn, "fenced")
        if not self._running:
            self._idle.set()

    # The end ----------------------------------------------------------------------------------------------------

    async def drain(self, limit: float, report: Callable[[int], None] | None = None) -> None:
        """Takes no more turns, gives those that run `limit` seconds to end, gives the others back, and hangs up.

        `report` is told once a second how many turns are left.
        """
        self._draining = True
        if self._line is not None:
            self._line.say(drain=wk.Drain())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit
        while self._running and loop.time() < deadline:
            if loop.time() >= deadline - STOPPING:
                for turn in self._running.values():
                    turn.desk.stopping = True
            if report is not None:
                report(len(self._running))
            await self._wait_idle(min(1.0, max(0.0, deadline - loop.time())))
        for turn in tuple(self._running.values()):
            self._cancel(turn, "drain")
        await self._wait_idle(LAST_WORDS)
        self._stopped.set()
        if self._line is not None and self._over is not None:
            self._line.finish()
            try:
                async with asyncio.timeout(LAST_WORDS):
                    await asyncio.wait([self._over])
            except TimeoutError:
                pass
            if not self._over.done():
                self._over.set_result(None)

    async def _wait_idle(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            pass
