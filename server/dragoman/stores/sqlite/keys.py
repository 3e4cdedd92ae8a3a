"""Idempotency keys: what each was used for, until it expires."""

from __future__ import annotations

import sqlite3
from typing import Final

from dragoman.core.log import Earlier, Key, Repeated, TaskRef
from dragoman.core.names import Owner

KEPT: Final = 7 * 24 * 3600 * 1000
"""Milliseconds after which a key may stand for something else."""

FIND: Final = "SELECT digest, task, reply, created, first FROM idempotency WHERE owner = ? AND agent = ? AND key = ?"
USE: Final = "INSERT OR REPLACE INTO idempotency VALUES (?, ?, ?, ?, ?, NULL, ?, ?)"
REPLY: Final = "UPDATE idempotency SET reply = ? WHERE owner = ? AND task = ?"
FREE: Final = "DELETE FROM idempotency WHERE owner = ? AND task = ?"


def check(connection: sqlite3.Connection, number: int, owner: Owner, key: Key, now: int) -> None:
    """Raises Repeated when the key was used and has not expired."""
    row = connection.execute(FIND, (number, key.agent, key.text)).fetchone()
    if row is None or row[3] + KEPT < now:
        return
    raise Repeated(Earlier(row[0], TaskRef(owner, row[1]) if row[1] else None, row[2] or b"", row[4]))


def use(connection: sqlite3.Connection, number: int, key: Key, task: bytes, first: int, now: int) -> None:
    """Notes what the key was used for: the task, and its last sequence before that."""
    connection.execute(USE, (number, key.agent, key.text, key.digest, task, first, now))


def forget_task(connection: sqlite3.Connection, number: int, task: bytes) -> None:
    """Leaves a key of a task that was erased to answer NOT_FOUND until it expires, with nothing of an answer."""
    connection.execute("UPDATE idempotency SET task = NULL, reply = NULL WHERE owner = ? AND task = ?", (number, task))


def keep_reply(connection: sqlite3.Connection, number: int, task: bytes, reply: bytes) -> None:
    """Notes the Message that came instead of a task. Without one the key is free again: nothing came of it."""
    if reply:
        connection.execute(REPLY, (reply, number, task))
    else:
        connection.execute(FREE, (number, task))
