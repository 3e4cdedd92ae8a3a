"""What tasks have used: a row for each key that an agent reported, and one for what it reported without.

What a task uses counts for the task that it works for as well, and for those above. The sum stands in the metadata of
a task, where whoever reads or lists it sees it, as it was when its own agent reported last. Tasks of which nothing is
reported pay for none of it. Sums of tasks above are added to at the end of a batch, sorted, so that no two processes
wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from asyncpg import Connection

from dragoman.core.log import TaskRef
from dragoman.core.usage import DEPTH, MOST, Usage, Used, noted
from dragoman.stores.postgres.owners import number_of
from dragoman.stores.postgres.rows import escape
from dragoman.stores.postgres.standing import Place

ADD: Final = f"""
INSERT INTO usage (owner, task, key, tokens, cost) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (owner, task, key) DO UPDATE SET tokens = least(usage.tokens + excluded.tokens, {MOST}),
    cost = least(usage.cost + excluded.cost, {MOST}) WHERE usage.key = ''
"""
PASS_ON: Final = f"""
INSERT INTO delegated (owner, task, tokens, cost) VALUES ($1, $2, $3, $4)
ON CONFLICT (owner, task) DO UPDATE SET tokens = least(delegated.tokens + excluded.tokens, {MOST}),
    cost = least(delegated.cost + excluded.cost, {MOST})
"""
ROWS: Final = """
SELECT tokens, cost, 0 FROM usage WHERE owner = $1 AND task = $2
UNION ALL SELECT tokens, cost, 1 FROM delegated WHERE owner = $1 AND task = $2
"""
ATTACH: Final = "INSERT INTO parents (owner, task, parent) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
PARENT: Final = "SELECT parent FROM parents WHERE owner = $1 AND task = $2"
METADATA: Final = "SELECT metadata FROM tasks WHERE owner = $1 AND task = $2"
NOTE: Final = "UPDATE tasks SET metadata = $3 WHERE owner = $1 AND task = $2"
FORGET: Final = (
    "DELETE FROM usage WHERE owner = $1 AND task = $2",
    "DELETE FROM delegated WHERE owner = $1 AND task = $2",
    "DELETE FROM parents WHERE owner = $1 AND task = $2",
    "DELETE FROM parents WHERE owner = $1 AND parent = $2",
)

Passed = dict[Place, tuple[int, int]]
"""Tokens and cost that the tasks below some tasks have used, in one batch."""


async def attach(connection: Connection, place: Place, parent: bytes) -> None:
    """From now on a task works for another one."""
    await connection.execute(ATTACH, *place, parent)


async def add(connection: Connection, place: Place, used: Used, passed: Passed) -> Usage:
    """Counts a report, and adds to what is to be passed on to the tasks above. Gives the task's sum after that."""
    said = await connection.execute(ADD, *place, escape(used.key), used.tokens, used.cost)
    if said == "INSERT 0 1" and used.amount:
        async for above in _above(connection, place):
            tokens, cost = passed.get(above, (0, 0))
            passed[above] = min(tokens + used.tokens, MOST), min(cost + used.cost, MOST)
    if usage := await _of(connection, place):
        metadata = await connection.fetchval(METADATA, *place)
        await connection.execute(NOTE, *place, noted(metadata or b"", usage))
    return usage


async def pass_on(connection: Connection, passed: Passed) -> None:
    """Adds to the sums of tasks above."""
    for place, amounts in sorted(passed.items()):
        await connection.execute(PASS_ON, *place, *amounts)


async def read(connection: Connection, ref: TaskRef) -> Usage:
    """All that a task has used."""
    return await _of(connection, (await number_of(connection, ref.owner), ref.key))


async def forget(connection: Connection, place: Place) -> None:
    """For a task that goes. What it used was used for those above it all the same."""
    for statement in FORGET:
        await connection.execute(statement, *place)


async def _above(connection: Connection, place: Place) -> AsyncIterator[Place]:
    """The tasks that a task works for, from its own one up."""
    owner, key = place
    for _ in range(DEPTH):
        key = await connection.fetchval(PARENT, owner, key)
        if key is None:
            return
        yield owner, key


async def _of(connection: Connection, place: Place) -> Usage:
    return Usage.of(await connection.fetch(ROWS, *place))
