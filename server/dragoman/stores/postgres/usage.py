"""What tasks have used: a row for each key that an agent reported, and one for what it reported without."""

from __future__ import annotations

from typing import Final

from asyncpg import Connection

from dragoman.core.log import TaskRef
from dragoman.core.usage import MOST, Usage, Used
from dragoman.stores.postgres.owners import number_of
from dragoman.stores.postgres.rows import escape
from dragoman.stores.postgres.standing import Place

ADD: Final = f"""
INSERT INTO usage VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (owner, task, key) DO UPDATE SET tokens = least(usage.tokens + excluded.tokens, {MOST}),
    cost = least(usage.cost + excluded.cost, {MOST}) WHERE usage.key = ''
"""
SUM: Final = f"""
SELECT least(coalesce(sum(tokens), 0), {MOST})::bigint, least(coalesce(sum(cost), 0), {MOST})::bigint
FROM usage WHERE owner = $1 AND task = $2
"""
FORGET: Final = "DELETE FROM usage WHERE owner = $1 AND task = $2"


async def add(connection: Connection, place: Place, used: Used) -> Usage:
    """Counts a report. Gives the sum after that."""
    await connection.execute(ADD, *place, escape(used.key), used.tokens, used.cost)
    return Usage(*await connection.fetchrow(SUM, *place))


async def read(connection: Connection, ref: TaskRef) -> Usage:
    """All that a task has used."""
    return Usage(*await connection.fetchrow(SUM, await number_of(connection, ref.owner), ref.key))


async def forget(connection: Connection, place: Place) -> None:
    """For a task that goes."""
    await connection.execute(FORGET, *place)
