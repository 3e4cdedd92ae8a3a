"""Opening the database: its settings, and its migrations, which are numbered and never edited."""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, Literal

from dragoman.core.task import maintenance
from dragoman.stores.shared.schema import SchemaTooNew, migration_scripts

log = logging.getLogger("dragoman.store")

Synchronous = Literal["full", "normal"]

WRITER_CACHE_KIB: Final = 8192
READER_CACHE_KIB: Final = 4096
"""KiB of pages that a connection keeps. The system keeps them too, so more of it buys little, and it is what a
process grows by while its store does (G9)."""

_INSERT_OLDEST: Final = "INSERT OR IGNORE INTO meta (name, value) VALUES ('oldest', ?)"


def create_private_file(path: Path) -> None:
    """Makes the file, if it is not there, for its user alone; SQLite gives what it puts beside it the same rights.
    What is wrong with the place is SQLite's to say."""
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def connect(path: Path, synchronous: Synchronous = "full", *, readonly: bool = False) -> sqlite3.Connection:
    """A connection with this store's settings. Transactions are begun and ended by hand."""
    if not readonly:
        create_private_file(path)
    uri = f"{path.absolute().as_uri()}{'?mode=ro' if readonly else ''}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10)
    try:
        if not readonly:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB if readonly else WRITER_CACHE_KIB}")
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:  # what is no database shows itself here
        connection.close()
        raise
    return connection


def check_version(connection: sqlite3.Connection) -> int:
    """The version of the database's schema. Raises SchemaTooNew when it is past what this version can serve."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    known = max(number for number, _ in _steps())
    if version > known:
        kept = None
        if connection.execute(
            "SELECT 1 FROM sqlite_schema WHERE name = 'meta'"
        ).fetchone():  # or it is no store of ours
            (kept,) = connection.execute("SELECT max(value) FROM meta WHERE name = 'oldest'").fetchone()
        if why := maintenance.schema_problem(version, known, kept):
            raise SchemaTooNew(why)
        log.info("the store has schema %d, of a newer release; this one knows %d and may serve it", version, known)
    return version


def migrate(connection: sqlite3.Connection) -> None:
    """Brings the database to this version's schema, unless it is past it. Raises SchemaTooNew as `check_version`."""
    version = check_version(connection)
    steps = dict(sorted(_steps()))
    newest = max(steps)
    # All of them in one transaction: a new store is written to the disk once, and who dies meanwhile changed nothing.
    if missing := [script for number, script in steps.items() if number > version]:
        noted = (
            f"INSERT OR REPLACE INTO meta (name, value) VALUES ('oldest', '{maintenance.min_schema(steps.items())}');"
        )
        connection.executescript(
            "\n".join(("BEGIN IMMEDIATE;", *missing, noted, f"PRAGMA user_version = {newest};", "COMMIT;"))
        )
    if version == newest:  # a store from before this was kept
        connection.execute(_INSERT_OLDEST, (str(maintenance.min_schema(steps.items())),))
    # A store that is restored or replaced gets another epoch, so that old cursors are refused rather than misread.
    connection.execute("INSERT OR IGNORE INTO meta (name, value) VALUES ('epoch', ?)", (secrets.token_hex(4),))


@cache
def _steps() -> tuple[tuple[int, str], ...]:
    return tuple(migration_scripts(__package__))
