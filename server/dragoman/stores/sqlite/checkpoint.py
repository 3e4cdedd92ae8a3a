"""Moving committed pages from the write-ahead log to the database, off the commit path.

A passive checkpoint runs beside the writer on a connection and thread of its own, so that no commit waits for
its fsyncs. Under load without a pause it never catches the last frame and the log would grow for ever: past
`LIMIT` the writer is asked to hold still for one.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dragoman.stores.sqlite.trouble import explain

log = logging.getLogger("dragoman.store")

COMMITS: Final = 512
"""Commits between two checkpoints."""

LIMIT: Final = 64 * 1024 * 1024
"""Bytes of write-ahead log that the writer no longer adds to without emptying it."""


READERS_MS: Final = 100
"""Milliseconds that the writer then waits for those who read."""


class Checkpointer:
    """Counts commits and keeps the write-ahead log short. `connect` makes its connection."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], database: Path) -> None:
        self._connect = connect
        self._wal = database.with_name(database.name + "-wal")
        self._commits = 0
        self._due = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="dragoman-checkpoint", daemon=True)
        self._thread.start()

    def committed(self, writer: sqlite3.Connection) -> None:
        """Called by the writer after each commit, with nothing begun on its connection."""
        self._commits += 1
        if self._commits < COMMITS:
            return
        self._commits = 0
        if self._wal.exists() and self._wal.stat().st_size > LIMIT:
            self.empty(writer)
        else:
            self._due.set()

    def empty(self, writer: sqlite3.Connection) -> None:
        """Moves everything, on the writer's connection. What fails is tried again; commits do not depend on it."""
        # A backup holds its snapshot for long; nobody may wait for that, and the next time comes soon.
        (patience,) = writer.execute("PRAGMA busy_timeout").fetchone()
        writer.execute(f"PRAGMA busy_timeout = {READERS_MS}")
        try:
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
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
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                except sqlite3.Error:
                    log.warning("a checkpoint failed; the next one tries again", exc_info=True)
        finally:
            connection.close()
