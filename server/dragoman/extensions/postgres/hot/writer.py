"""Group commit: one coroutine writes all waiting changes in one transaction, and then wakes the callers.

A change whose guard fails is rejected alone. If the database itself fails on an item, which no guard foresees, the
batch is rolled back and each item is retried alone, so its neighbors are not affected; no caller had a result of the
batch before.

When the server does not respond, callers get Unavailable soon, and their changes are left out of later attempts;
running turns wait. A commit without a response is repeated with its mark, so that it happens once, for as long as a
turn waits for it: a turn cannot ask its agent for the same events again.
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
from typing import Final, NamedTuple

from asyncpg import Connection

from dragoman.core.counters import CommitCounters
from dragoman.core.daily_usage import DailyKeys
from dragoman.core.errors import Unavailable
from dragoman.core.limits.admission import TokenBuckets
from dragoman.core.task.log import Append, Appended, ClaimHeld
from dragoman.extensions.postgres.database import UNKNOWN_COMMIT_TIMEOUT, Database, PlannedStatement
from dragoman.extensions.postgres.errors import explain, failure_of, is_timeout, verdict_of
from dragoman.extensions.postgres.hot.quota_counters import COUNTER_SLOTS
from dragoman.extensions.postgres.hot.transaction import KnownTasks, PostgresTransaction, lock_numbers
from dragoman.stores.shared.compaction import ArtifactGrowth
from dragoman.stores.shared.errors import Verdict
from dragoman.supervision import Background, RepeatedFailures, log_fault, start_task

log = logging.getLogger("dragoman.store")

MAX_BATCH_WRITES: Final = 512
"""Changes in one commit: bounds how long the first waits for the last."""

GATHER_INTERVAL: Final = 0.001
MAX_GATHER_TIME: Final = 0.005
"""Seconds for which changes wait for one more, and at most."""

TURN_RETRY_TIMEOUT: Final = 60.0
"""Seconds for which events of a running turn wait for the server, before the turn fails."""


@dataclass(slots=True)
class PostgresQueuedWrite:
    """A change, the future of its caller, and when it was queued, on the loop's clock."""

    change: Append
    future: asyncio.Future[Appended]
    queued_at: float
    given_up: bool = False
    """Whether the caller was told that the store does not respond. It is then no longer written."""

    @property
    def is_of_turn(self) -> bool:
        """Whether it belongs to a running turn, in which no caller waits for a response."""
        return isinstance(self.change.guard, ClaimHeld)


class CommittedBatch(NamedTuple):
    """The writes of a batch that were still wanted, and the transaction that has their results."""

    writes: Sequence[PostgresQueuedWrite]
    transaction: PostgresTransaction


