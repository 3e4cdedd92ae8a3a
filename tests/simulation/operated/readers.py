"""Followers that stop reading, over connections whose buffers are full then, with the checks of the HTTP server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from tests.chaos.history import Entry
from tests.simulation.followers import SimulatedFollower, start_following
from tests.simulation.loop import HostLoop
from tests.simulation.server import SimulatedServer
from tests.simulation.stage import ServerStream, Stage

from dragoman.bindings.http.connections import OpenConnection
from dragoman.bindings.options import HttpTimeouts
from dragoman.core.task.log import Event
from dragoman.runtime import Runtime
from dragoman.runtime.feeds import EventStream

TIMEOUTS: Final = HttpTimeouts(stalled=20.0)
HIGH_WATER: Final = 64 * 1024
LOW_WATER: Final = 16 * 1024
"""Unread bytes of a connection above which its server writes no more, and down to which it waits then (asyncio)."""
FOR_EVER: Final = 1e6
READ_SECONDS: Final = 24.0
"""Seconds for which a slow follower is slow, unless it reads nothing at all."""
BULK: Final = "bulk 24 48000"
"""More bytes than a feed keeps for readers that are almost up to date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRead(Entry):
    """A connection of a slow follower has ended.

    read: when the client took something last. since: when bytes were unread from then on; 0 if there were none.
    kept: the most bytes of events that the feed of its task had in memory.
    """

    task: str
    follower: int
    read: float
    since: float
    dropped: bool
    kept: int


class SlowConnection(OpenConnection):
    """What the HTTP server knows of a connection while it streams."""

    def __init__(self, stream: SlowStream) -> None:
        connections: Any = SimpleNamespace(timeouts=TIMEOUTS, remove=lambda _: None)
        self._connections = connections
        self.transport = stream

    def check_timeouts(self, now: float) -> None:
        self.check_client(now)


class SlowStream(ServerStream):
    """A stream with a buffer of limited size, and a client that pauses."""

    def __init__(
        self,
        stage: Stage,
        server: SimulatedServer,
        work: Callable[[Runtime], EventStream],
        follower: SimulatedFollower,
        pause: Callable[[int], float],
    ) -> None:
        """`pause`: seconds until the client reads on, by the number of events that wait for it."""
        super().__init__(stage, server, work)
        self._follower = follower
        self._pause = pause
        self._unread = 0
        self._read_at = stage.now
        self._unread_since = 0.0
        self._drained: asyncio.Future[None] | None = None
        self._connection = SlowConnection(self)
        self._dropped = False
        self._kept = 0

    # The server ------------------------------------------------------------------------------------------------------

    def get_write_buffer_size(self) -> int:
        """Bytes that the client has not read."""
        return self._unread

    def abort(self) -> None:
        """The server closes the connection. aiohttp cancels its handler."""
        self._dropped = True
        self._deliver(self._break)

    def _break(self) -> None:
        """The client learns that the connection broke, also if it has not read the end of the stream."""
        self._ended = False
        self.cut()

    async def _serve(self, runtime: Runtime) -> None:
        """Serves the stream, and checks its connection as the server checks all of its connections."""
        loop = asyncio.get_running_loop()
        serving = loop.create_task(super()._serve(runtime))
        try:
            while not serving.done() or self._unread:
                await asyncio.sleep(TIMEOUTS.check_interval)
                self._connection.check_timeouts(loop.time())
                if self._dropped:
                    return
        finally:
            serving.cancel()
            entry = SlowRead(
                at=self._stage.now,
                task=self._follower.task,
                follower=self._follower.number,
                read=self._read_at,
                since=self._unread_since,
                dropped=self._dropped,
                kept=self._kept,
            )
            self._stage.record.add(entry)

    async def _send(self, runtime: Runtime, batch: Sequence[Event]) -> None:
        if not self._unread:
            self._unread_since = self._stage.now
        self._unread += sum(len(event.data) for event in batch)
        self._deliver(partial(self._receive, list(batch)))
        for feed in runtime.feeds.by_task.values():
            self._kept = max(self._kept, sum(len(event.data) for event in feed._window))
        if self._unread > HIGH_WATER:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    # The client ------------------------------------------------------------------------------------------------------

    def _take(self) -> Event:
        event = super()._take()
        stage = self._stage
        self._read_at = stage.now
        stage.world.after(stage.delay(), self._acknowledge, len(event.data), self._server.host)
        return event

    def _acknowledge(self, size: int, host: HostLoop | None) -> None:
        self._unread -= size
        self._unread_since = self._stage.now if self._unread else 0.0
        if self._drained is not None and self._unread <= LOW_WATER and not self._drained.done():
            self._connection.resume_writing()
            self._drained.set_result(None)

    async def _wait(self) -> None:
        """Waits until the client reads on. What a broken connection had is lost."""
        deadline = asyncio.get_running_loop().time() + self._pause(len(self._received))
        while self._error is None and asyncio.get_running_loop().time() < deadline:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()

    async def events(self) -> AsyncGenerator[Event, None]:
        async with aclosing(super().events()) as events:
            async for event in events:
                yield event
                await self._wait()
                if self._error is not None:
                    raise self._error


class SlowFollower(SimulatedFollower):
    """A follower whose first connection stops reading: for ever, or for some seconds again and again."""

    def _open(self, server: SimulatedServer, work: Callable[[Runtime], EventStream]) -> ServerStream:
        if self._cursor:
            return super()._open(server, work)
        rng = random.Random(self.number)
        how, until = rng.choice(("never", "in bursts", "slowly", "sometimes")), self._stage.now + READ_SECONDS

        def pause(waiting: int) -> float:
            if how == "never":
                return FOR_EVER
            if (
                self._stage.now > until
                or (how == "in bursts" and waiting)
                or (how == "sometimes" and rng.random() < 0.6)
            ):
                return 0.0
            return rng.uniform(0.1, 1.0) if how == "slowly" else rng.uniform(1.0, 8.0)

        return SlowStream(self._stage, server, work, self, pause)


def follow_slowly(stage: Stage, agent: str, task: str, seed: float) -> None:
    """Starts to follow a task, and to stop reading."""
    start_following(SlowFollower(stage, agent, task, seed, None))
