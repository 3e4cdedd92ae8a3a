"""Owners as numbers. Nobody remembers them from one batch to the next: another process may have taken one away."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from asyncpg import Connection

from dragoman.core.names import Owner
from dragoman.stores.postgres.database import NOW
from dragoman.stores.postgres.rows import insert, texts

NOBODY: Final = -1
"""The number that no owner has."""

_FIND: Final = f"""
SELECT {NOW.format("$3")}, r.at, o.owner
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS r(scope, principal, at)
LEFT JOIN owners o ON o.scope = r.scope AND o.principal = r.principal
"""
_ONE: Final = "SELECT owner FROM owners WHERE scope = $1 AND principal = $2"
_ADD: Final = insert("owners", "tt", "scope, principal", "ON CONFLICT DO NOTHING")


async def numbers(
    connection: Connection, owners: Collection[Owner], new: Collection[Owner], at: int | None
) -> tuple[int, dict[Owner, int]]:
    """The store's time, and the numbers of these owners. Those of `new` get one if they have none."""
    now, found = await _look(connection, owners, at)
    if missing := sorted({(one.scope, one.principal) for one in new if found[one] == NOBODY}):
        await _ADD.run(connection, missing)
        _, found = await _look(connection, owners, at)
    return now, found


async def number_of(connection: Connection, owner: Owner) -> int:
    """An owner's number; NOBODY for one that is not there."""
    found: int | None = await connection.fetchval(_ONE, owner.scope, owner.principal)
    return NOBODY if found is None else found


async def _look(connection: Connection, owners: Collection[Owner], at: int | None) -> tuple[int, dict[Owner, int]]:
    asked = list(owners)
    rows = await connection.fetch(_FIND, texts(one.scope for one in asked), texts(one.principal for one in asked), at)
    found = {asked[row[1] - 1]: NOBODY if row[2] is None else row[2] for row in rows}
    return rows[0][0], found