class PostgresWriter:
    """The writer of this process, on the event loop on which it was created."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.counter_slot = secrets.randbelow(COUNTER_SLOTS)
        """The slot of the counters that this process adds to."""
        self.commits = CommitCounters()
        self._artifact_growth = ArtifactGrowth()
        self._token_buckets = TokenBuckets()
        self._daily_keys = DailyKeys()
        self.known = KnownTasks()
        self._queue: deque[PostgresQueuedWrite] = deque()
        self._queue_filled = asyncio.Event()
        self._expected = 1
        """Changes that the next batch probably gets: those of the last ones."""
        self._closed = False
        self._failures = RepeatedFailures(log)
        self._taken: list[PostgresQueuedWrite] = []
        """Writes whose callers have no result yet."""
        self._task = start_task(Background.STORE_WRITER, self._run)

    def submit(self, change: Append) -> asyncio.Future[Appended]:
        """Queues a change for the next commit."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Appended] = loop.create_future()
        if self._closed:
            future.set_exception(RuntimeError("the store is closed"))
        else:
            self._queue.append(PostgresQueuedWrite(change, future, loop.time()))
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
                await self._gather()
                self._taken = list(islice(self._queue, MAX_BATCH_WRITES))
                for _ in self._taken:
                    self._queue.popleft()
                await self._write(self._taken)
                self._taken = []

    async def _gather(self) -> None:
        """Waits until as many changes as usual have come, or no more come.

        A commit costs as much as a dozen changes, and changes come in groups: the results of one commit are the causes
        of the next. A lone caller's change does not wait.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + MAX_GATHER_TIME
        while (count := len(self._queue)) < self._expected and not self._closed and loop.time() < deadline:
            await asyncio.sleep(GATHER_INTERVAL)
            if len(self._queue) == count:
                break
        self._expected = max(len(self._queue), self._expected // 2)

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
            committed = await self._commit_together(batch)
        except Exception as error:
            if isinstance(error, Unavailable) and not (len(batch) > 1 and _may_concern_one(error)):
                self._fail(batch, error)
                return
            if len(batch) > 1:
                text, cause = "a batch of %d writes was rolled back; retrying each alone: %s", error.__cause__ or error
                self._failures.log(explain(cause), text, len(batch), level=logging.WARNING)
            for queued in batch:
                if not queued.given_up and (alone := await self._commit_alone(queued)) is not None:
                    self._settle(alone)
            return
        self._settle(committed)

    async def _commit_alone(self, queued: PostgresQueuedWrite) -> CommittedBatch | None:
        try:
            return await self._commit_together([queued])
        except Exception as error:
            if not isinstance(error, Unavailable):
                log_fault(log, "a write failed", error)
            self._fail([queued], error)
            return None

    async def _commit_together(self, batch: Sequence[PostgresQueuedWrite]) -> CommittedBatch:
        """Commits the writes that are still wanted. Raises Unavailable, or the error of the database."""
        started = time.perf_counter()
        try:
            committed = await self._database.commit(
                partial(self._apply, batch),
                lock_numbers([queued.change for queued in batch]),
                partial(self._wait_on, batch),
                partial(self._plan, batch),
            )
        except Exception:
            self.known.forget()
            self.commits.failed_batches += 1
            raise
        self.commits.seconds.add(time.perf_counter() - started)
        return committed

    def _settle(self, committed: CommittedBatch) -> None:
        """Gives the callers their results. A failure here must not repeat the batch, which was committed."""
        committed.transaction.remember()
        self.commits.changes.add(len(committed.writes))
        for queued, result in zip(committed.writes, committed.transaction.results, strict=True):
            # Canceled by the caller, or given up before its commit was found to have succeeded.
            if queued.future.done():
                continue
            if isinstance(result, Exception):
                queued.future.set_exception(result)
            else:
                queued.future.set_result(result)

    async def _plan(
        self, batch: Sequence[PostgresQueuedWrite], connection: Connection, mark: bytes
    ) -> PlannedStatement[CommittedBatch] | None:
        planned = self._new_batch(batch, connection)
        changes = [queued.change for queued in planned.writes]
        statement = await planned.transaction.plan(changes, self._database.fixed_now, mark)
        return PlannedStatement(*statement, planned, self.known.follow) if statement is not None else None

    async def _apply(self, batch: Sequence[PostgresQueuedWrite], connection: Connection) -> CommittedBatch:
        applied = self._new_batch(batch, connection)
        await applied.transaction.run([queued.change for queued in applied.writes], self._database.fixed_now)
        return applied

    def _new_batch(self, batch: Sequence[PostgresQueuedWrite], connection: Connection) -> CommittedBatch:
        transaction = PostgresTransaction(
            connection, self.counter_slot, self._artifact_growth, self._token_buckets, self._daily_keys, self.known
        )
        return CommittedBatch([queued for queued in batch if not queued.given_up], transaction)

    def _wait_on(self, batch: Sequence[PostgresQueuedWrite], error: Unavailable) -> bool:
        """After a failed attempt: fails the writes that must not wait longer. True if others of this batch do.

        Queued writes that wait behind the batch have not been tried, so these were certainly not done.
        """
        assert error.__cause__ is not None
        cause, now = error.__cause__, asyncio.get_running_loop().time()

        def must_wait(queued: PostgresQueuedWrite) -> bool:
            age = now - queued.queued_at
            if queued.is_of_turn and not self._closed:
                return age < (UNKNOWN_COMMIT_TIMEOUT if error.outcome_unknown else TURN_RETRY_TIMEOUT)
            return not is_timeout(cause) and age < self._database.retries.write

        not_done = failure_of(cause if not error.outcome_unknown else TimeoutError())
        self._fail([queued for queued in batch if not must_wait(queued)], error)
        self._fail([queued for queued in self._queue if not must_wait(queued)], not_done)
        self._queue = deque(queued for queued in self._queue if not queued.given_up)
        return not all(queued.given_up for queued in batch)

    def _fail(self, writes: Sequence[PostgresQueuedWrite], error: Exception) -> None:
        """Gives their callers the error, unless these have a result."""
        failed = [queued for queued in writes if not queued.given_up]
        if failed and isinstance(error, Unavailable):
            self._failures.log(explain(error.__cause__ or error), "a batch of %d writes failed: %s", len(failed))
        for queued in failed:
            queued.given_up = True
            if not queued.future.done():  # else the caller was canceled
                queued.future.set_exception(error)


def _may_concern_one(error: Unavailable) -> bool:
    """Whether the failure of a batch may be that of one write, such as one on a damaged page."""
    return error.__cause__ is not None and verdict_of(error.__cause__) is Verdict.BROKEN
