"""Searches for tasks of all owners, for operators: by index, and with a bound where no index has what matches.

As in SQLite (dragoman.stores.sqlite.cold.search), the tasks that may match are in sorted ranges of indexes. Here
one statement reads all ranges of a kind, because each statement is a round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.access.identity import SHARED_PRINCIPAL
from dragoman.core.limits.quotas import Usage
from dragoman.core.names import Owner
from dragoman.core.task.contents import ResponseBudget, unlimited_budget
from dragoman.core.task.cursors import (
    MAX_CAUSES,
    FailureGroup,
    FoundTask,
    FoundTasks,
    SearchPosition,
    TaskSearch,
    id_digits,
    like_pattern,
    metadata_entries,
)
from dragoman.core.task.log import TaskRef
from dragoman.core.task.states import FAILED, STORED_STATES
from dragoman.extensions.postgres.maintenance.partitions import DAY_MS, first_key, key_literal
from dragoman.extensions.postgres.reads import CHUNKS, TASK, TASK_WIDTH, keys_of_id, task_bytes
from dragoman.extensions.postgres.rows import text_array
from dragoman.stores.shared.rows import record_from_row

MAX_OWNER_RANGES: Final = 64
"""The tasks of a scope with more owners are read by agent and state, and those of other scopes skipped."""

_ROUNDS: Final = 4
_MIN_RANGE_ROWS: Final = 64
"""A page is read in rounds, each of so many rows of a range at least: ranges differ in where their tasks match."""
LOWEST: Final[SearchPosition] = (0, 0, b"")

_SCOPES: Final = """
WITH RECURSIVE s AS (
    SELECT min(scope) AS scope FROM owners
    UNION ALL SELECT (SELECT min(o.scope) FROM owners o WHERE o.scope > s.scope) FROM s WHERE s.scope IS NOT NULL
) SELECT scope FROM s WHERE scope IS NOT NULL LIMIT $1
"""
_OWNERS_OF_PRINCIPAL: Final = "SELECT owner, scope FROM owners WHERE principal IN ($1, $2)"
_OWNERS_WITH_CONTEXT: Final = """
SELECT o.owner, o.scope FROM owners o WHERE EXISTS (
    SELECT 1 FROM tasks t WHERE t.visible AND t.owner = o.owner AND t.context = $1)
"""
_CAUSES: Final = """
WITH RECURSIVE c AS (
    SELECT min(cause) AS cause FROM tasks WHERE cause <> ''
    UNION ALL SELECT (SELECT min(t.cause) FROM tasks t WHERE t.cause <> '' AND t.cause > c.cause) FROM c
    WHERE c.cause IS NOT NULL
) SELECT cause FROM c WHERE cause IS NOT NULL LIMIT $1
"""
_PAIRS: Final = """
WITH RECURSIVE p AS (
    (SELECT agent, state FROM tasks WHERE {condition} ORDER BY agent, state LIMIT 1)
    UNION ALL SELECT n.agent, n.state FROM p CROSS JOIN LATERAL (
        SELECT t.agent, t.state FROM tasks t WHERE t.{condition} AND (t.agent, t.state) > (p.agent, p.state)
        ORDER BY t.agent, t.state LIMIT 1) n
) SELECT agent, state FROM p
"""
_INACTIVE: Final = "state > 2"
_ACTIVE: Final = "state <= 2"
RANGES: Final = (
    "unnest($1::bigint[], $2::text[], $3::int[], $4::bigint[], $5::bigint[], $6::bytea[])"
    " WITH ORDINALITY r(owner, agent, state, low_updated, low_owner, low_task, n)"
)
_FOUND_TASKS: Final = f"""
SELECT {TASK.format(history="$3::bigint")}, t.task, o.scope, o.principal, t.created, t.owner,
    t.cause, t.failure_text, t.failure
FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY f(owner, task, n)
JOIN tasks t ON t.owner = f.owner AND t.task = f.task JOIN owners o ON o.owner = t.owner
{CHUNKS.format(artifacts="$4::boolean")}
ORDER BY f.n
"""
_USAGE: Final = """
SELECT u.owner, u.task, u.tokens, u.cost, u.delegated FROM (
    SELECT owner, task, tokens, cost, 0 AS delegated FROM usage
    UNION ALL SELECT owner, task, tokens, cost, 1 FROM delegated_usage) u
