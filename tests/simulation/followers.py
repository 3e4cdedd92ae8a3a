"""Followers of a simulation: each follows one task to its end, over many connections and servers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from tests.chaos.history import Acknowledged, Closed, Cut, Got, Opened, Seen, shape
from tests.simulation.receivers import event_digest
from tests.simulation.server import SimulatedServer
from tests.simulation.stage import NoAnswer, ServerStream, Stage, call_of, reason_of

from dragoman.core.errors import A2AError, Unavailable, UnsupportedOperation
from dragoman.core.task import states
from dragoman.core.task.log import Event
from dragoman.runtime import Runtime
from dragoman.runtime.feeds import EventStream
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

RETRY_SECONDS: Final = 0.3
MAX_STARTS: Final = 6
"""Tries of a streaming send with a key."""


@dataclass(frozen=True, slots=True)
class Start:
    """A streaming send, whose first event names the task to follow."""

    request: pb.SendMessageRequest
    key: str
    op: int


def follow(stage: Stage, agent: str, task: str, seed: float, start: Start | None = None) -> None:
    """Starts to follow a task; `start` is the send that creates it."""
    start_following(SimulatedFollower(stage, agent, task, seed, start))


def start_following(follower: SimulatedFollower) -> None:
    """Starts a follower."""
    stage = follower.stage
    watching = asyncio.get_running_loop().create_task(follower.watch())
    stage.following[watching] = lambda: follower.task
    watching.add_done_callback(lambda done: stage.following.pop(done))


class SimulatedFollower:
    """Follows one task over many connections."""

    def __init__(self, stage: Stage, agent: str, task: str, seed: float, start: Start | None) -> None:
        self.stage = self._stage = stage
        self._agent = agent
        self.task = task
        self._start = start
        self._rng = random.Random(seed)
        self.number = stage.number()
        self._cursor = ""
        self._at: int | None = None
        self._state = 0

    async def watch(self) -> None:
        """Connects again and again until the task has ended."""
        starts = 0
        while True:
            if self._start is not None and not self.task:
                starts += 1
                if starts > (MAX_STARTS if self._start.key else 1):
                    return
            if await self._read():
                return
            await asyncio.sleep(self._rng.random() * RETRY_SECONDS)

    async def _read(self) -> bool:
        """Reads one connection. True once there is nothing more to follow."""
        stage = self._stage
        server = await stage.server()
        is_send = self._start is not None and not self.task
        if self.task:
            after = self._at if self._cursor else None
            stage.record.add(Opened(at=stage.now, follower=self.number, task=self.task, binding="", after=after))
        stream = self._open(server, self._sending if is_send else self._subscribing)
        try:
            async with aclosing(stream.events()) as events:
                async for event in events:
                    self._see(event)
                    if not stage.over and self._rng.random() < stage.plan.profile.cuts:
                        return False
        except (NoAnswer, Unavailable):
            return False
        except UnsupportedOperation:
            return not self._cursor and await self._look()
        except A2AError as error:
            if self.task:
                self._close(f"refused: {reason_of(error)}")
            return True
        if self._state in states.TERMINAL:
            self._close("end")
            return True
        if not is_send:
            stage.record.add(Cut(at=stage.now, follower=self.number))
        return False

    def _open(self, server: SimulatedServer, work: Callable[[Runtime], EventStream]) -> ServerStream:
        """A new stream."""
        return ServerStream(self._stage, server, work)

    def _sending(self, runtime: Runtime) -> EventStream:
        assert self._start is not None
        call = call_of(runtime, self._agent, key=self._start.key)
        return runtime.operations.send.send_streaming_message(call, self._start.request)

    def _subscribing(self, runtime: Runtime) -> EventStream:
        call = call_of(runtime, self._agent, cursor=self._cursor)
        return runtime.operations.read.subscribe_to_task(call, pb.SubscribeToTaskRequest(id=self.task))

    def _see(self, event: Event) -> None:
        stage, form, state = self._stage, "", event.state
        if event.data[0] == 0x0A:  # field 1 of StreamResponse: a Task
            task = pb.StreamResponse.FromString(event.data).task
            form, state = shape(task), task.status.state
            if not self.task:
                self.task = task.id
                stage.record.add(Opened(at=stage.now, follower=self.number, task=self.task, binding=""))
                assert self._start is not None
                stage.record.add(Acknowledged(at=stage.now, op=self._start.op, task=self.task, state=state))
        self._cursor, self._at, self._state = event.cursor, event.sequence, state or self._state
        stage.record.add(
            Seen(
                at=stage.now,
                follower=self.number,
                sequence=event.sequence,
                digest=event_digest(event.data),
                state=state,
                shape=form,
            )
        )

    async def _look(self) -> bool:
        """Reads the state for a follower without a cursor whose task has ended."""
        stage, request = self._stage, pb.GetTaskRequest(id=self.task)
        try:
            data = await stage.call(
                await stage.server(),
                lambda runtime: runtime.operations.read.get_task(call_of(runtime, self._agent), request),
            )
        except (NoAnswer, Unavailable):
            return False
        except A2AError as error:
            stage.record.add(Got(at=stage.now, task=self.task, reason=reason_of(error)))
            return False
        state = pb.Task.FromString(data).status.state
        stage.record.add(Got(at=stage.now, task=self.task, state=state))
        if state in states.TERMINAL:
            self._close("gone")
        return state in states.TERMINAL

    def _close(self, why: str) -> None:
        self._stage.record.add(Closed(at=self._stage.now, follower=self.number, why=why))
