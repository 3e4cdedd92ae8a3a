"""The bus between processes.

What is said is said here first, by the bus of this process, and then to the others: whoever follows a task where it
runs waits for no network, and loses nothing when NATS is away. Nothing of our own comes back to us.

Jobs, events and news may be lost, for the store has them, and is asked every few seconds. Signals are nowhere else, so
they are kept for a while, and said again to everybody who comes (back).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, TypeVar

from dragoman.bus.nats import frames
from dragoman.bus.nats.address import Address
from dragoman.bus.nats.connection import CONNECT, Connection
from dragoman.bus.nats.frames import Hello, Subjects, Unreadable
from dragoman.core.log import Event, TaskRef
from dragoman.ports import Bus, Job, News, Signal, Stop

log = logging.getLogger("dragoman.bus")

T = TypeVar("T")

HELLO: Final = 10.0
"""Seconds between two signs of life of a server."""

MISSED: Final = 3
"""Signs of life that may be missing before a server is gone."""

KEPT: Final = 10_000
"""Signals that are said again to who comes back."""

LINGER: Final = 30.0
"""Seconds for which they are once NATS had them: others may have been cut off in this moment, and come back. No longer,
since whoever was told that a task goes on may have gone on with it."""

PATIENCE: Final = 600.0
"""Seconds for which they wait for NATS while it is away."""

WORKERS: Final = "workers"
"""The queue group: each job goes to one of it."""


@asynccontextmanager
async def open_bus(here: Bus, address: Address, *, prefix: str, epoch: str, server: str = "") -> AsyncIterator[NatsBus]:
    """The bus of a store's servers, for as long as the block runs; connected, if that can be done at once.

    here: the bus of this process. epoch: the store's. server: a name that no other has; drawn when there is none.
    """
    bus = NatsBus(here, address, prefix=prefix, epoch=epoch, server=server or os.urandom(8).hex())
    await bus.start()
    try:
        yield bus
    finally:
        await bus.close()


class NatsBus:
    """Implements `dragoman.ports.Bus` for processes that have one NATS, one prefix and one store."""

    def __init__(self, here: Bus, address: Address, *, prefix: str, epoch: str, server: str) -> None:
        self._here = here
        self._prefix = prefix
        self._subjects = Subjects(prefix, epoch)
        self._me = Hello(server, epoch, fresh=False)
        self._others: dict[str, tuple[str, float]] = {}
        """Servers of other stores on our prefix: epoch, and when they were heard."""
        self._signals: deque[tuple[float, bytes]] = deque(maxlen=KEPT)
        """What may have to be said again, and until when."""
        self._connection = Connection(address, f"dragoman {server}", self._connected)
        self._beating: asyncio.Task[None] | None = None
        self._clock = asyncio.get_running_loop().time

    async def start(self) -> None:
        """Begins to connect; returns when there was an attempt."""
        await self._connection.listen(self._subjects.hello, self._read(frames.read_hello, self._heard))
        self._connection.open()
        self._beating = asyncio.create_task(self._beat(), name="bus presence")
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT):
                await self._connection.tried.wait()
        await self._connection.settled()

    @property
    def trouble(self) -> str:
        if self._others:
            return "servers of another store use its prefix"
        return self._connection.trouble

    # Events -----------------------------------------------------------------------------------------------------

    def publish(self, task: TaskRef, events: Sequence[Event]) -> None:
        self._here.publish(task, events)
        if self._connection.is_up:
            subject = self._subjects.events(task)
            for message in frames.events(events, self._connection.limit):
                self._connection.send(subject, message)

    async def follow(self, task: TaskRef, deliver: Callable[[Sequence[Event]], None]) -> Stop:
        arrived = self._read(frames.read_events, deliver)
        stops = [await self._here.follow(task, deliver)]
        return await self._listen(stops, [self._subjects.events(task)], arrived)

    # Jobs -------------------------------------------------------------------------------------------------------

    def offer(self, job: Job) -> None:
        """Tells one worker here, which costs nothing when it has no room, and one elsewhere."""
        self._here.offer(job)
        self._connection.send(self._subjects.jobs(job.agent), frames.job(job))

    async def work(self, agents: Collection[str], take: Callable[[Job], None]) -> Stop:
        stops = [await self._here.work(agents, take)]
        subjects = [self._subjects.jobs(agent) for agent in agents]
        return await self._listen(stops, subjects, self._read(frames.read_job, take), WORKERS)

    # Signals ----------------------------------------------------------------------------------------------------

    def signal(self, task: TaskRef, signal: Signal) -> None:
        self._here.signal(task, signal)
        message = frames.signal(task, signal)
        self._signals.append((self._clock() + (LINGER if self._connection.is_up else PATIENCE), message))
        self._connection.send(self._subjects.signals, message)

    async def obey(self, handle: Callable[[TaskRef, Signal], None]) -> Stop:
        def arrived(said: tuple[TaskRef, Signal]) -> None:
            handle(*said)

        stops = [await self._here.obey(handle)]
        return await self._listen(stops, [self._subjects.signals], self._read(frames.read_signal, arrived))

    # News -------------------------------------------------------------------------------------------------------

    def announce(self, news: News) -> None:
        """On the subject of signals, which servers of older versions, and their grants, know: they leave it unread."""
        self._here.announce(news)
        self._connection.send(self._subjects.signals, frames.news(news))

    async def attend(self, handle: Callable[[News], None]) -> Stop:
        stops = [await self._here.attend(handle)]
        return await self._listen(stops, [self._subjects.signals], self._read(frames.read_news, handle))

    def _repeat(self) -> None:
        """Says again what somebody may not have heard."""
        now = self._clock()
        kept = [(min(until, now + LINGER), message) for until, message in self._signals if until > now]
        self._signals = deque(kept, KEPT)
        for _, message in kept:
            self._connection.send(self._subjects.signals, message)

    # Presence ---------------------------------------------------------------------------------------------------

    def _connected(self) -> None:
        """Whoever is there learns that we missed something, and what we said while we were away."""
        self._say_hello(fresh=True)
        self._repeat()

    def _say_hello(self, *, fresh: bool) -> None:
        self._connection.send(self._subjects.hello, frames.hello(self._me._replace(fresh=fresh)))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HELLO)
            self._say_hello(fresh=False)
            self._forget()

    def _forget(self) -> None:
        """Strangers go without a word, so they are gone when they have been silent for long."""
        if not self._others:
            return
        until = self._clock() - MISSED * HELLO
        self._others = {server: said for server, said in self._others.items() if said[1] > until}
        if not self._others:
            log.info("nobody else uses the prefix %s of the bus any more", self._prefix)

    def _heard(self, said: Hello) -> None:
        if said.epoch == self._me.epoch:
            if said.fresh and said.server != self._me.server:
                self._repeat()
            return
        if not self._others:
            log.error(
                "a server of another store (epoch %s, ours is %s) uses the prefix %s on the same bus: servers of one "
                "cluster have one --store, and each cluster its own --bus-prefix",
                said.epoch,
                self._me.epoch,
                self._prefix,
            )
            self._say_hello(fresh=False)  # so that it knows as well
        self._others[said.server] = (said.epoch, self._clock())

    # Both sides -------------------------------------------------------------------------------------------------

    async def _listen(
        self, stops: list[Stop], subjects: Sequence[str], arrived: Callable[[bytes], None], queue: str = ""
    ) -> Stop:
        """Listens to others as well; `stops` end what was begun here, which they do when this is cancelled."""
        try:
            for subject in subjects:
                stop = await self._connection.listen(subject, arrived, queue)
                stops.append(stop)
            await self._connection.settled()
        except BaseException:
            await _all(stops)
            raise
        return partial(_all, stops)

    def _read(self, read: Callable[[bytes], T], then: Callable[[T], None]) -> Callable[[bytes], None]:
        def arrived(message: bytes) -> None:
            try:
                said = read(message)
            except Unreadable:  # of another version: as good as lost
                log.debug("a message on the bus cannot be read: %s", message[:64].hex())
                return
            then(said)

        return arrived

    async def settled(self) -> None:
        """Returns when NATS has what was said here, and we have what it had for us; or when it is away."""
        await self._connection.sent()
        await self._connection.settled()

    async def close(self) -> None:
        await self._here.close()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait((self._beating,))
        await self._connection.close()


async def _all(stops: Sequence[Stop]) -> None:
    for stop in stops:
        await stop()
