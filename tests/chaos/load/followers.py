"""Followers: each follows one task to its end, over random bindings and many connections."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Final

from tests.chaos.history import Closed, Cut, Got, Opened, Recorder, Seen, digest, shape
from tests.chaos.pace import ORDINARY, Pace
from tests.chaos.targets.target import Target
from tests.load.requests import Request
from tests.load.transports import BINDINGS, Place

from dragoman.client import ClientError
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CUT: Final = 0.05
"""Probability that a follower disconnects after an event."""


class Stage:
    """Shared state of a run: the target, the clock, the history, and the connected followers."""

    def __init__(self, victim: Target, recorder: Recorder, seed: int, pace: Pace = ORDINARY) -> None:
        self.victim = victim
        self.seed = seed
        self.pace = pace
        self.reading: set[asyncio.Task[bool]] = set()
        self.following: set[asyncio.Task[None]] = set()
        self.over = asyncio.Event()
        self.hook: Callable[[int], str] | None = None
        """Returns the URL of a webhook by number; None without receivers."""
        self._recorder = recorder
        self.origin = time.monotonic()
        """The start of the run on the clock that all processes share."""
        self.began = time.time()
        self._numbers = 0

    @property
    def now(self) -> float:
        return round(time.monotonic() - self.origin, 3)

    def number(self) -> int:
        """Returns a unique number."""
        self._numbers += 1
        return self._numbers

    @property
    def record(self) -> Recorder:
        return self._recorder

    def storm(self) -> int:
        """Cuts all connections at once; returns their number."""
        readers = tuple(self.reading)
        for reader in readers:
            reader.cancel()
        return len(readers)

    async def read(self, read: Callable[[], Coroutine[None, None, bool]], name: str) -> bool:
        """Reads a connection to its end, once the server is up. Returns its result; False if a storm cut it."""
        await self.victim.up.wait()
        reader = asyncio.create_task(read(), name=name)
        self.reading.add(reader)
        try:
            await asyncio.wait([reader])
        finally:
            reader.cancel()
            self.reading.discard(reader)
        return not reader.cancelled() and reader.result()

    def follow(self, task: str, tenant: str, started: Start | None = None, cut: float = CUT) -> asyncio.Task[None]:
        """Starts to follow a task; `started` is the stream of the send that created it."""
        follower = TaskFeed(self, task, tenant, started, cut)
        watching = asyncio.create_task(follower.watch(), name=f"follower {follower.number}")
        self.following.add(watching)
        watching.add_done_callback(self.following.discard)
        return watching


class Start:
    """A streaming send, whose first event names the task to follow."""

    def __init__(self, request: pb.SendMessageRequest, binding: str, key: str = "") -> None:
        self.request = request
        self.binding = binding
        self.key = key
        self.task: asyncio.Future[pb.Task | None] = asyncio.get_running_loop().create_future()
        """The Task in the first event; None if the stream broke before it."""


class TaskFeed:
    """Follows one task over many connections."""

    def __init__(self, stage: Stage, task: str, tenant: str, started: Start | None = None, cut: float = CUT) -> None:
        """cut: the probability that it disconnects after an event."""
        self.number = stage.number()
        self._stage = stage
        self._task = task
        self._tenant = tenant
        self._started = started
        self._cut = cut
        self._rng = random.Random(f"{stage.seed}/{self.number}")
        self._cursor = ""
        self._at: int | None = None
        self._state_seen = 0

    async def watch(self) -> None:
        """Reconnects until the task has ended."""
        while True:
            if await self._stage.read(self._read, f"reader of {self.number}"):
                return
            if self._started is not None and not self._task:
                self._started.task.set_result(None)
                return
            self._started = None

    async def _read(self) -> bool:
        """Reads one connection. True once the task has been followed to its end."""
        binding = self._started.binding if self._started else self._rng.choice(BINDINGS)
        if self._task:
            self._open(binding)
        try:
            if await self._stream(binding):
                return False
        except ClientError as error:
            if not self._task:
                return False
            if error.reason == "UNSUPPORTED_OPERATION" and not self._cursor:  # the task has ended
                return await self._look()
            if error.reason and error.reason != "UNAVAILABLE":
                self._close(f"refused: {error}")
                return True
            return False
        except TimeoutError:
            return False
        if self._started is not None and not await self._ended():  # the stream of a turn ended; the task continues
            return False
        if self._started is None and self._state_seen not in states.TERMINAL:
            self._stage.record.add(Cut(at=self._stage.now, follower=self.number))
            return False
        self._close("end")
        return True

    async def _stream(self, binding: str) -> bool:
        """Reads events. True if this side disconnected."""
        transports = self._stage.victim.client_transports
        assert transports is not None
        rpc, request, key = "SubscribeToTask", pb.SubscribeToTaskRequest(tenant=self._tenant, id=self._task), ""
        requested_request: Request = request
        if self._started is not None:
            rpc, requested_request, key = "SendStreamingMessage", self._started.request, self._started.key
        async with aclosing(transports.stream(binding, rpc, requested_request, key, self._cursor)) as events:
            async for place in events:
                self._see(place, binding)
                if self._rng.random() < self._cut:
                    return True
        return False

    def _see(self, place: Place, binding: str) -> None:
        event = place.event
        if event.HasField("task"):
            if not self._task:
                self._task = event.task.id
                self._open(binding)
            if self._started is not None and not self._started.task.done():
                self._started.task.set_result(event.task)
            state, form = event.task.status.state, shape(event.task)
        else:
            state, form = event.status_update.status.state, ""
        self._cursor, self._at, self._state_seen = place.cursor, place.sequence, state or self._state_seen
        seen = Seen(
            at=self._stage.now,
            follower=self.number,
            sequence=place.sequence,
            digest=digest(event),
            state=state,
            shape=form,
        )
        self._stage.record.add(seen)

    async def _ended(self) -> bool:
        """Whether the task has ended, not only a turn."""
        return await self._state() in states.TERMINAL

    async def _look(self) -> bool:
        """Reads the final state for a follower without a cursor whose task has ended."""
        state = await self._state()
        if state in states.TERMINAL:
            self._close("gone")
        return state in states.TERMINAL

    async def _state(self) -> int:
        transports = self._stage.victim.client_transports
        assert transports is not None
        try:
            request = pb.GetTaskRequest(tenant=self._tenant, id=self._task)
            task = await transports.call(self._rng.choice(BINDINGS), "GetTask", request, pb.Task)
        except (ClientError, TimeoutError) as error:
            reason = error.reason if isinstance(error, ClientError) else ""
            if reason:
                self._stage.record.add(Got(at=self._stage.now, task=self._task, reason=reason))
            return 0
        self._stage.record.add(Got(at=self._stage.now, task=self._task, state=task.status.state))
        return task.status.state

    def _open(self, binding: str) -> None:
        after = self._at if self._cursor else None
        opened = Opened(at=self._stage.now, follower=self.number, task=self._task, binding=binding, after=after)
        self._stage.record.add(opened)

    def _close(self, why: str) -> None:
        self._stage.record.add(Closed(at=self._stage.now, follower=self.number, why=why))
