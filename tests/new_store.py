"""SQLite stores copied from a migrated one: migrations would take longer than most tests."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path

from dragoman.stores.sqlite import schema


@cache
def created() -> sqlite3.Connection:
    """A migrated store without an epoch."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    schema.migrate(connection)
    connection.execute("DELETE FROM meta WHERE name = 'epoch'")
    return connection


def migrate(connection: sqlite3.Connection) -> None:
    """Like `schema.migrate`, but an empty database becomes a copy of a migrated one."""
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == objects == 0:
        created().backup(connection)
    schema.migrate(connection)


def connect(path: Path, synchronous: schema.Synchronous = "full", *, readonly: bool = False) -> sqlite3.Connection:
    """Like `schema.connect`, but without waiting for the disk: a killed process loses nothing that it has written."""
    connection = schema.connect(path, synchronous, readonly=readonly)
    connection.execute("PRAGMA synchronous = OFF")
    return connection
