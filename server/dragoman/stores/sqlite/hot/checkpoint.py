"""Checkpoints: the write-ahead log stays short, and no commit waits for the fsyncs of a passive one."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dragoman.stores.sqlite.errors import explain
from dragoman.stores.sqlite.hot import DEFAULT_TIMINGS, SqliteTimings
from dragoman.supervision import Background, start_thread

log = logging.getLogger("dragoman.store")

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
