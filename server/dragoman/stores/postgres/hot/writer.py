"""Group commit: one coroutine writes all waiting changes in one transaction, and then wakes the callers.

A change whose guard fails is rejected alone. If the database itself fails on an item, which no guard foresees, the
batch is rolled back and each item is retried alone, so its neighbors are not affected; no caller had a result of the
batch before. An unreachable server is retried for a while: before a commit is sent, nothing can be lost.
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
from itertools import islice
from typing import Final

from asyncpg import Connection

from dragoman.core.counters import CommitCounters
from dragoman.core.errors import Unavailable, lacks_memory, out_of_memory
from dragoman.core.limits.admission import TokenBuckets
from dragoman.core.task.log import Append, Appended
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.errors import explain
from dragoman.stores.postgres.hot.quota_counters import COUNTER_SLOTS
from dragoman.stores.postgres.hot.transaction import AppendResult, PostgresTransaction, lock_numbers
from dragoman.stores.postgres.maintenance.compaction import PostgresArtifactGrowth
from dragoman.supervision import Background, log_fault, start_task

log = logging.getLogger("dragoman.store")

MAX_BATCH_WRITES: Final = 512
"""Changes in one commit: bounds how long the first waits for the last."""


@dataclass(slots=True)
class PostgresQueuedWrite:
    """A change, and the future of its caller."""

    change: Append
    future: asyncio.Future[Appended]


class PostgresWriter:
    """The writer of this process, on the event loop on which it was created."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.counter_slot = secrets.randbelow(COUNTER_SLOTS)
        """The slot of the counters that this process adds to."""
        self.commits = CommitCounters()
        self._artifact_growth = PostgresArtifactGrowth()
        self._token_buckets = TokenBuckets()
        self._queue: deque[PostgresQueuedWrite] = deque()
        self._queue_filled = asyncio.Event()
        self._closed = False
        self._taken: list[PostgresQueuedWrite] = []
        """Writes whose callers have no result yet."""
        self._task = start_task(Background.POSTGRES_WRITER, self._run)

    def submit(self, change: Append) -> asyncio.Future[Appended]:
        """Queues a change for the next commit."""
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_exception(RuntimeError("the store is closed"))
        else:
            self._queue.append(PostgresQueuedWrite(change, future))
            self._queue_filled.set()
        return future

    async def close(self) -> None:
        """Commits what waits. Idempotent."""
        self._closed = True
        self._queue_filled.set()
        await asyncio.shield(self._task)

    async def _run(self) -> None:
        """Called again after a failure; no caller of the failed round may wait for ever."""
        self._settle_failed_round()
        while self._queue or not self._closed:
            await self._queue_filled.wait()
            self._queue_filled.clear()
            while self._queue:
                self._taken = list(islice(self._queue, MAX_BATCH_WRITES))
                for _ in self._taken:
                    self._queue.popleft()
                await self._write(self._taken)
                self._taken = []

    def _settle_failed_round(self) -> None:
        """Tells the callers of a round that failed that its outcome is not known: it may have been committed."""
        for queued in self._taken:
            if not queued.future.done():
                error = Unavailable("the store failed: it is not known whether this request was done; check it")
                error.outcome_unknown = True
                queued.future.set_exception(error)
        self._taken = []
        if self._queue:
            self._queue_filled.set()

    async def _write(self, batch: Sequence[PostgresQueuedWrite]) -> None:
        try:
            results: Sequence[AppendResult | Exception] = await self._commit_together(batch)
        except Unavailable as error:
            log.error("a batch of %d writes failed: %s", len(batch), explain(error.__cause__ or error))
            results = [error] * len(batch)
        except Exception:
            if len(batch) > 1:
                log.warning("a batch of %d writes was rolled back; retrying each alone", len(batch))
            results = [await self._commit_alone(queued) for queued in batch]
        for queued, result in zip(batch, results, strict=True):
            if queued.future.done():  # the caller was canceled; what is written stays written
                continue
            if isinstance(result, Exception):
                queued.future.set_exception(result)
            else:
                queued.future.set_result(result)

    async def _commit_alone(self, queued: PostgresQueuedWrite) -> AppendResult | Exception:
        try:
            (result,) = await self._commit_together([queued])
            return result
        except Exception as error:
            log_fault(log, "a write failed", error)
            return out_of_memory(error) if lacks_memory(error) else error

    async def _commit_together(self, batch: Sequence[PostgresQueuedWrite]) -> Sequence[AppendResult]:
        changes, started = [queued.change for queued in batch], time.perf_counter()
        try:
            results = await self._database.commit(partial(self._apply, changes), lock_numbers(changes))
        except Exception:
            self.commits.failed_batches += 1
            raise
        self.commits.changes.add(len(batch))
        self.commits.seconds.add(time.perf_counter() - started)
        return results

    async def _apply(self, changes: Sequence[Append], connection: Connection) -> list[AppendResult]:
        return await PostgresTransaction(connection, self.counter_slot, self._artifact_growth, self._token_buckets).run(
            changes, self._database.fixed_now
        )
