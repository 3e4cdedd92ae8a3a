"""Connections with this store's settings, and the migrations of the database file."""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, Literal

from dragoman.core.task import maintenance
from dragoman.stores.shared.rows import SchemaTooNew, migration_scripts

log = logging.getLogger("dragoman.store")

Synchronous = Literal["full", "normal"]

WRITER_CACHE_KIB: Final = 8192
READER_CACHE_KIB: Final = 4096
"""Page cache of a connection in KiB. The operating system caches the file too, so more gains little, and a process
grows by it as its store grows (G9)."""

CACHED_STATEMENTS: Final = 256
"""Prepared statements of a connection: each of the writer's twelve bulk statements has twelve sizes."""


def create_private_file(path: Path) -> None:
    """Creates the file if it does not exist, readable for its owner only.

    SQLite gives the files beside it the same permissions. An existing file is not opened: closing it would release
    every lock that SQLite holds on it for this process. Another program that reads and closes the database would then
    be the last one to use it, and delete the log with its commits. Raises OSError.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def connect(path: Path, synchronous: Synchronous = "full", *, readonly: bool = False) -> sqlite3.Connection:
    """A connection with this store's settings, in autocommit mode: transactions begin with BEGIN."""
    if not readonly:
        with suppress(OSError):  # SQLite explains it
            create_private_file(path)
    uri = f"{path.absolute().as_uri()}{'?mode=ro' if readonly else ''}"
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10, cached_statements=CACHED_STATEMENTS
    )
    try:
        # Of these, only macOS has fullfsync: its fsync leaves what was written in the cache of the disk.
        writing = ("journal_mode = WAL", f"synchronous = {synchronous}", "fullfsync = ON", "wal_autocheckpoint = 0")
        cache = f"cache_size = -{READER_CACHE_KIB if readonly else WRITER_CACHE_KIB}"
        for setting in (*(() if readonly else writing), cache, "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:  # a file that is not a database fails here
        connection.close()
        raise
    return connection


Migrations = Sequence[tuple[int, str]]  # number and SQL of each, in any order


def check_version(connection: sqlite3.Connection, steps: Migrations | None = None) -> int:
    """The version of the database's schema. Raises SchemaTooNew for one that this release cannot use."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    known = max(number for number, _ in steps or migrations())
    if version > known:
        oldest = None
        is_store = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone()
        if is_store:
            (oldest,) = connection.execute("SELECT max(value) FROM meta WHERE name = 'oldest'").fetchone()
        if why := maintenance.schema_problem(version, known, oldest):
            raise SchemaTooNew(why)
        log.info(
            "the store has schema %d of a newer release; this release has schema %d and can use it", version, known
        )
    return version


def migrate(connection: sqlite3.Connection, migrations_of_release: Migrations | None = None) -> None:
    """Migrates the database to a release's schema (by default this one's), unless it is newer.

    Raises SchemaTooNew as `check_version`.
    """
    version = check_version(connection, migrations_of_release)
    steps = dict(sorted(migrations_of_release or migrations()))
    # All in one transaction: a new store is written to the disk once, and a crash meanwhile changes nothing.
    if missing := [script for number, script in steps.items() if number > version]:
        oldest = maintenance.min_schema(steps.items())
        missing.append(f"INSERT OR REPLACE INTO meta (name, value) VALUES ('oldest', '{oldest}');")
        missing.append(f"PRAGMA user_version = {max(steps)};")
        connection.executescript("\n".join(("BEGIN IMMEDIATE;", *missing, "COMMIT;")))
    # A restored or replaced store gets another epoch, so that old cursors are rejected rather than misread.
    connection.execute("INSERT OR IGNORE INTO meta (name, value) VALUES ('epoch', ?)", (secrets.token_hex(4),))


@cache
def migrations() -> Migrations:
    """The migrations of this release; read from their files once."""
    return tuple(migration_scripts(__package__))


class DatabaseFiles:
    """The identity of the open database and of its write-ahead log: device and inode.

    A process keeps writing to an open file whose name was removed, renamed or given to another file. What it
    acknowledges is then gone after its end.
    """

    def __init__(self, path: Path) -> None:
        """`path`: of the open database. Its log exists only after the first write."""
        self._identities = {path: _identity(path), path.with_name(f"{path.name}-wal"): None}

    def problem(self) -> str:
        """Which file is missing or was replaced; empty if none. Touches the disk."""
        for path, known in self._identities.items():
            found = _identity(path)
            if known is None:
                self._identities[path] = found
            elif found is None:
                return f"{path} was removed or renamed"
            elif found != known:
                return f"{path} is another file than the one in use"
        return ""


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
