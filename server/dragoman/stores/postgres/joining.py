"""Conversations that others may join: who takes part, and where their tasks are kept.

A conversation has one owner, who began it. Its tasks are rows of that owner whoever made them, so a read is the same
look for everyone who takes part; only how it finds the owner differs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from asyncpg import Connection

from dragoman.core.names import Owner
from dragoman.stores.postgres.owners import NOBODY
from dragoman.stores.postgres.rows import insert
from dragoman.stores.postgres.standing import Place

_JOIN: Final = insert("participants", "iit", "owner, host, context", "ON CONFLICT DO NOTHING")
_OPEN: Final = insert("conversations", "ti", "context, owner", "ON CONFLICT DO NOTHING")
_TASK: Final = insert("open_tasks", "yi", "task, owner", "ON CONFLICT DO NOTHING")
_CLOSE: Final = "DELETE FROM open_tasks WHERE task = $1"
_HOST: Final = """
SELECT o.scope, o.principal FROM conversations c JOIN owners o USING (owner) WHERE c.context = $1 AND o.scope = $2
"""
_BY_KEY: Final = """
SELECT t.owner FROM open_tasks s JOIN tasks t ON t.owner = s.owner AND t.task = s.task
WHERE s.task = $1 AND EXISTS (SELECT 1 FROM participants WHERE owner = $2 AND host = t.owner AND context = t.context)
"""
_BY_ALIAS: Final = """
SELECT t.owner, t.task FROM participants p JOIN tasks t ON t.owner = p.host AND t.agent = $1 AND t.id = $2 AND t.alias
WHERE p.owner = $3 AND t.context = p.context LIMIT 1
"""
JOINED: Final = "FROM participants p JOIN tasks t ON t.owner = p.host AND t.context = p.context"
"""Begins a query of the tasks of conversations that an owner (`p.owner`) has joined."""


async def open_tasks(connection: Connection, opened: Collection[tuple[str, int, bytes]]) -> None:
    """Notes tasks of conversations that others may join."""
    await _OPEN.run(connection, sorted({(context, owner) for context, owner, _ in opened}))
    await _TASK.run(connection, sorted((task, owner) for _, owner, task in opened))


async def join(connection: Connection, joined: Collection[tuple[int, int, str]]) -> None:
    """Lets owners take part."""
    await _JOIN.run(connection, sorted(joined))


async def forget_task(connection: Connection, place: Place) -> None:
    """For a task that is gone."""
    await connection.execute(_CLOSE, place[1])


async def host(connection: Connection, owner: Owner, context: str) -> Owner | None:
    """Under whom the tasks of a conversation of this scope are kept, None when nobody may join one of this id."""
    row = await connection.fetchrow(_HOST, context, owner.scope)
    return Owner(*row) if row else None


async def find(connection: Connection, owner: int, agent: str, key: bytes | None, task_id: str) -> Place:
    """The owner and key of a task in a conversation that an owner has joined; NOBODY's when there is none."""
    if key and (row := await connection.fetchrow(_BY_KEY, key, owner)):
        return row[0], key
    if row := await connection.fetchrow(_BY_ALIAS, agent, task_id, owner):
        return row[0], row[1]
    return NOBODY, b""
