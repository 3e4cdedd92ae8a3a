"""Idempotency keys: what each was used for, until it expires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from asyncpg import Connection

from dragoman.core.log import Earlier, Repeated, TaskRef
from dragoman.core.names import Owner
from dragoman.stores.postgres.rows import Statement, insert
from dragoman.stores.postgres.standing import Place

KEPT: Final = 7 * 24 * 3600 * 1000
"""Milliseconds after which a key may stand for something else."""

Name = tuple[int, str, str]
"""The number of a key's owner, its agent, and its text."""


class Used(NamedTuple):
    """What a key was used for. `host` is the task's owner where that is not the key's own, `number` its number."""

    digest: bytes
    task: bytes | None
    reply: bytes | None
    first: int
    created: int
    host: Owner | None
    number: int | None


Known = dict[Name, Used]

_FIND: Final = Statement(
    "SELECT i.owner, i.agent, i.key, i.digest, i.task, i.reply, i.first, i.created, o.scope, o.principal, i.host"
    " FROM {rows} JOIN idempotency i ON i.owner = r.owner AND i.agent = r.agent AND i.key = r.key"
    " LEFT JOIN owners o ON o.owner = i.host",
    "itt",
    "owner, agent, key",
)
_USE: Final = insert(
    "idempotency",
    "ittyyyiii",
    "owner, agent, key, digest, task, reply, first, created, host",
    "ON CONFLICT (owner, agent, key) DO UPDATE SET digest = excluded.digest, task = excluded.task,"
    " reply = excluded.reply, first = excluded.first, created = excluded.created, host = excluded.host",
)
_OF_TASK: Final = ("owner = $1 AND task = $2 AND host IS NULL", "host = $1 AND task = $2")
"""Keys of a task: of its owner, and of others who take part in its conversation."""


async def find(connection: Connection, names: Sequence[Name]) -> Known:
    """What these keys were used for."""
    rows = await _FIND.fetch(connection, names)
    found: Known = {}
    for owner, agent, key, digest, task, reply, first, created, scope, principal, number in rows:
        host = None if scope is None else Owner(scope, principal)
        found[owner, agent, key] = Used(digest, task, reply, first, created, host, number)
    return found


def check(known: Mapping[Name, Used], name: Name, owner: Owner, now: int) -> None:
    """Raises Repeated when a key of `owner` was used and has not expired."""
    used = known.get(name)
    if used is None or used.created + KEPT < now:
        return
    task = TaskRef(used.host or owner, used.task) if used.task else None
    raise Repeated(Earlier(used.digest, task, used.reply or b"", used.first))


async def use(connection: Connection, used: Mapping[Name, Used]) -> None:
    """Notes what keys were used for."""
    await _USE.run(connection, [(*name, *what[:5], what.number) for name, what in sorted(used.items(), key=_name)])


def replied(used: Used, reply: bytes) -> Used:
    """A key of a task that was discarded, as the rest of its batch finds it."""
    return used._replace(reply=reply) if reply else used._replace(created=-KEPT)


async def forget_task(connection: Connection, place: Place) -> None:
    """Leaves a key of a task that was erased to answer NOT_FOUND until it expires, with nothing of an answer."""
    for which in _OF_TASK:
        await connection.execute(f"UPDATE idempotency SET task = NULL, reply = NULL, host = NULL WHERE {which}", *place)


async def keep_reply(connection: Connection, place: Place, reply: bytes) -> None:
    """Notes the Message that came instead of a task. Without one the key is free again: nothing came of it."""
    for which in _OF_TASK:
        if reply:
            await connection.execute(f"UPDATE idempotency SET reply = $3 WHERE {which}", *place, reply)
        else:
            await connection.execute(f"DELETE FROM idempotency WHERE {which}", *place)


def _name(item: tuple[Name, Used]) -> Name:
    return item[0]