JOIN unnest($1::bigint[], $2::bytea[]) f(owner, task) ON u.owner = f.owner AND u.task = f.task
"""


@dataclass(frozen=True, slots=True)
class PostgresRanges:
    """Ranges of one index in which tasks may match: a condition on a row `r`, and rows of owner, agent and state."""

    where: str
    rows: list[tuple[int, str, int]]


class StatementArguments:
    """Arguments of a statement after those of its ranges."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def mark(self, value: Any, kind: str) -> str:
        """Adds a value and returns its place in the statement."""
        self.values.append(value)
        return f"${len(self.values) + 6}::{kind}"


async def scopes(connection: Connection, limit: int) -> list[str]:
    """The scopes of the store in alphabetical order."""
    return [row[0] for row in await connection.fetch(_SCOPES, limit)]


async def search(connection: Connection, query: TaskSearch, budget: ResponseBudget) -> FoundTasks:
    """One page of a search, or the groups of its failures."""
    if query.groups_failures:
        return FoundTasks(groups=await _failure_groups(connection, query))
    ranges, is_exact = await ranges_of(connection, query)
    reader = PostgresRangeReader(connection, query, [one for one in ranges if one.rows], is_exact)
    positions, following = await reader.page()
    total, is_total_exact = await reader.count() if query.after is None else (0, False)
    tasks = await _found_tasks(connection, query, positions, budget)
    return FoundTasks(tasks, following, total, is_total_exact)


async def _failure_groups(connection: Connection, query: TaskSearch) -> list[FailureGroup]:
    """The causes of failed tasks that match, with their number, and the times of the first and the last one."""
    groups = []
    rows = [(query.cause,)] if query.cause else await connection.fetch(_CAUSES, MAX_CAUSES)
    for (cause,) in rows:
        one = replace(query, cause=cause, order="changed", page_size=1)
        ranges, is_exact = await ranges_of(connection, one)
        reader = PostgresRangeReader(connection, one, [group for group in ranges if group.rows], is_exact)
        if last := await _found_tasks(connection, one, (await reader.page())[0], unlimited_budget()):
            groups.append(FailureGroup(last[0], await reader.first(), *await reader.count()))
    return groups


