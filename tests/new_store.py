"""SQLite stores that are made in a moment: most tests open a new one, which takes longer than what they do with it."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path
from typing import Final

from dragoman.stores.sqlite import schema

OURS: Final = schema._steps
"""The migrations as they are; some tests put others in their place."""


@cache
def created() -> sqlite3.Connection:
    """A store that the migrations made, as it is before it gets an epoch of its own."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    schema.migrate(connection)
    connection.execute("DELETE FROM meta WHERE name = 'epoch'")
    return connection


def migrate(connection: sqlite3.Connection) -> None:
    """As `schema.migrate` does, but an empty database becomes a copy of one that it made."""
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if schema._steps is OURS and version == objects == 0:
        created().backup(connection)
    schema.migrate(connection)


def connect(path: Path, synchronous: schema.Synchronous = "full", *, readonly: bool = False) -> sqlite3.Connection:
    """As `schema.connect` does, but it does not wait for the disk. Nobody cuts the power; a process that is killed
    loses nothing of what the system has."""
    connection = schema.connect(path, synchronous, readonly=readonly)
    connection.execute("PRAGMA synchronous = OFF")
    return connection
