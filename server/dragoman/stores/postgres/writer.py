"""Group commit: one coroutine takes whatever waits, writes it in one transaction, and wakes each caller after that.

A change whose guard does not hold is refused alone. Should the database itself refuse an item, which no guard foresaw,
the batch is undone and each item tried on its own, so that its neighbours never pay for it; nobody was told of the
batch before. A server that is away is asked again for a while: until a commit is sent, nothing is lost by that.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from asyncpg import Connection

from dragoman.core.counting import Commits
from dragoman.core.errors import Unavailable
from dragoman.core.log import Append, Appended
from dragoman.core.pace import Pace
from dragoman.stores.postgres.batch import Batch, Result, names_of
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.folding import Growth
from dragoman.stores.postgres.standing import SLOTS
from dragoman.stores.postgres.trouble import explain

log = logging.getLogger("dragoman.store")

BATCH: Final = 512
"""Most changes in one commit: bounds how long the first of them waits for the last."""


@dataclass(slots=True)
class Waiting:
    """A change, and who waits for it."""

    change: Append
    future: asyncio.Future[Appended]


class Writer:
    """The one writer of this process, on the event loop on which it is made."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.slot = secrets.randbelow(SLOTS)
        """Whose counters this process adds to."""
        self.commits = Commits()
        self._growth = Growth()
        self._pace = Pace()
        self._queue: deque[Waiting] = deque()
        self._some = asyncio.Event()
        self._closed = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name="the store's writer")

    def submit(self, change: Append) -> asyncio.Future[Appended]:
        """Queues a change for the next commit."""
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_exception(RuntimeError("the store is closed"))
        else:
            self._queue.append(Waiting(change, future))
            self._some.set()
        return future

    async def close(self) -> None:
        """Commits what waits. May be called twice."""
        self._closed = True
        self._some.set()
        await asyncio.shield(self._task)

    async def _run(self) -> None:
        while self._queue or not self._closed:
            await self._some.wait()
            self._some.clear()
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
                await self._write(batch)

    async def _write(self, batch: Sequence[Waiting]) -> None:
        try:
            results: Sequence[Result | Exception] = await self._together(batch)
        except Unavailable as error:
            log.error("a batch of %d writes failed: %s", len(batch), explain(error.__cause__ or error))
            results = [error] * len(batch)
        except Exception:
            if len(batch) > 1:
                log.warning("a batch of %d writes was undone; trying each alone", len(batch))
            results = [await self._alone(one) for one in batch]
        for one, result in zip(batch, results, strict=True):
            if one.future.done():  # whoever waited was cancelled; what is written stays written
                continue
            if isinstance(result, Exception):
                one.future.set_exception(result)
            else:
                one.future.set_result(result)

    async def _alone(self, one: Waiting) -> Result | Exception:
        try:
            (result,) = await self._together([one])
            return result
        except Exception as error:
            log.exception("a write failed")
            return error

    async def _together(self, batch: Sequence[Waiting]) -> Sequence[Result]:
        changes, began = [one.change for one in batch], time.perf_counter()
        try:
            results = await self._database.commit(partial(self._apply, changes), names_of(changes))
        except Exception:
            self.commits.failed += 1
            raise
        self.commits.changes.add(len(batch))
        self.commits.seconds.add(time.perf_counter() - began)
        return results

    async def _apply(self, changes: Sequence[Append], connection: Connection) -> list[Result]:
        return await Batch(connection, self.slot, self._growth, self._pace).run(changes, self._database.at)
