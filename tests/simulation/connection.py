"""A server's connection to the shared store: calls take time, fail, and stay without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from tests.simulation.loop import HostLoop, World
from tests.simulation.memory import queries
from tests.simulation.memory.database import MemoryDatabase
from tests.simulation.memory.store import MemoryStore, settle
from tests.simulation.memory.tables import MemoryTables
from tests.simulation.plan import Profile

from dragoman.core.errors import Unavailable
from dragoman.core.task.log import Append, Appended, AppendRejected, TaskRef

T = TypeVar("T")

READS_AT_ONCE: Final = 0.6
"""Reads that are answered before anything else happens, as most are on SQLite."""

ANSWER_TIMEOUT: Final = 3.0
"""Seconds after which a call without an answer fails."""


class Disk:
    """What all connections share: the database, its faults, and when it is away."""

    def __init__(self, world: World, database: MemoryDatabase, tables: MemoryTables, profile: Profile) -> None:
        self.world = world
        self.database = database
        self.tables = tables
        self.profile = profile
        self.away = False
        """Whether the database is away for everyone."""
        self.unreachable: set[str] = set()
        """The servers that do not reach it."""
        self.under_way = 0
        """Writes that have not arrived, also those of killed servers."""
        self.on_failure: Callable[[TaskRef], None] = lambda _: None
        """Called for the task of an append that fails."""
        self.on_lapse: Callable[[float, float], None] = lambda began, seconds: None
        """Called after a renewal that came late, with the time of the one before, and the seconds since."""


class Connection(MemoryStore):
    """Implements `dragoman.ports.Store` for one server. Writes arrive, and are answered, in the order of the calls."""

    def __init__(self, disk: Disk, host: HostLoop) -> None:
        super().__init__(disk.database, disk.tables)
        self._disk = disk
        self._host = host
        self._random = disk.world.random
        self._last_arrival = self._last_answer = 0.0

    def call(self, work: Callable[[], T], *, is_write: bool) -> asyncio.Future[T]:
        return self._send(work, is_write=is_write)

    def append(self, change: Append) -> asyncio.Future[Appended]:
        return self._send(partial(self.database.append, change, self.buckets), is_write=True, task=change.task)

    @property
    def on_lapse(self) -> Callable[[float, float], None]:
        """See `Disk`."""
        return self._disk.on_lapse

    async def renew(self, session: int, lease: float) -> int:
        """As `renew_session`, with the delays and faults of every call."""
        return await self._send(lambda: queries.renew_session(self.database, session, lease), is_write=True)

    def _send(self, work: Callable[[], T], *, is_write: bool, task: TaskRef | None = None) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._host.create_future()
        disk, rng = self._disk, self._random
        profile, world = disk.profile, disk.world
        chance = world.chance
        if not is_write and chance() < READS_AT_ONCE and not (disk.away or self._host.name in disk.unreachable):
            settle(future, work)
            return future
        delay = 0.0002 + 0.002 * chance()
        if profile.slow_calls and chance() < profile.slow_calls:
            delay = profile.slowest_call * chance()
        arrival = world.now + delay
        fate = ""
        if is_write:
            disk.under_way += 1
            arrival = self._last_arrival = max(arrival, self._last_arrival + 1e-9)
            if profile.failures and chance() < profile.failures:
                fate = rng.choice(("refused", "lost", "unanswered"))
        elif profile.failures and chance() < profile.failures:
            fate = "refused"
        world.after(arrival - world.now, self._arrive, future, work, fate, task, is_write)
        return future

    def _arrive(
        self, future: asyncio.Future[Any], work: Callable[[], Any], fate: str, task: TaskRef | None, is_write: bool
    ) -> None:
        disk, world = self._disk, self._disk.world
        disk.under_way -= is_write
        if self.closed or future.done():
            # A caller that went away has no effect on its write.
            if not self.closed:
                _forget(work)
            return
        if disk.away or self._host.name in disk.unreachable:
            fate = fate if fate == "lost" else "refused"
        if fate and task is not None:
            disk.on_failure(task)
        if fate == "refused":
            world.after(self._random.uniform(0.0, 0.1), _fail, future, Unavailable("the store does not respond"))
        elif fate:
            if fate == "unanswered":
                _forget(work)
            unknown = Unavailable("the store stopped responding; the write may have happened")
            unknown.outcome_unknown = True
            world.after(self._random.uniform(0.001, ANSWER_TIMEOUT), _fail, future, unknown)
        elif is_write:
            try:
                result, failure = work(), None
            except Exception as error:
                result, failure = None, error
            answer = world.now + 0.0001 + 0.001 * world.chance()
            self._last_answer = max(answer, self._last_answer + 1e-9)
            world.after(self._last_answer - world.now, _answer, future, result, failure)
        else:
            settle(future, work)

    def vanish(self) -> None:
        """Its server was killed: what has not arrived is lost, or arrives still, as chance has it."""
        self.closed = self._random.random() < 0.5


def _forget(work: Callable[[], Any]) -> None:
    """Performs a write whose caller has gone, so that a rejection is dropped."""
    with suppress(AppendRejected):
        work()


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _answer(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
