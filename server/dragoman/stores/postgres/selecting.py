"""Which tasks a selection means: page by page, and by an index wherever there is one.

Whoever takes a task away looks at it again before, so nothing here need be the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.erasing import Counts, Selection
from dragoman.core.isolation import EVERYONE
from dragoman.core.log import Head
from dragoman.core.names import key_of
from dragoman.stores.postgres.heads import COLUMNS, with_owners
from dragoman.stores.postgres.rows import Statement

PAGE: Final = 128
"""Tasks looked at in one read."""

At = tuple[Any, ...]
"""The sort key of the last task looked at."""

_PAGE: Final = f"""
SELECT t.updated, t.owner, o.scope, o.principal, t.task, {COLUMNS}
FROM tasks t JOIN owners o ON o.owner = t.owner WHERE {{where}}{{after}} ORDER BY {{order}} LIMIT {PAGE}
"""
_RESTING: Final = """
WITH RECURSIVE pairs (agent, state) AS (
    (SELECT agent, state FROM tasks WHERE state > 2 ORDER BY agent, state LIMIT 1)
    UNION ALL
    SELECT next.agent, next.state FROM pairs CROSS JOIN LATERAL (
        SELECT t.agent, t.state FROM tasks t WHERE t.state > 2 AND (t.agent, t.state) > (pairs.agent, pairs.state)
        ORDER BY t.agent, t.state LIMIT 1) next)
SELECT agent, state FROM pairs
"""
_BY_ID: Final = (
    "SELECT owner, task FROM tasks WHERE task = $2 UNION SELECT owner, task FROM tasks WHERE alias AND id = $1"
)
_OWNERS: Final = "SELECT owner FROM owners WHERE ($1 = '' OR scope = $1) AND ($2 = '' OR principal = $2) ORDER BY owner"
_HOSTS: Final = "SELECT DISTINCT host FROM participants WHERE owner = ANY ($1::bigint[])"
_MEASURE: Final = Statement(
    """
    SELECT r.owner, r.task,
        (SELECT coalesce(sum(length(data)), 0) FROM log l WHERE l.owner = r.owner AND l.task = r.task)::bigint,
        (SELECT coalesce(sum(length(data) + length(envelope)), 0) FROM messages m
            WHERE m.owner = r.owner AND m.task = r.task)::bigint,
        a.count, a.size::bigint, c.count, c.size::bigint
    FROM {rows}
    CROSS JOIN LATERAL (SELECT count(*) AS count, coalesce(sum(length(head)), 0) AS size FROM artifacts a
        WHERE a.owner = r.owner AND a.task = r.task) a
    CROSS JOIN LATERAL (SELECT count(*) AS count, coalesce(sum(length(data)), 0) AS size FROM chunks c
        WHERE c.owner = r.owner AND c.task = r.task) c
    """,
    "iy",
    "owner, task",
)
_PLACES: Final = Statement(
    "SELECT o.owner, r.task FROM {rows} JOIN owners o ON o.scope = r.scope AND o.principal = r.principal",
    "tty",
    "scope, principal, task",
)


@dataclass(frozen=True, slots=True)
class Range:
    """Rows of `tasks` in an order: by status time, or by key. `where` begins to count its arguments with 1."""

    where: str
    values: tuple[Any, ...]
    by_time: bool = False


async def resting(connection: Connection) -> list[tuple[str, int]]:
    """The pairs of agent and state of tasks that have ended or wait for their caller."""
    return [(row[0], row[1]) for row in await connection.fetch(_RESTING)]


async def owners(connection: Connection, selection: Selection) -> list[int]:
    """The owners that a selection allows."""
    return [row[0] for row in await connection.fetch(_OWNERS, selection.scope, selection.principal)]


async def ranges(connection: Connection, selection: Selection, now: int) -> list[Range]:
    """Where tasks of the selection are; not all that is there need be one."""
    if selection.task:
        rows = await connection.fetch(_BY_ID, selection.task, key_of(selection.task))
        return [Range("t.owner = $1 AND t.task = $2", tuple(row)) for row in rows]
    if selection.context:
        allowed = await owners(connection, selection)
        # Two indexes: one knows the tasks that callers see, the other those that nobody sees yet.
        return [
            Range(f"{visible} AND t.owner = $1 AND t.context = $2", (number, selection.context))
            for number in allowed
            for visible in ("t.visible", "NOT t.visible")
        ]
    if selection.principal:
        return [Range("t.owner = $1", (number,)) for number in await _holding(connection, selection)]
    before = now - selection.older
    found = [
        Range("t.state > 2 AND t.agent = $1 AND t.state = $2 AND t.updated <= $3", (agent, state, before), True)
        for agent, state in await resting(connection)
        if state in selection.states and selection.agent in ("", agent)
    ]
    if selection.state in (1, 2):  # no index: only an operator asks for these
        found.append(Range("t.state = $1 AND t.updated <= $2", (selection.state, before)))
    return found


async def _holding(connection: Connection, selection: Selection) -> list[int]:
    """The owners that may have tasks of a principal: its own, and those it shares with others."""
    everyone = await owners(connection, replace(selection, principal=EVERYONE))
    own = await owners(connection, selection)
    joined = [row[0] for row in await connection.fetch(_HOSTS, own)]
    return list(dict.fromkeys((*own, *everyone, *joined)))


async def page(connection: Connection, place: Range, at: At | None) -> tuple[list[Head], At | None]:
    """The next tasks of a range after `at`, and where to go on from; None at its end."""
    order = "t.updated, t.owner, t.task" if place.by_time else "t.owner, t.task"
    after = ""
    if at is not None:
        first = len(place.values) + 1
        after = f" AND ({order}) > ({', '.join(f'${number}' for number in range(first, first + len(at)))})"
    rows = await connection.fetch(_PAGE.format(where=place.where, after=after, order=order), *place.values, *(at or ()))
    heads = with_owners([row[2:] for row in rows])
    if len(rows) < PAGE:
        return heads, None
    updated, owner, task = rows[-1][0], rows[-1][1], rows[-1][4]
    return heads, (updated, owner, task) if place.by_time else (owner, task)


async def measure(connection: Connection, heads: Sequence[Head]) -> Counts:
    """What these tasks hold."""
    refs = [(head.ref.owner.scope, head.ref.owner.principal, head.ref.key) for head in heads]
    places = [tuple(row) for row in await _PLACES.fetch(connection, refs)]
    total = Counts(tasks=len(places), events=sum(h.last for h in heads), messages=sum(h.messages for h in heads))
    for _, _, log, messages, artifacts, artifact_bytes, chunks, chunk_bytes in await _MEASURE.fetch(connection, places):
        size = log + messages + artifact_bytes + chunk_bytes
        total += Counts(artifacts=artifacts, chunks=chunks, bytes=size)
    return total
