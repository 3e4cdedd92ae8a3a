"""Commits and checkpoints. A commit applies a batch in one transaction; if the database fails, each write alone.

A change whose guard fails is rejected alone. If the database itself fails on an item, which no guard foresees, the
batch is rolled back and each item is retried alone, so its neighbors are not affected; no caller had a result of the
batch before.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dragoman.core.counters import CommitCounters
from dragoman.core.daily_usage import DailyCounter, DailyKeys
from dragoman.core.errors import Unavailable
from dragoman.core.names import Owner
from dragoman.core.task.log import Append, AppendRejected
from dragoman.stores.sqlite import daily_usage
from dragoman.stores.sqlite.errors import explain, failure_or_self, is_undecodable, tolerate_damaged_text
from dragoman.stores.sqlite.hot import DEFAULT_TIMINGS, SqliteTimings
from dragoman.stores.sqlite.hot.quota_counters import SqliteQuotaCounters
from dragoman.stores.sqlite.hot.transaction import SqliteTransaction
from dragoman.stores.sqlite.maintenance.compaction import SqliteArtifactGrowth
from dragoman.supervision import Background, RepeatedFailures, start_thread

log = logging.getLogger("dragoman.store")

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
        self._artifact_growth = SqliteArtifactGrowth()
        self.quota_counters = SqliteQuotaCounters()
        self._daily_keys = DailyKeys()
        self._deferred_figures = DailyCounter()
        self.counters = CommitCounters()
        self._failures = RepeatedFailures(log)
        self.results: list[SqliteQueuedWrite] = []
        """Writes that have a result or error which was not delivered yet."""

    @property
    def has_deferred_figures(self) -> bool:
        """Whether figures of daily usage wait for the next commit."""
        return bool(self._deferred_figures)

    def clear_owner_numbers(self) -> None:
        """After owners were deleted."""
        self._owner_numbers.clear()

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
                text = "a batch of %d writes was rolled back; retrying each alone: %s"
                self._failures.log(explain(error), text, len(batch), level=logging.WARNING)
        for item in batch:
            done = len(self.results)
            try:
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
            transaction = SqliteTransaction(
                connection,
                self._clock,
                self._owner_numbers,
                self._artifact_growth,
                self.quota_counters,
                self._daily_keys,
                self._deferred_figures,
            )
            transaction.load_records([item.job for item in batch if isinstance(item.job, Append)])
            for item in batch:
                item.run(transaction)
            transaction.flush()
            results = [*self.results, *batch]
            connection.execute("COMMIT")
            self._deferred_figures = transaction.daily_counter
            self.results = results
        except BaseException:
            self.counters.failed_batches += 1
            self._owner_numbers.clear()  # numbers assigned inside the transaction were rolled back
            self.quota_counters.clear()
            self._roll_back()
            raise
        self.counters.changes.add(len(batch))
        self.counters.seconds.add(time.perf_counter() - started)

    def commit_job(self, job: Callable[[sqlite3.Connection], Any]) -> None:
        """Runs one job in a transaction of its own, which writes deferred figures too. Raises what it raised."""
        self._begin()
        try:
            job(self._connection)
            daily_usage.add_counts(
                self._connection, self._connection.cursor(), self._daily_keys, self._deferred_figures
            )
            self._connection.execute("COMMIT")
            self._deferred_figures = DailyCounter()
        except Exception:
            self._roll_back()
            raise

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

READER_WAIT_MS: Final = 100
"""Milliseconds that the writer waits for readers when the log is too large."""


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
        self._wal = database.with_name(database.name + "-wal")
        self._commits = 0
        self._interval = timings.checkpoint_interval
        self._target_bytes = timings.target_wal_pages * PAGE_BYTES
        self._checked_bytes = 0
        """Size of the log at the last checkpoint: large commits fill it before there are many of them."""
        self._truncate_above = timings.max_wal_bytes
        """Size from which the writer truncates the log; more while a reader prevents it."""
        self._due = threading.Event()
        self._restart_pending = False
        """Most of the log was moved; the writer may move the rest and restart the log."""
        self._stopped = False
        self._thread = start_thread(Background.SQLITE_CHECKPOINT, self._run)

    def after_commit(self, writer: sqlite3.Connection) -> None:
        """Called by the writer after each commit, outside of a transaction."""
        self._commits += 1
        if self._restart_pending:
            self._restart_pending = False
            self._checkpoint(writer, "RESTART", wait_ms=0)
        size = self._wal_bytes()
        if size > self._truncate_above:
            self.truncate(writer)
            self._commits, self._checked_bytes = 0, self._wal_bytes()
            self._truncate_above = max(self._timings.max_wal_bytes, self._checked_bytes + self._target_bytes)
        elif self._commits >= self._interval or size > self._checked_bytes + self._target_bytes:
            self._commits, self._checked_bytes = 0, size
            self._due.set()

    def _wal_bytes(self) -> int:
        try:
            return self._wal.stat().st_size
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
