"""Moving committed pages from the write-ahead log to the database, off the commit path.

A passive checkpoint runs beside the writer on a connection and thread of its own, so that no commit waits for its
fsyncs. Under load it never catches the last frame, and the log would grow for ever. So the writer then moves the few
frames that came since, and begins the log anew in the same file: a commit that overwrites what is there waits for its
pages only, one that makes the file longer for the file system's journal too (one caller: p50 a fifth less). Should
readers be in the way it goes on as it was, until the log is past `LIMIT` and they are waited for.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dragoman.stores.sqlite.errors import explain

log = logging.getLogger("dragoman.store")

INITIAL_COMMIT_INTERVAL: Final = 512
"""Commits between two checkpoints, before it is known how many pages a commit has."""

TARGET_WAL_PAGES: Final = 4096
"""Pages that a log should have when it begins anew: 16 MiB."""

MIN_COMMIT_INTERVAL: Final = 16
MAX_COMMIT_INTERVAL: Final = 4096
"""Commits between two checkpoints, at least and at most."""

MAX_WAL_BYTES: Final = 64 * 1024 * 1024
"""Bytes of write-ahead log that the writer no longer adds to without emptying it."""

READER_WAIT_MS: Final = 100
"""Milliseconds that the writer then waits for those who read."""


class Checkpointer:
    """Counts commits and keeps the write-ahead log short. `connect` makes its connection."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], database: Path) -> None:
        self._connect = connect
        self._wal = database.with_name(database.name + "-wal")
        self._commits = 0
        self._interval = INITIAL_COMMIT_INTERVAL
        self._due = threading.Event()
        self._restart_pending = False
        """Most of the log was moved; the writer may do the rest and begin anew."""
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="dragoman-checkpoint", daemon=True)
        self._thread.start()

    def after_commit(self, writer: sqlite3.Connection) -> None:
        """Called by the writer after each commit, with nothing begun on its connection."""
        self._commits += 1
        if self._restart_pending:
            self._restart_pending = False
            self._checkpoint(writer, "RESTART", wait_ms=0)
        if self._commits < self._interval:
            return
        self._commits = 0
        if self._wal.exists() and self._wal.stat().st_size > MAX_WAL_BYTES:
            self.truncate(writer)
        else:
            self._due.set()

    def truncate(self, writer: sqlite3.Connection) -> None:
        """Moves everything, on the writer's connection, and gives the log's room back."""
        # A backup holds its snapshot for long; nobody may wait for that, and the next time comes soon.
        self._checkpoint(writer, "TRUNCATE", wait_ms=READER_WAIT_MS)

    def _checkpoint(self, writer: sqlite3.Connection, mode: str, *, wait_ms: int) -> None:
        """On the writer's connection. What fails is tried again; commits do not depend on it."""
        (patience,) = writer.execute("PRAGMA busy_timeout").fetchone()
        writer.execute(f"PRAGMA busy_timeout = {wait_ms}")
        try:
            writer.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:  # the commit itself is safe, and this thread has to live
            log.warning("a checkpoint failed; a later one tries again: %s", explain(error))
        finally:
            writer.execute(f"PRAGMA busy_timeout = {patience}")

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
                        min(self._interval * TARGET_WAL_PAGES // max(frames, 1), MAX_COMMIT_INTERVAL),
                    )
                    self._restart_pending = True
        finally:
            connection.close()
