"""Searches for tasks of all owners, for operators: by index, and with a bound where no index has what matches.

The tasks that may match are in ranges of indexes, one for each agent and state, owner and agent, or owner. Each range
comes sorted, so a page needs the first rows of each. Conditions that no index answers, such as a text, are checked row
by row, in about `searched_rows` rows for a page at most: it then ends where the reading ended, and the next goes on.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from dragoman.core.access.identity import SHARED_PRINCIPAL
from dragoman.core.names import Owner, task_key_of
from dragoman.core.task import cursors
from dragoman.core.task.contents import ResponseBudget, unlimited_budget
from dragoman.core.task.cursors import FoundTask, FoundTasks, SearchPosition, TaskSearch
from dragoman.core.task.log import TaskRef
from dragoman.core.task.states import FAILED, OPEN, STORED_STATES
from dragoman.stores.shared.rows import RECORD_WIDTH, TABLE_RECORD_COLUMNS, record_from_row
from dragoman.stores.sqlite.cold import task_tables
from dragoman.stores.sqlite.queries import marks
from dragoman.stores.sqlite.reads import task_bytes

MAX_OWNER_RANGES: Final = 64
"""The tasks of a scope with more owners are read by agent and state, and those of other scopes skipped."""

_ROUNDS: Final = 4
_MIN_RANGE_ROWS: Final = 64
"""A page is read in rounds, each of so many rows of a range at least: ranges differ in where their tasks match."""
_HIGHEST: Final[SearchPosition] = (2**62, 0, b"\xff" * 17)
"""Above every task. Without a bound on its last columns SQLite would use less of an index, and sort all of it."""

_OWNERS_OF_PRINCIPAL: Final = "SELECT owner, scope FROM owners WHERE principal IN (?, ?)"
_OWNERS_WITH_CONTEXT: Final = """
SELECT o.owner, o.scope FROM owners o WHERE EXISTS (
    SELECT 1 FROM tasks t INDEXED BY tasks_by_context WHERE t.listed AND t.owner = o.owner AND t.context = ?)