class PostgresRangeReader:
    """Reads the ranges of one search. `is_exact`: see `ranges_of`."""

    def __init__(self, connection: Connection, query: TaskSearch, groups: list[PostgresRanges], is_exact: bool) -> None:
        self._connection = connection
        self._query = query
        self.groups = groups
        self._is_exact = is_exact
        self._is_selective = bool(_conditions(query, is_exact, StatementArguments()))
        number = sum(len(group.rows) for group in groups)
        self.rows_per_range = max(query.searched_rows // _ROUNDS // max(number, 1), _MIN_RANGE_ROWS)
        self._by_creation = query.order == "created"
        self._order = "t.task DESC" if self._by_creation else "t.updated DESC, t.owner DESC, t.task DESC"
        self._position = "0::bigint, t.owner, t.task" if self._by_creation else "t.updated, t.owner, t.task"

    async def page(self) -> tuple[list[SearchPosition], SearchPosition | None]:
        """The positions of the next tasks, and where the page after them continues."""
        size, after, read = self._query.page_size, self._query.after, 0
        found: list[SearchPosition] = []
        range_rows = self.rows_per_range
        while True:
            floor: SearchPosition | None = None
            rows: list[SearchPosition] = []
            for group in self.groups:
                lows = await self.lows(group, after, range_rows)
                for low, matching in zip(lows, await self._matching(group, after, lows, size + 1), strict=True):
                    rows += matching
                    cut = matching[-1] if len(matching) > size else low
                    if cut != LOWEST:  # what this range has below is not known yet
                        floor = cut if floor is None else max(floor, cut, key=self._sort_key)
                        read += range_rows
            rows.sort(key=self._sort_key, reverse=True)
            found += [row for row in rows if floor is None or self._sort_key(row) >= self._sort_key(floor)]
            if len(found) > size:
                return found[:size], found[size - 1]
            if floor is None or read >= self._query.searched_rows:
                return found, floor
            after = floor

    async def count(self) -> tuple[int, bool]:
        """The number of tasks that match, at most `max_total`, and whether that is all."""
        total, is_exact = 0, True
        rows = self.rows_per_range
        for group in self.groups:
            lows = await self.lows(group, None, rows)
            arguments = StatementArguments()
            limit = arguments.mark(self._query.max_total + 1 - total, "bigint")
            where = self.where(group, None, arguments)
            found = f"SELECT 1 FROM {RANGES} CROSS JOIN LATERAL (SELECT 1 FROM tasks t WHERE {where}) x LIMIT {limit}"
            sql = f"SELECT count(*) FROM ({found}) y"
            total += await self._connection.fetchval(sql, *range_columns(group.rows, lows), *arguments.values)
            is_exact = is_exact and all(low == LOWEST for low in lows)
            if total > self._query.max_total:
                return self._query.max_total, False
        return total, is_exact

    async def first(self) -> int:
        """When the first of the tasks that match changed; 0 for none."""
        times = []
        for group in self.groups:
            lows, arguments = await self.lows(group, None, self.rows_per_range), StatementArguments()
            sql = (
                f"SELECT min(x.updated) FROM {RANGES} CROSS JOIN LATERAL (SELECT t.updated FROM tasks t"
                f" WHERE {self.where(group, None, arguments)} ORDER BY t.updated, t.owner, t.task LIMIT 1) x"
            )
            times.append(await self._connection.fetchval(sql, *range_columns(group.rows, lows), *arguments.values))
        return min(filter(None, times), default=0)

    def _sort_key(self, position: SearchPosition) -> Any:
        return position[2] if self._by_creation else position

    async def lows(self, group: PostgresRanges, after: SearchPosition | None, rows: int) -> list[SearchPosition]:
        """The last position to read of each range; LOWEST for one with fewer rows."""
        lows = [LOWEST] * len(group.rows)
        if not self._is_selective:
            return lows
        arguments = StatementArguments()
        where, offset = self._bounded(group, after, arguments), arguments.mark(rows - 1, "bigint")
        sql = (
            f"SELECT r.n, x.* FROM {RANGES} CROSS JOIN LATERAL (SELECT {self._position} FROM tasks t WHERE {where}"
            f" ORDER BY {self._order} LIMIT 1 OFFSET {offset}) x"
        )
        rows_found = await self._connection.fetch(sql, *range_columns(group.rows, lows), *arguments.values)
        for number, at, owner, key in rows_found:
            lows[number - 1] = at, owner, key
        return lows

    async def _matching(
        self, group: PostgresRanges, after: SearchPosition | None, lows: list[SearchPosition], limit: int
    ) -> list[list[SearchPosition]]:
        """The first positions in each range whose tasks match."""
        arguments = StatementArguments()
        where = self.where(group, after, arguments)
        sql = (
            f"SELECT r.n, x.* FROM {RANGES} CROSS JOIN LATERAL (SELECT {self._position} FROM tasks t WHERE {where}"
            f" ORDER BY {self._order} LIMIT {arguments.mark(limit, 'bigint')}) x"
        )
        found: list[list[SearchPosition]] = [[] for _ in group.rows]
        rows = await self._connection.fetch(sql, *range_columns(group.rows, lows), *arguments.values)
        for number, at, owner, key in rows:
            found[number - 1].append((at, owner, key))
        for positions in found:
            positions.sort(key=self._sort_key, reverse=True)
        return found

    def where(self, group: PostgresRanges, after: SearchPosition | None, arguments: StatementArguments) -> str:
        """The condition on the tasks of a range that match."""
        low = "t.task >= r.low_task"
        if not self._by_creation:
            low = "(t.updated, t.owner, t.task) >= (r.low_updated, r.low_owner, r.low_task)"
        conditions = _conditions(self._query, self._is_exact, arguments)
        return f"{self._bounded(group, after, arguments)} AND {low} AND t.visible{conditions}"

    def _bounded(self, group: PostgresRanges, after: SearchPosition | None, arguments: StatementArguments) -> str:
        where = group.where
        if after is not None and self._by_creation:
            where += f" AND t.task < {arguments.mark(after[2], 'bytea')}"
        elif after is not None:
            marks = map(arguments.mark, after, ("bigint", "bigint", "bytea"))
            where += f" AND (t.updated, t.owner, t.task) < ({', '.join(marks)})"
        return where if self._by_creation else where + _in_time(self._query, arguments)


def range_columns(rows: Sequence[tuple[int, str, int]], lows: Sequence[SearchPosition]) -> list[list[Any]]:
    """The arguments of RANGES."""
    owners, agents, states = (list(column) for column in zip(*rows, strict=True))
    low_times, low_owners, low_tasks = (list(column) for column in zip(*lows, strict=True))
    return [owners, text_array(agents), states, low_times, low_owners, low_tasks]


def _in_time(query: TaskSearch, arguments: StatementArguments) -> str:
    where = ""
    if query.changed_since:
        where += f" AND t.updated >= {arguments.mark(query.changed_since, 'bigint')}"
    if query.changed_before:
        where += f" AND t.updated < {arguments.mark(query.changed_before, 'bigint')}"
        # No task is created after its change: later partitions are not read. A day: keys have the time of the servers.
        where += f" AND t.task < {key_literal(first_key(query.changed_before // DAY_MS + 2))}"
    return where


def _conditions(query: TaskSearch, is_exact: bool, arguments: StatementArguments) -> str:
    """The conditions on a task beyond its range. `is_exact`: see `ranges_of`."""
    where = ""
    if not is_exact:
        if query.agents:
            where += f" AND t.agent = ANY ({arguments.mark(text_array(sorted(query.agents)), 'text[]')})"
        if query.states:
            where += f" AND t.state = ANY ({arguments.mark(sorted(query.states), 'int[]')})"
        if query.scopes:
            scopes = arguments.mark(text_array(sorted(query.scopes)), "text[]")
            where += f" AND EXISTS (SELECT 1 FROM owners o WHERE o.owner = t.owner AND o.scope = ANY ({scopes}))"
        if query.principal:
            where += f" AND t.principal = {arguments.mark(query.principal, 'text')}"
        if query.context:
            where += f" AND t.context = {arguments.mark(query.context, 'text')}"
        if query.cause:
            where += f" AND t.cause = {arguments.mark(query.cause, 'text')}"
        if query.order == "created":
            where += _in_time(query, arguments)
    if query.text:
        pattern = arguments.mark(like_pattern(query.text), "text")
        digits = id_digits(query.text)
        of_id = f" OR encode(t.task, 'hex') LIKE {arguments.mark(f'%{digits}%', 'text')}" if digits else ""
        of_failure = f" OR t.failure_text ILIKE {pattern}" if query.finds_failures else ""
        where += f" AND (t.summary ILIKE {pattern} OR t.status_text ILIKE {pattern}{of_failure}{of_id})"
    for key, value in query.metadata:
        entries = [arguments.mark(entry, "bytea") for entry in metadata_entries(key, value)]
        where += f" AND ({' OR '.join(f'position({entry} IN t.metadata) > 0' for entry in entries)})"
    return where


async def ranges_of(connection: Connection, query: TaskSearch) -> tuple[list[PostgresRanges], bool]:
    """Where tasks may match, and whether all conditions but text and metadata hold there."""
    if query.task_id:
        keys = await keys_of_id(connection, query.task_id)
        where = f"t.id = r.agent AND t.task IN ({', '.join(key_literal(key) for key in keys) or 'NULL'})"
        return [PostgresRanges(where, [(0, query.task_id, 0)])], False
    if query.context:
        owners = _in_scopes(await connection.fetch(_OWNERS_WITH_CONTEXT, query.context), query)
        arguments = "t.visible AND t.owner = r.owner AND t.context = r.agent"
        return [PostgresRanges(arguments, [(owner, query.context, 0) for owner in owners])], False
    if query.cause and query.order == "changed":
        where = "t.cause <> '' AND t.cause = r.agent"
        rows = [(0, query.cause, 0)] if FAILED in (query.states or {FAILED}) else []
        return [PostgresRanges(where, rows)], not (query.scopes or query.agents or query.principal)
    few = await _few_owners(connection, query)
    if query.order == "created":
        if few is not None:
            return [PostgresRanges("t.owner = r.owner", [(owner, "", 0) for owner in few])], False
        filters = query.scopes, query.agents, query.states, query.changed_since, query.changed_before, query.cause
        return [PostgresRanges("true", [(0, "", 0)])], not any(filters)
    if few is not None:
        return [await _ranges_of_owners(connection, few, query)], not query.principal
    return [
        PostgresRanges(
            f"t.{condition} AND t.agent = r.agent AND t.state = r.state",
            [(0, agent, state) for agent, state in await _pairs(connection, condition, query)],
        )
        for condition in (_INACTIVE, _ACTIVE)
    ], not query.scopes


async def _few_owners(connection: Connection, query: TaskSearch) -> list[int] | None:
    """The owners of the tasks; None if they are too many, or all."""
    if query.principal:
        return _in_scopes(await connection.fetch(_OWNERS_OF_PRINCIPAL, query.principal, SHARED_PRINCIPAL), query)
    if not query.scopes:
        return None
    sql = "SELECT owner FROM owners WHERE scope = ANY ($1::text[]) LIMIT $2"
    rows = await connection.fetch(sql, text_array(sorted(query.scopes)), MAX_OWNER_RANGES + 1)
    return [row[0] for row in rows] if len(rows) <= MAX_OWNER_RANGES else None


def _in_scopes(rows: Sequence[Any], query: TaskSearch) -> list[int]:
    return [owner for owner, scope in rows if not query.scopes or scope in query.scopes]


async def _ranges_of_owners(connection: Connection, owners: list[int], query: TaskSearch) -> PostgresRanges:
    sql = "SELECT DISTINCT owner, agent, state FROM totals WHERE owner = ANY ($1::bigint[])"
    pairs = [
        (owner, agent, state)
        for owner, agent, state in await connection.fetch(sql, owners)
        if (not query.agents or agent in query.agents) and (not query.states or state in query.states)
    ]
    where = "t.visible AND t.owner = r.owner AND t.agent = r.agent"
    if query.states:
        return PostgresRanges(f"{where} AND t.state = r.state", pairs)
    return PostgresRanges(where, list(dict.fromkeys((owner, agent, 0) for owner, agent, _ in pairs)))


async def _pairs(connection: Connection, condition: str, query: TaskSearch) -> list[tuple[str, int]]:
    """The pairs of agent and state under a condition that the search may cover."""
    indexed = {state for state in query.states or STORED_STATES if (state > 2) == (condition == _INACTIVE)}
    if query.agents:
        return [(agent, state) for agent in sorted(query.agents) for state in sorted(indexed)]
    rows = await connection.fetch(_PAIRS.format(condition=condition))
    return [(agent, state) for agent, state in rows if state in indexed]


async def _found_tasks(
    connection: Connection, query: TaskSearch, positions: list[SearchPosition], budget: ResponseBudget
) -> list[FoundTask]:
    if not positions:
        return []
    keys = [owner for _, owner, _ in positions], [task for _, _, task in positions]
    used: dict[tuple[int, bytes], list[tuple[int, int, int]]] = {}
    for owner, task, tokens, cost, delegated in await connection.fetch(_USAGE, *keys):
        used.setdefault((owner, task), []).append((tokens, cost, delegated))
    found = []
    for row in await connection.fetch(_FOUND_TASKS, *keys, 0, query.artifacts):
        key, scope, principal, created, owner, *failure = row[TASK_WIDTH:]
        record = record_from_row(TaskRef(Owner(scope, principal), key), row)
        usage = Usage.total(used.get((owner, key), ()))
        task = await task_bytes(connection, record, row, 0, budget)
        found.append(FoundTask(record, created, task, usage, *failure))
    return found
