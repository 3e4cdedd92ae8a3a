"""Pages of tasks: newest status first, by an index, with the exact total of the filters."""

from __future__ import annotations

from typing import Any, Final

from asyncpg import Connection

from dragoman.core.log import TaskRef
from dragoman.core.names import Owner
from dragoman.core.pages import Page, Query, sort_key
from dragoman.stores.postgres.heads import WIDTH, head_of
from dragoman.stores.postgres.joining import JOINED
from dragoman.stores.postgres.owners import NOBODY, number_of
from dragoman.stores.postgres.reads import CHUNKS, TASK, task_bytes

_ORDER: Final = "ORDER BY updated DESC, task DESC"
_SHOWN: Final = f"""
SELECT {TASK}, t.task, o.scope, o.principal
FROM ({{found}}) f JOIN tasks t ON t.owner = f.owner AND t.task = f.task JOIN owners o ON o.owner = t.owner {CHUNKS}
ORDER BY f.updated DESC, f.task DESC
"""


class _Sql:
    """Conditions, and their arguments in order."""

    def __init__(self, *values: Any) -> None:
        self.values = list(values)
        self.where = ""

    def also(self, condition: str, *values: Any) -> None:
        """One condition more; `{}` in it are arguments."""
        first = len(self.values) + 1
        self.values += values
        self.where += f" AND {condition.format(*(f'${number}' for number in range(first, first + len(values))))}"


async def page(connection: Connection, query: Query) -> Page:
    number = await number_of(connection, query.owner)
    if number == NOBODY:
        return Page()
    sql = _Sql(number)
    sql.also("t.visible AND t.agent = {}", query.agent)
    if query.context:
        sql.also("t.context = {}", query.context)
    if query.state:
        sql.also("t.state = {}", query.state)
    if query.since:
        sql.also("t.updated >= {}", query.since)
    total = await _total(connection, number, query, sql)
    if query.after is not None:
        sql.also("(t.updated, t.task) < ({}, {})", *query.after)
    limit = f"${len(sql.values) + 1}"
    own = f"SELECT t.owner, t.task, t.updated FROM tasks t WHERE t.owner = $1{sql.where} {_ORDER} LIMIT {limit}"
    if query.joined:  # each comes sorted from an index, and is read as far as shown
        joined = f"SELECT t.owner, t.task, t.updated {JOINED} WHERE p.owner = $1{sql.where} {_ORDER} LIMIT {limit}"
        own = f"SELECT * FROM (({own}) UNION ALL ({joined})) both_kinds {_ORDER} LIMIT {limit}"
    shown, more = _SHOWN.replace("{found}", own), len(sql.values)
    history, artifacts = f"${more + 2}::bigint", f"${more + 3}::boolean"
    parts = shown.split("{}")  # in TASK how many messages, in CHUNKS whether there are artifacts
    text = f"{parts[0]}{history}{parts[1]}{artifacts}{parts[2]}"
    rows = await connection.fetch(text, *sql.values, query.size + 1, query.history, query.artifacts)
    tasks, head = [], None
    for row in rows[: query.size]:
        key, scope, principal = row[WIDTH + 7 :]
        head = head_of(TaskRef(Owner(scope, principal), key), row)
        tasks.append(task_bytes(head, row))
    is_last = head is None or len(rows) <= query.size
    return Page(tasks, total, None if is_last or head is None else sort_key(head))


async def _total(connection: Connection, owner: int, query: Query, sql: _Sql) -> int:
    joined = 0
    if query.joined:
        joined = await connection.fetchval(f"SELECT count(*) {JOINED} WHERE p.owner = $1{sql.where}", *sql.values)
    if query.context or query.since:
        count = f"SELECT count(*) FROM tasks t WHERE t.owner = $1{sql.where}"
        return int(joined + await connection.fetchval(count, *sql.values))
    totals = "SELECT coalesce(sum(tasks), 0)::bigint FROM totals WHERE owner = $1 AND agent = $2"
    if query.state:
        return int(joined + await connection.fetchval(f"{totals} AND state = $3", owner, query.agent, query.state))
    return int(joined + await connection.fetchval(totals, owner, query.agent))
