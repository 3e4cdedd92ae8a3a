"""Conversations that others may join: who takes part, and where their tasks are kept.

A conversation has one owner, who began it. Its tasks are rows of that owner whoever made them, so a read is the same
look for everyone who takes part; only how it finds the owner differs.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from dragoman.core.names import Owner

OPEN: Final = (
    "INSERT OR IGNORE INTO conversations (context, owner) VALUES (?, ?)",
    "INSERT OR IGNORE INTO open_tasks (task, owner) VALUES (?, ?)",
)
JOIN: Final = "INSERT OR IGNORE INTO participants (owner, host, context) VALUES (?, ?, ?)"
CLOSE: Final = "DELETE FROM open_tasks WHERE task = ?"
HOST: Final = """
SELECT o.scope, o.principal FROM conversations c JOIN owners o USING (owner) WHERE c.context = ? AND o.scope = ?
"""
BY_KEY: Final = """
SELECT t.owner FROM open_tasks s JOIN tasks t ON t.owner = s.owner AND t.task = s.task
WHERE s.task = ? AND EXISTS (SELECT 1 FROM participants WHERE owner = ? AND host = t.owner AND context = t.context)
"""
BY_ALIAS: Final = """
SELECT t.owner, t.task
FROM participants p CROSS JOIN tasks t ON t.owner = p.host AND t.agent = ? AND t.id = ? AND t.alias
WHERE p.owner = ? AND t.context = p.context LIMIT 1
"""
JOINED: Final = """
FROM participants p CROSS JOIN tasks t INDEXED BY tasks_by_context ON t.owner = p.host AND t.context = p.context
"""
"""Begins a query of the tasks of conversations that an owner (`p.owner`) has joined."""


def open_task(connection: sqlite3.Connection, owner: int, context: str, task: bytes) -> None:
    """Notes a task of a conversation that others may join."""
    connection.execute(OPEN[0], (context, owner))
    connection.execute(OPEN[1], (task, owner))


def join(connection: sqlite3.Connection, owner: int, host: int, context: str) -> None:
    """Lets an owner take part."""
    connection.execute(JOIN, (owner, host, context))


def forget_task(connection: sqlite3.Connection, _: int, task: bytes) -> None:
    """For a task that is gone."""
    connection.execute(CLOSE, (task,))


def host(connection: sqlite3.Connection, owner: Owner, context: str) -> Owner | None:
    """Under whom the tasks of a conversation of this scope are kept, None when nobody may join one of this id."""
    row = connection.execute(HOST, (context, owner.scope)).fetchone()
    return Owner(*row) if row else None


def find(connection: sqlite3.Connection, owner: int, agent: str, key: bytes | None, task_id: str) -> tuple[int, bytes]:
    """The owner and key of a task in a conversation that an owner has joined; no owner has the number -1."""
    if key and (row := connection.execute(BY_KEY, (key, owner)).fetchone()):
        return row[0], key
    if row := connection.execute(BY_ALIAS, (agent, task_id, owner)).fetchone():
        return row[0], row[1]
    return -1, b""
