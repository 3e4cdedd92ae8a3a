"""Group commit: the coalescer that gathers a batch, its commit, checkpoints, and the thread that writes.

The thread takes all changes that wait, commits once and wakes all callers of the batch with one call into their loop.
A change whose guard fails is rejected alone. If the database fails on an item, the batch is rolled back and each item
is retried alone; no caller had a result of the batch before. Low-priority writes run one at a time while no change
waits, and in any case after `SqliteTimings.low_priority_interval` commits. Checkpoints keep the write-ahead log short,
and no commit waits for the fsyncs of a passive one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from dragoman.core.counters import CommitCounters
from dragoman.core.errors import Unavailable
from dragoman.core.names import Owner
from dragoman.core.task.log import Append, AppendRejected
from dragoman.stores.shared.errors import Verdict
from dragoman.stores.sqlite.errors import explain, failure_or_self, is_undecodable, row_of, tolerate_damaged_text
from dragoman.stores.sqlite.hot import DEFAULT_TIMINGS, SqliteTimings, figures
from dragoman.stores.sqlite.hot.transaction import CommitObserver, SqliteTransaction
from dragoman.supervision import Background, RepeatedFailures, start_thread

log = logging.getLogger("dragoman.store")

IDLE_ITERATIONS: Final = 2  # before a loop counts as idle: work of gRPC's thread takes one to arrive

T = TypeVar("T")


class WriteCoalescer(Generic[T]):
    """Gathers items on the running loop. Calls `on_batch` there, with all items in order, when the loop is idle.

    A commit costs the same for one change as for ten: system calls, two switches between threads, and the interpreter
    lock taken back from a busy loop after each statement. Where requests arrive one by one, as gRPC's do, a writer that
    takes the first change at once finds two or three of them; gathered on a busy loop there are ten to thirty. The CPU
    of a send falls to 0.81 of what it was over gRPC with 16 callers, 0.86 with 64, and 0.86 over JSON-RPC. An idle
    loop hands over at once, and a lone caller's change waits for no idle iteration.
    """

    def __init__(
        self,
        on_batch: Callable[[list[T]], None],
        timings: SqliteTimings,
        clock: Callable[[], float] = time.perf_counter,
        is_alone: Callable[[], bool] = lambda: False,
    ) -> None:
        """clock: seconds. is_alone: whether there seems to be one caller, who waits for each of its changes."""
        self._on_batch = on_batch
        self._is_alone = is_alone
        self._timings = timings
        self._clock = clock
        self._items: list[T] = []

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: T) -> None:
        if not self._items:
            now = self._clock()
            loop = asyncio.get_running_loop()
            loop.call_soon(self._flush_when_idle, loop, self._items, now, now + self._timings.max_hold, 0)
        self._items.append(item)

    def flush(self) -> None:
        if self._items:
            items, self._items = self._items, []
            self._on_batch(items)

    def _flush_when_idle(
        self,
        loop: asyncio.AbstractEventLoop,
        items: list[T],
        iteration_started: float,
        deadline: float,
        idle_iterations: int,
    ) -> None:
        """Runs once in each iteration of the loop, which began at `iteration_started`."""
        if items is not self._items:  # flushed
            return
        now = self._clock()
        idle_iterations = idle_iterations + 1 if now - iteration_started < self._timings.idle_iteration else 0
        may_wait = idle_iterations < IDLE_ITERATIONS and len(items) < self._timings.max_batch and now < deadline
        if may_wait and not (len(items) == 1 and self._is_alone()):
            loop.call_soon(self._flush_when_idle, loop, items, now, deadline, idle_iterations)
        else:
            self.flush()


WriteJob = Append | Callable[[sqlite3.Connection], Any]


@dataclass(slots=True)
class SqliteQueuedWrite:
    """A change or any other job on the writer's connection, the future of its caller, and its result or error."""

    job: WriteJob
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None

    def run(self, transaction: SqliteTransaction) -> None:
        """Applies it. A rejected change has written nothing; everything else that fails is raised."""
        job = self.job
        try:
            self.result = transaction.apply(job) if isinstance(job, Append) else transaction.run(job)
            self.error = None
        except AppendRejected as rejected:
            self.error = rejected

    def deliver(self) -> None:
        if self.future.done():  # the caller was canceled; what is written stays written
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class SqliteCommitter:
    """Commits on one connection, from one thread."""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], int]) -> None:
        self._connection = connection
        self._clock = clock
        self._owner_numbers: dict[Owner, int] = {}
        self.quota_counters = figures.SqliteQuotaCounters()
        self._observers: tuple[CommitObserver, ...] = (
            figures.SqliteArtifactGrowth(),
            self.quota_counters,
            figures.SqliteTotals(),
            figures.SqliteDailyFigures(),
        )
        self.counters = CommitCounters()
        self._failures = RepeatedFailures(log)
        self.results: list[SqliteQueuedWrite] = []  # writes whose result or error was not delivered yet

    @property
    def has_deferred_figures(self) -> bool:
        """Whether figures of earlier commits wait for the next one."""
        return any(observer.has_deferred_rows for observer in self._observers)

    def clear_owners(self) -> None:
        """For a job that deleted owners: drops what is cached of them."""
        self._owner_numbers.clear()
        self.quota_counters.clear()

    def commit(self, batch: Sequence[SqliteQueuedWrite]) -> None:
        """Adds each write to `results`."""
        try:
            self._commit_together(batch)
            return
        except Exception as error:
            if self.results:  # committed, and then something failed that is no part of it
                raise
            if is_undecodable(error):
                log.error("%s", explain(error))
                tolerate_damaged_text(self._connection)
            if len(batch) > 1:
                self._failures.log(explain(error), "a batch of %d writes failed: %s", len(batch), level=logging.WARNING)
            blocked = error if row_of(error).verdict is Verdict.BLOCKED else None  # each alone would wait as long again
        for item in batch:
            done = len(self.results)
            try:
                if blocked is not None:
                    raise blocked
                self._commit_together([item])
            except Exception as error:
                if len(self.results) > done:
                    raise
                item.error = failure_or_self(error)
                if isinstance(item.error, Unavailable):
                    self._failures.log(explain(error), "a write failed: %s")
                else:
                    log.exception("a write failed")
                self.results.append(item)

    def _commit_together(self, batch: Sequence[SqliteQueuedWrite]) -> None:
        """Commits all or nothing. Raises what failed."""
        connection, started = self._connection, time.perf_counter()
        self._begin()
        try:
            transaction = SqliteTransaction(connection, self._clock, self._owner_numbers, self._observers)
            transaction.load_records([item.job for item in batch if isinstance(item.job, Append)])
            for item in batch:
                item.run(transaction)
            transaction.flush()
            results = [*self.results, *batch]
            connection.execute("COMMIT")
            self.results = results
            self._end_batch(committed=True)
        except BaseException:
            self.counters.failed_batches += 1
            self._owner_numbers.clear()  # numbers assigned inside the transaction were rolled back
            self._end_batch(committed=False)
            self._roll_back()
            raise
        self.counters.changes.add(len(batch))
        self.counters.seconds.add(time.perf_counter() - started)

    def commit_job(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Runs one job in a transaction of its own, which writes deferred figures too. Raises what it raised."""
        self._begin()
        try:
            transaction = SqliteTransaction(self._connection, self._clock, self._owner_numbers, self._observers)
            result: T = transaction.run(job)
            self._connection.execute("COMMIT")
            self._end_batch(committed=True)
            return result
        except Exception:
            self._end_batch(committed=False)
            self._roll_back()
            raise

    def _end_batch(self, *, committed: bool) -> None:
        for observer in self._observers:
            observer.end_batch(committed=committed)

    def _begin(self) -> None:
        if self._connection.in_transaction:  # the rollback of an earlier transaction failed, like its commit
            self._connection.execute("ROLLBACK")
        self._connection.execute("BEGIN IMMEDIATE")

    def _roll_back(self) -> None:
        """Rolls back. If that fails too, the next `_begin` retries it, and the first error is reported."""
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")


PAGE_BYTES: Final = 4096
MIN_COMMIT_INTERVAL: Final = 16
MAX_COMMIT_INTERVAL: Final = 4096
"""Bounds of the commits between two checkpoints."""

READER_WAIT_MS: Final = 100  # milliseconds that the writer waits for readers when the log is too large


class Checkpointer:
    """Counts commits and keeps the write-ahead log short, on a connection from `connect`.

    A passive checkpoint runs on a connection and thread of its own, so that no commit waits for its fsyncs. Under load
    it never reaches the last frame, and the log would grow forever. So the writer then moves the few frames that were
    added since, and restarts the log in the same file: a commit that overwrites the file waits only for its pages, one
    that extends it also for the file system's journal (one caller: p50 a fifth less). If readers prevent the restart,
    the log grows on, until it exceeds `max_wal_bytes` and the writer waits for the readers.
    """

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], database: Path, timings: SqliteTimings = DEFAULT_TIMINGS
    ) -> None:
        self._connect = connect
        self._timings = timings
        self._wal = f"{database}-wal"
        self._commits = 0
        self._interval = timings.checkpoint_interval
        self._target_bytes = timings.target_wal_pages * PAGE_BYTES
        self._size = self._checked_bytes = 0
        """Size of the log at the last checkpoint: large commits fill it before there are many of them."""
        self._truncate_above = timings.max_wal_bytes
        """Size from which the writer truncates the log; more while a reader prevents it."""
        self._due = threading.Event()
        self._restart_pending = False
        """Most of the log was moved; the writer may move the rest and restart the log."""
        self._stopped = False
        self._thread = start_thread(Background.SQLITE_CHECKPOINT, self._run)

    def after_commit(self) -> bool:
        """Counts a commit. Returns whether `run` is due."""
        self._commits += 1
        self._size = self._wal_bytes()
        is_grown = self._size > min(self._truncate_above, self._checked_bytes + self._target_bytes)
        return is_grown or self._restart_pending or self._commits >= self._interval

    def run(self, writer: sqlite3.Connection) -> None:
        """Called by the writer, outside of a transaction."""
        if self._restart_pending:
            self._restart_pending = False
            self._checkpoint(writer, "RESTART", wait_ms=0)
        size = self._size
        if size > self._truncate_above:
            self.truncate(writer)
            self._commits, self._checked_bytes = 0, self._wal_bytes()
            self._truncate_above = max(self._timings.max_wal_bytes, self._checked_bytes + self._target_bytes)
        elif self._commits >= self._interval or size > self._checked_bytes + self._target_bytes:
            self._commits, self._checked_bytes = 0, size
            self._due.set()

    def _wal_bytes(self) -> int:
        try:
            return os.stat(self._wal).st_size
        except FileNotFoundError:
            return 0

    def truncate(self, writer: sqlite3.Connection) -> None:
        """Moves all pages on the writer's connection, and truncates the log."""
        # A backup holds its snapshot for long: no write waits for that, and the next attempt comes soon.
        self._checkpoint(writer, "TRUNCATE", wait_ms=READER_WAIT_MS)

    def _checkpoint(self, writer: sqlite3.Connection, mode: str, *, wait_ms: int) -> None:
        """On the writer's connection. Failures are retried later; commits do not depend on it."""
        (busy_timeout,) = writer.execute("PRAGMA busy_timeout").fetchone()
        writer.execute(f"PRAGMA busy_timeout = {wait_ms}")
        try:
            writer.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:  # the commit itself is safe, and this thread must continue
            log.warning("a checkpoint failed; a later one tries again: %s", explain(error))
        finally:
            writer.execute(f"PRAGMA busy_timeout = {busy_timeout}")

    def close(self) -> None:
        """Ends the thread. Blocks; may be called twice."""
        self._stopped = True
        self._due.set()
        self._thread.join()

    def _run(self) -> None:
        connection = self._connect()
        try:
            while self._due.wait() and not self._stopped:
                self._due.clear()
                try:
                    _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                except sqlite3.Error:
                    log.warning("a checkpoint failed; the next one tries again", exc_info=True)
                else:
                    self._interval = max(
                        MIN_COMMIT_INTERVAL,
                        min(self._interval * self._timings.target_wal_pages // max(frames, 1), MAX_COMMIT_INTERVAL),
                    )
                    self._restart_pending = True
        finally:
            connection.close()


class SqliteWriter:
    """Owns the writing connection and its thread."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Callable[[], int],
        checkpointer: Checkpointer,
        timings: SqliteTimings = DEFAULT_TIMINGS,
    ) -> None:
        self.connection = connection  # only for jobs on this thread, and to trace its statements
        self._checkpointer = checkpointer
        self._timings = timings
        self.committer = SqliteCommitter(connection, clock)  # only for jobs on this thread, but for its counters
        self.refusal = ""  # why writes are rejected now; empty while they are accepted
        self._queue: SimpleQueue[list[SqliteQueuedWrite] | None] = SimpleQueue()
        """Batches. An empty one wakes the thread for a write of the queues below, and None closes it."""
        self._last_batch: list[SqliteQueuedWrite] = []
        self._coalescer = WriteCoalescer(self._enqueue, timings, is_alone=self._is_alone)
        self._urgent_writes: deque[tuple[Callable[[sqlite3.Connection], Any], Future[Any]]] = deque()
        self._low_priority_writes: deque[SqliteQueuedWrite] = deque()
        self._commits_since_low_priority = 0
        self._closed = False
        self._open_for_more = True
        """Whether the thread takes more writes: until it was told to close."""
        self._taken: list[SqliteQueuedWrite] = []
        self._arriving: list[SqliteQueuedWrite] | None = []
        """Writes that the thread took and that have no result yet; and those that it took last, which it adds to the
        others. That may fail for lack of memory, and then the callers of both are told."""
        self._thread = start_thread(Background.STORE_WRITER, self._run)

    def submit(self, job: WriteJob, *, low_priority: bool = False) -> asyncio.Future[Any]:
        """Queues a write for the next commit, or for a commit of its own when nothing else waits (`low_priority`).

        The future belongs to the running loop.
        """
        future = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_exception(RuntimeError("the store is closed"))
        elif self.refusal:
            future.set_exception(Unavailable(self.refusal))
        elif low_priority:
            self._low_priority_writes.append(SqliteQueuedWrite(job, future))
            self._queue.put([])
        else:
            self._coalescer.add(SqliteQueuedWrite(job, future))
        return future

    def flush(self) -> None:
        """Hands what was submitted so far to the thread. Call it on the loop, before `close` on another thread."""
        self._coalescer.flush()

    def _enqueue(self, writes: list[SqliteQueuedWrite]) -> None:
        if self._closed:
            for item in writes:
                item.error = RuntimeError("the store is closed")
            _deliver_all(writes)
        else:
            self._last_batch = writes
            self._queue.put(writes)

    def _is_alone(self) -> bool:
        return len(self._last_batch) == 1 and self._last_batch[0].future.done()

    def write_blocking(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Runs a write in the next commit, before all that waits. Blocks. Returns, or raises, what the write does."""
        if self._closed:
            raise RuntimeError("the store is closed")
        if self.refusal:
            raise Unavailable(self.refusal)
        future = Future[T]()
        self._urgent_writes.append((job, future))
        self._queue.put([])
        return future.result()

    async def write_figures(self) -> None:
        """Returns when daily usage has the figures of all commits so far."""
        if self.committer.has_deferred_figures:
            await self.submit(lambda connection: None)

    def close(self) -> None:
        """Commits what waits and ends the thread. Blocks. Idempotent."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        """Called again after a failure; no caller of the failed round may wait for ever."""
        self._settle_failed_round()
        while self._open_for_more:
            self._take_batch()
            self._write_urgent()
            self._write(self._taken)
            self._commits_since_low_priority += 1
            self._write_low_priority()
        while self._low_priority_writes:
            self._write([self._low_priority_writes.popleft()])
        self._write_urgent()
        if self.committer.has_deferred_figures or figures.has_unlisted(self.connection):
            self.committer.commit_job(figures.list_tasks)
        self._checkpointer.truncate(self.connection)
        self.connection.close()

    def _write_low_priority(self) -> None:
        while self._open_for_more and self._low_priority_writes:
            is_idle = self._queue.empty() and not self._coalescer  # no change waits or is about to be handed over
            if not is_idle and self._commits_since_low_priority <= self._timings.low_priority_interval:
                break
            self._commits_since_low_priority = 0
            self._write([self._low_priority_writes.popleft()])

    def _settle_failed_round(self) -> None:
        """Delivers the results of a round that failed; its writes without a result were rolled back."""
        results = self.committer.results
        for item in (*self._taken, *(self._arriving or ())):
            if not any(result is item for result in results):
                item.error = Unavailable("the store failed, this request was not done; try again")
                results.append(item)
        self._taken, self._arriving = [], []
        self._deliver()

    def _write_urgent(self) -> None:
        while self._urgent_writes:
            job, future = self._urgent_writes.popleft()
            try:
                future.set_result(self.committer.commit_job(job))
            except Exception as error:
                future.set_exception(failure_or_self(error))

    def _write(self, writes: list[SqliteQueuedWrite]) -> None:
        if writes:
            self._taken = writes
            self.committer.commit(writes)
            self._taken, self._arriving = [], []
            # After the delivery this thread has to wait soon: the loop takes the interpreter lock.
            is_checkpoint_due = self._checkpointer.after_commit()
            self._deliver()
            if is_checkpoint_due:
                self._checkpointer.run(self.connection)

    def _take_batch(self) -> None:
        """Waits for writes, then takes all that are queued, until there are `max_batch`."""
        self._taken = []
        self._arriving = self._queue.get()
        while self._arriving is not None:
            self._taken += self._arriving
            if len(self._taken) >= self._timings.max_batch or self._queue.empty():
                return
            self._arriving = self._queue.get_nowait()
        self._open_for_more = False

    def _deliver(self) -> None:
        """Delivers what has a result. After a failure it may be called again: a future takes one result."""
        by_loop: dict[asyncio.AbstractEventLoop, list[SqliteQueuedWrite]] = {}
        for item in self.committer.results:
            by_loop.setdefault(item.future.get_loop(), []).append(item)
        for loop, items in by_loop.items():
            try:
                loop.call_soon_threadsafe(_deliver_all, items)
            except RuntimeError:  # that loop is closed: no caller is left
                log.debug("%d callers disconnected before their commit", len(items))
        self.committer.results = []


def _deliver_all(items: list[SqliteQueuedWrite]) -> None:
    for item in items:
        item.deliver()
