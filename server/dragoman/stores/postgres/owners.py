"""Where tasks are: their owners as numbers, and their heads.

Nobody remembers a number from one batch to the next: another process may have taken that owner away.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.log import Head, TaskRef
from dragoman.core.names import Owner
from dragoman.stores.postgres.database import NOW
from dragoman.stores.postgres.heads import COLUMNS, head_of
from dragoman.stores.postgres.rows import Statement, insert

NOBODY: Final = -1
"""The number that no owner has."""

# Row by row, in the order in which they are given: so they are locked.
_LOOK: Final = Statement(
    f"SELECT {NOW.format('$4')}, r.scope, r.principal, o.owner, h.* FROM {{rows}}"
    " LEFT JOIN owners o ON o.scope = r.scope AND o.principal = r.principal"
    f" LEFT JOIN LATERAL (SELECT t.task, {COLUMNS} FROM tasks t"
    " WHERE t.owner = o.owner AND t.task = r.task FOR UPDATE) h ON true",
    "tty",
    "scope, principal, task",
)
_ONE: Final = "SELECT owner FROM owners WHERE scope = $1 AND principal = $2"
_ADD: Final = insert("owners", "tt", "scope, principal", "ON CONFLICT DO NOTHING")
_NUMBERS: Final = Statement(
    "SELECT o.scope, o.principal, o.owner FROM {rows} JOIN owners o ON o.scope = r.scope AND o.principal = r.principal",
    "tt",
    "scope, principal",
)


@dataclass(slots=True)
class Found:
    """The store's time, the numbers of owners (NOBODY's for those who are not there), and the heads that there are."""

    now: int = 0
    numbers: dict[Owner, int] = field(default_factory=dict)
    heads: dict[TaskRef, Head] = field(default_factory=dict)


async def look(connection: Connection, tasks: Collection[TaskRef], new: Collection[Owner], at: int | None) -> Found:
    """Locks these tasks, and gives what there is of them. Owners of `new` get a number if they have none."""
    found = Found()
    rows: set[tuple[Any, ...]] = {(ref.owner.scope, ref.owner.principal, ref.key) for ref in tasks}
    rows |= {(one.scope, one.principal, b"") for one in new}  # no task has that key
    for now, scope, principal, number, key, *row in await _LOOK.fetch(connection, sorted(rows), at):
        owner = Owner(scope, principal)
        found.now = now
        found.numbers[owner] = NOBODY if number is None else number
        if key is not None:
            ref = TaskRef(owner, key)
            found.heads[ref] = head_of(ref, row)
    if missing := sorted((one.scope, one.principal) for one in new if found.numbers[one] == NOBODY):
        await _ADD.run(connection, missing)
        for scope, principal, number in await _NUMBERS.fetch(connection, missing):
            found.numbers[Owner(scope, principal)] = number
    return found


async def number_of(connection: Connection, owner: Owner) -> int:
    """An owner's number; NOBODY for one that is not there."""
    found: int | None = await connection.fetchval(_ONE, owner.scope, owner.principal)
    return NOBODY if found is None else found