"""
_IS_OWN: Final = "SELECT principal = ? FROM owners WHERE owner = ?"
"""Whether a principal created all tasks of an owner. Others may have tasks of theirs where a scope shares its tasks."""
_HAS_PRINCIPAL: Final = """
coalesce(nullif(t.principal, ''), (SELECT o.principal FROM owners o WHERE o.owner = t.owner)) = ?
"""
_DISTINCT: Final = """
WITH RECURSIVE d (value) AS (
    SELECT min(t.{column}) FROM {rows}
    UNION ALL SELECT (SELECT min(t.{column}) FROM {rows} AND t.{column} > d.value) FROM d WHERE d.value IS NOT NULL
) SELECT value FROM d WHERE value IS NOT NULL LIMIT ?
"""
"""The values of the first column of an index, in order, without reading all of its rows."""
_INACTIVE: Final = ("tasks_inactive", "state > 2 AND t.listed")
_ACTIVE: Final = ("tasks_active", "state <= 2 AND t.listed")
_BY_KEY: Final = "INDEXED BY tasks_by_key"
_BY_CAUSE: Final = "INDEXED BY tasks_by_cause"
_LOOKUP_COST: Final = 10
"""Tasks that follow each other in an index over all owners are far apart in the table."""
_FOUND_TASK: Final = f"""
SELECT {TABLE_RECORD_COLUMNS}, t.cause, t.failure_text, t.failure, t.metadata, t.created, o.scope, o.principal
FROM tasks t JOIN owners o USING (owner) WHERE t.owner = ? AND t.task = ?
"""

_AGENT_OF_CAUSE: Final = f"SELECT agent FROM tasks t {_BY_CAUSE} WHERE listed AND cause <> '' AND cause = ? LIMIT 1"
_SELECT_CAUSES: Final = _DISTINCT.format(column="cause", rows=f"tasks t {_BY_CAUSE} WHERE t.cause <> '' AND t.listed")
_SELECT_SCOPES: Final = _DISTINCT.format(column="scope", rows="owners t WHERE TRUE")


@dataclass(frozen=True, slots=True)
class SqliteRange:
    """Rows of an index in which tasks may match: the index, conditions on its columns, and those on each row.

    `cost`: how many times as long a row takes to read as one of an index or of one owner, whose tasks are neighbors.
    `agent` and `state`: those of all its rows; 0 for rows of several states.
    """

    index: str
    where: str
    values: tuple[Any, ...] = ()
    row_where: str = ""
    row_values: tuple[Any, ...] = ()
    cost: int = 1
    agent: str = ""
    state: int = 0


def search(connection: sqlite3.Connection, query: TaskSearch, budget: ResponseBudget) -> FoundTasks:
    if query.groups_failures:
        return FoundTasks(groups=list(_failure_groups(connection, query)))
    reader = SqliteRangeReader(connection, query)
    positions, following = reader.page()
    total, is_total_exact = reader.count() if query.after is None else (0, False)
    tasks = [_found_task(connection, query, position, budget) for position in positions]
    return FoundTasks(tasks, following, total, is_total_exact)


def _failure_groups(connection: sqlite3.Connection, query: TaskSearch) -> Iterator[cursors.FailureGroup]:
    """The causes of failed tasks that match, with their number, and the times of the first and the last one."""
    causes = [(query.cause,)] if query.cause else connection.execute(_SELECT_CAUSES, (cursors.MAX_CAUSES,)).fetchall()
    for (cause,) in causes:
        reader = SqliteRangeReader(connection, replace(query, cause=cause, order="changed", page_size=1))
        if positions := reader.page()[0]:
            last = _found_task(connection, query, positions[0], unlimited_budget())
            yield cursors.FailureGroup(last, reader.first(), *reader.count())


def scopes(connection: sqlite3.Connection, limit: int) -> list[str]:
    return [scope for (scope,) in connection.execute(_SELECT_SCOPES, (limit,))]


def count_states(connection: sqlite3.Connection, query: TaskSearch) -> list[cursors.StateCount]:
    query = query.for_counts
    reader = SqliteRangeReader(connection, query)
    counts, unread = Counter[int](), set[int]()
    for one in reader.ranges:
        limit = cursors.MAX_TOTAL + 1 - counts[one.state] if one.state else query.searched_rows
        if limit <= 0:
            continue
        low = reader.low(one)
        rows, values = reader.rows(one, "t.state", low=low)
        found = dict(connection.execute(f"SELECT state, count(*) FROM ({rows}) GROUP BY state", (*values, limit)))
        counts.update(found)
        if low is not None or sum(found.values()) == limit:
            unread.update((one.state,) if one.state else STORED_STATES)
    return cursors.state_counts(counts, unread)


def open_tasks(connection: sqlite3.Connection, query: TaskSearch) -> list[cursors.OpenTasks]:
    reader = SqliteRangeReader(connection, replace(query, states=OPEN))
    found = []
    for one in reader.ranges:
        low = reader.low(one)
        rows, values = reader.rows(one, "t.updated", low=low, direction="ASC")
        sql = f"SELECT count(*), min(updated) FROM ({rows})"
        count, oldest = connection.execute(sql, (*values, cursors.MAX_TOTAL + 1)).fetchone()
        if count or low is not None:
            found.append(cursors.OpenTasks(one.agent, one.state, count, low is None, oldest or 0))
    return cursors.open_task_counts(found)


class SqliteRangeReader:
    """Reads the ranges of one search."""

    def __init__(self, connection: sqlite3.Connection, query: TaskSearch) -> None:
        self._connection = connection
        self._query = query
        self.ranges = _ranges_of(connection, query)
        self._rows_per_range = max(query.searched_rows // _ROUNDS // max(len(self.ranges), 1), _MIN_RANGE_ROWS)
        self._by_creation = query.order == "created"
        self._position = "0, t.owner, t.task" if self._by_creation else "t.updated, t.owner, t.task"

    def page(self) -> tuple[list[SearchPosition], SearchPosition | None]:
        """The positions of the next tasks, and where the page after them continues."""
        size, after, read = self._query.page_size, self._query.after, 0
        found: list[SearchPosition] = []
        while True:
            floor: SearchPosition | None = None
            rows: list[SearchPosition] = []
            for one in self.ranges:
                low = self.low(one, after)
                sql, values = self.rows(one, self._position, after, low)
                matching = self._connection.execute(sql, (*values, size + 1)).fetchall()
                rows += matching
                cut = matching[-1] if len(matching) > size else low
                if cut is not None:  # what this range has below is not known yet
                    floor = cut if floor is None else max(floor, cut, key=self._sort_key)
                    read += self._rows_per_range
            rows.sort(key=self._sort_key, reverse=True)
            found += [row for row in rows if floor is None or self._sort_key(row) >= self._sort_key(floor)]
            if len(found) > size:
                return found[:size], found[size - 1]
            if floor is None or read >= self._query.searched_rows:
                return found, floor
            after = floor

    def count(self) -> tuple[int, bool]:
        """The number of tasks that match, at most `max_total`, and whether that is all."""
        total, is_exact, most = 0, True, self._query.max_total
        for one in self.ranges:
            low = self.low(one)
            rows, values = self.rows(one, "1", low=low)
            sql = f"SELECT count(*) FROM ({rows})"
            total += self._connection.execute(sql, (*values, most + 1 - total)).fetchone()[0]
            is_exact = is_exact and low is None
            if total > most:
                return most, False
        return total, is_exact

    def first(self) -> int:
        """When the first of the tasks that match changed; 0 for none."""
        times = []
        for one in self.ranges:
            rows, values = self.rows(one, "t.updated", low=self.low(one), direction="ASC")
            times += self._connection.execute(rows, (*values, 1)).fetchall()
        return min((at for (at,) in times), default=0)

    def low(self, one: SqliteRange, after: SearchPosition | None = None) -> SearchPosition | None:
        """The last position to read of a range; None if it has fewer rows, or all of them match."""
        if not one.row_where:
            return None
        sql, values = self.rows(replace(one, row_where="", row_values=()), self._position, after)
        offset = max(self._rows_per_range // one.cost, 1) - 1
        found: SearchPosition | None = self._connection.execute(f"{sql} OFFSET ?", (*values, 1, offset)).fetchone()
        return found

    def rows(
        self,
        one: SqliteRange,
        columns: str,
        after: SearchPosition | None = None,
        low: SearchPosition | None = None,
        direction: str = "DESC",
    ) -> tuple[str, list[Any]]:
        """A statement for the tasks of a range between two positions that match, and its values without the limit.

        Always in order: otherwise SQLite takes less of an index, and reads the rows of other states.
        """
        query, where, values = self._query, one.where, list(one.values)
        top = after or _HIGHEST
        if not self._by_creation and query.changed_before:
            top = min(top, (query.changed_before, 0, b""))
        key = ("t.task",) if self._by_creation else ("t.updated", "t.owner", "t.task")
        for position, comparison in ((top, "<"), (low, ">=")):
            if position is not None:
                where += f" AND ({', '.join(key)}) {comparison} ({marks(key)})"
                values += position[-len(key) :]
        if query.changed_since and not self._by_creation:
            where += " AND t.updated >= ?"
            values.append(query.changed_since)
        order = ", ".join(f"{column} {direction}" for column in key)
        sql = f"SELECT {columns} FROM tasks t {one.index} WHERE {where}{one.row_where} ORDER BY {order} LIMIT ?"
        return sql, [*values, *one.row_values]

    def _sort_key(self, position: SearchPosition) -> Any:
        return position[2] if self._by_creation else position


def _conditions(query: TaskSearch, *names: str) -> tuple[str, tuple[Any, ...]]:
    """Conditions on each row: on these fields of the search, and on its text and metadata."""
    in_scopes = f"EXISTS (SELECT 1 FROM owners o WHERE o.owner = t.owner AND o.scope IN ({marks(query.scopes)}))"
    fields: tuple[tuple[str, str, list[Any]], ...] = (
        ("agents", f"t.agent IN ({marks(query.agents)})", sorted(query.agents)),
        ("states", f"t.state IN ({marks(query.states)})", sorted(query.states)),
        ("scopes", in_scopes, sorted(query.scopes)),
        ("principal", _HAS_PRINCIPAL, [query.principal] if query.principal else []),
        ("context", "t.context = ?", [query.context] if query.context else []),
        ("times", "t.updated >= ?", [query.changed_since] if query.changed_since else []),
        ("times", "t.updated < ?", [query.changed_before] if query.changed_before else []),
        ("cause", "t.cause = ?", [query.cause] if query.cause else []),
    )
    conditions = [(condition, values) for name, condition, values in fields if name in names and values]
    if query.text:
        digits, pattern = cursors.id_digits(query.text), cursors.like_pattern(query.text)
        columns = ("t.summary", "t.status_text", *(("t.failure_text",) if query.finds_failures else ()))
        texts = " OR ".join(f"{column} LIKE ? ESCAPE '\\'" for column in columns)
        of_id = " OR hex(t.task) LIKE ?" if digits else ""
        conditions.append((f"({texts}{of_id})", [*[pattern] * len(columns), *([f"%{digits}%"] if digits else ())]))
    for key, value in query.metadata:
        entries: list[Any] = [*cursors.metadata_entries(key, value)]
        conditions.append((f"({' OR '.join(['instr(t.metadata, ?) > 0'] * len(entries))})", entries))
    values = (value for _, values in conditions for value in values)
    return "".join(f" AND {condition}" for condition, _ in conditions), tuple(values)


def _ranges_of(connection: sqlite3.Connection, query: TaskSearch) -> list[SqliteRange]:
    """Where tasks may match."""
    if query.task_id:
        rest = _conditions(query, "scopes", "agents", "states", "principal", "context", "times", "cause")
        where = "t.visible AND t.alias AND t.id = ?"
        ranges = [SqliteRange("INDEXED BY tasks_by_alias", where, (query.task_id,), *rest)]
        if key := task_key_of(query.task_id):
            where = "t.listed AND t.task = ? AND t.id = ?"
            ranges.append(SqliteRange(_BY_KEY, where, (key, query.task_id), *rest))
        return ranges
    if query.context:
        owners = _in_scopes(connection.execute(_OWNERS_WITH_CONTEXT, (query.context,)), query)
        rest = _conditions(query, "agents", "states", "principal", "times", "cause")
        index, where = "INDEXED BY tasks_by_context", "t.listed AND t.owner = ? AND t.context = ?"
        return [SqliteRange(index, where, (owner, query.context), *rest) for owner in owners]
    if query.cause and query.order == "changed":
        agent = connection.execute(_AGENT_OF_CAUSE, (query.cause,)).fetchone()
        if agent is None or (query.agents and agent[0] not in query.agents) or FAILED not in (query.states or {FAILED}):
            return []
        rest = _conditions(query, "scopes", "principal")
        return [SqliteRange(_BY_CAUSE, "t.listed AND t.cause <> '' AND t.cause = ?", (query.cause,), *rest)]
    few = _few_owners(connection, query)
    if query.order == "created":
        if few is not None:
            rest = _conditions(query, "agents", "states", "principal", "times", "cause")
            return [SqliteRange("", "t.owner = ?", (owner,), f" AND t.visible{rest[0]}", rest[1]) for owner in few]
        unindexed = query.states, query.changed_since, query.changed_before, query.metadata, query.cause
        rest = _conditions(query, "scopes", "agents", "states", "times", "cause")
        return [SqliteRange(_BY_KEY, "t.listed", (), *rest, _LOOKUP_COST if any(unindexed) else 1)]
    if few is not None:
        return [one for owner in few for one in _ranges_of_owner(connection, owner, query)]
    rest = _conditions(query, "scopes")
    cost = _LOOKUP_COST if query.text or query.metadata else 1
    return [
        SqliteRange(f"INDEXED BY {index}", f"t.{condition} AND t.agent = ? AND t.state = ?", pair, *rest, cost, *pair)
        for index, condition in (_INACTIVE, _ACTIVE)
        for pair in _pairs(connection, index, condition, query)
    ]


def _few_owners(connection: sqlite3.Connection, query: TaskSearch) -> list[int] | None:
    """The owners of the tasks; None if they are too many, or all."""
    if query.principal:
        return _in_scopes(connection.execute(_OWNERS_OF_PRINCIPAL, (query.principal, SHARED_PRINCIPAL)), query)
    if not query.scopes:
        return None
    sql = f"SELECT owner FROM owners WHERE scope IN ({marks(query.scopes)}) LIMIT ?"
    owners = [number for (number,) in connection.execute(sql, (*sorted(query.scopes), MAX_OWNER_RANGES + 1))]
    return owners if len(owners) <= MAX_OWNER_RANGES else None


def _in_scopes(rows: sqlite3.Cursor, query: TaskSearch) -> list[int]:
    return [owner for owner, scope in rows if not query.scopes or scope in query.scopes]


def _ranges_of_owner(connection: sqlite3.Connection, owner: int, query: TaskSearch) -> list[SqliteRange]:
    sql = "SELECT agent, state FROM totals WHERE owner = ? AND tasks > 0"
    pairs = [
        (agent, state)
        for agent, state in connection.execute(sql, (owner,))
        if (not query.agents or agent in query.agents) and (not query.states or state in query.states)
    ]
    (is_own,) = connection.execute(_IS_OWN, (query.principal, owner)).fetchone()
    rest = _conditions(query) if is_own or not query.principal else _conditions(query, "principal")
    if query.states:
        where = "t.listed AND t.owner = ? AND t.agent = ? AND t.state = ?"
        return [SqliteRange("INDEXED BY tasks_by_state", where, (owner, *pair), *rest, 1, *pair) for pair in pairs]
    where = "t.listed AND t.owner = ? AND t.agent = ?"
    agents = dict.fromkeys(agent for agent, _ in pairs)
    return [SqliteRange("INDEXED BY tasks_newest", where, (owner, agent), *rest) for agent in agents]


def _pairs(connection: sqlite3.Connection, index: str, condition: str, query: TaskSearch) -> list[tuple[str, int]]:
    """The pairs of agent and state in an index that the search may cover."""
    indexed = sorted(state for state in query.states or STORED_STATES if (state > 2) == (index == _INACTIVE[0]))
    agents = sorted(query.agents)
    if not agents:
        sql = _DISTINCT.format(column="agent", rows=f"tasks t INDEXED BY {index} WHERE t.{condition}")
        agents = [agent for (agent,) in connection.execute(sql, (-1,))]
    return [(agent, state) for agent in agents for state in indexed]


def _found_task(
    connection: sqlite3.Connection, query: TaskSearch, position: SearchPosition, budget: ResponseBudget
) -> FoundTask:
    _, number, key = position
    *columns, metadata, created, scope, principal = connection.execute(_FOUND_TASK, (number, key)).fetchone()
    record = record_from_row(TaskRef(Owner(scope, principal), key), columns)
    task = task_bytes(connection, number, record, metadata, 0, query.artifacts, budget)
    return FoundTask(record, created, task, task_tables.usage_of(connection, number, key), *columns[RECORD_WIDTH:])
