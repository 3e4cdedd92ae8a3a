"""Idempotency keys: what each was used for, until it expires."""

from __future__ import annotations

import sqlite3
from typing import Final

from dragoman.core.log import Earlier, Key, Repeated, TaskRef
from dragoman.core.names import Owner

KEPT: Final = 7 * 24 * 3600 * 1000
"""Milliseconds after which a key may stand for something else."""

FIND: Final = """
SELECT digest, task, reply, created, first, o.scope, o.principal
FROM idempotency i LEFT JOIN owners o ON o.owner = i.host
WHERE i.owner = ? AND agent = ? AND key = ?
"""
USE: Final = """
INSERT OR REPLACE INTO idempotency (owner, agent, key, digest, task, reply, first, created, host)
VALUES (?, ?, ?, ?, ?, NULL, ?, ?, ?)
"""
OF_TASK: Final = ("owner = ? AND task = ? AND host IS NULL", "host = ? AND task = ?")
"""Keys of a task: of its owner, and of others who take part in its conversation."""


def check(connection: sqlite3.Connection, number: int, owner: Owner, key: Key, now: int) -> None:
    """Raises Repeated when the key was used and has not expired."""
    row = connection.execute(FIND, (number, key.agent, key.text)).fetchone()
    if row is None or row[3] + KEPT < now:
        return
    holder = owner if row[6] is None else Owner(row[5], row[6])
    raise Repeated(Earlier(row[0], TaskRef(holder, row[1]) if row[1] else None, row[2] or b"", row[4]))


def use(connection: sqlite3.Connection, number: int, owner: int, key: Key, task: bytes, first: int, now: int) -> None:
    """Notes what the key of `number` was used for: a task of `owner`, and its last sequence before that."""
    host = None if owner == number else owner
    connection.execute(USE, (number, key.agent, key.text, key.digest, task, first, now, host))


def forget_task(connection: sqlite3.Connection, number: int, task: bytes) -> None:
    """Leaves a key of a task that was erased to answer NOT_FOUND until it expires, with nothing of an answer."""
    for which in OF_TASK:
        sql = f"UPDATE idempotency SET task = NULL, reply = NULL, host = NULL WHERE {which}"
        connection.execute(sql, (number, task))


def keep_reply(connection: sqlite3.Connection, number: int, task: bytes, reply: bytes) -> None:
    """Notes the Message that came instead of a task. Without one the key is free again: nothing came of it."""
    for which in OF_TASK:
        if reply:
            connection.execute(f"UPDATE idempotency SET reply = ? WHERE {which}", (reply, number, task))
        else:
            connection.execute(f"DELETE FROM idempotency WHERE {which}", (number, task))
