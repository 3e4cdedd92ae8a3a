"""Which tasks a selection means: found on a reader, page by page, and by an index wherever there is one.

The writer looks again at each of them before it takes one away, so nothing here need be the last word.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from typing import Any, Final

from dragoman.core.erasing import Counts, Selection
from dragoman.core.isolation import EVERYONE
from dragoman.core.log import Head, TaskRef
from dragoman.core.names import Owner, key_of
from dragoman.stores.sqlite.apply import HEAD_COLUMNS, head_of
from dragoman.stores.sqlite.reads import owner_number

PAGE: Final = 128
"""Tasks looked at in one read."""

Place = tuple[Any, ...]
"""The sort key of the last task looked at."""

_COLUMNS: Final = ", ".join(f"t.{column.strip()}" for column in HEAD_COLUMNS.split(","))
_PAGE: Final = """
SELECT t.updated, t.owner, o.scope, o.principal, t.task, {columns}
FROM tasks t {index} CROSS JOIN owners o ON o.owner = t.owner
WHERE {where}{after} ORDER BY {order} LIMIT ?
"""
_NEXT_PAIR: Final = """
SELECT agent, state FROM tasks WHERE state > 2 AND (agent, state) > (?, ?) ORDER BY agent, state LIMIT 1
"""
_BY_KEY: Final = """
SELECT t.owner, t.task FROM owners o CROSS JOIN tasks t ON t.owner = o.owner AND t.task = ?
UNION SELECT owner, task FROM tasks WHERE alias AND id = ?
"""
_IN_CONTEXT: Final = "SELECT 1 FROM tasks WHERE visible AND owner = ? AND context = ? LIMIT 1"
_CHUNKS: Final = "SELECT count(*), coalesce(sum(length(data)), 0) FROM chunks WHERE owner = ? AND task = ?"
_LOG: Final = "SELECT coalesce(sum(length(data)), 0) FROM log WHERE owner = ? AND task = ?"
_MESSAGES: Final = """
SELECT coalesce(sum(length(data) + length(envelope)), 0) FROM messages WHERE owner = ? AND task = ?
"""
_ARTIFACTS: Final = "SELECT count(*), coalesce(sum(length(head)), 0) FROM artifacts WHERE owner = ? AND task = ?"


@dataclass(frozen=True, slots=True)
class Range:
    """Rows of `tasks` that an index gives in order: by status time, or by key."""

    where: str
    values: tuple[Any, ...]
    index: str = ""
    """The index to use; empty for the table's own key. SQLite would rather save the sorting than the looking."""

    @property
    def by_time(self) -> bool:
        return self.index == "tasks_resting"


def resting(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """The pairs of agent and state of tasks that have ended or wait for their caller."""
    found: list[tuple[str, int]] = []
    at: tuple[str, int] = ("", 0)
    while row := connection.execute(_NEXT_PAIR, at).fetchone():
        at = (row[0], row[1])
        found.append(at)
    return found


def owners(connection: sqlite3.Connection, selection: Selection) -> list[int]:
    """The owners that a selection allows."""
    sql = "SELECT owner FROM owners WHERE (? = '' OR scope = ?) AND (? = '' OR principal = ?)"
    scope, principal = selection.scope, selection.principal
    return [number for (number,) in connection.execute(sql, (scope, scope, principal, principal))]


def ranges(connection: sqlite3.Connection, selection: Selection, now: int) -> list[Range]:
    """Where tasks of the selection are; not all that is there need be one."""
    if selection.task:
        found = connection.execute(_BY_KEY, (key_of(selection.task) or b"", selection.task))
        return [Range("t.owner = ? AND t.task = ?", tuple(row)) for row in found]
    if selection.context:
        return [one for number in owners(connection, selection) for one in _of_context(connection, number, selection)]
    if selection.principal:
        return [Range("t.owner = ?", (number,)) for number in _holding(connection, selection)]
    before = now - selection.older
    found_ranges = [
        Range("t.state > 2 AND t.agent = ? AND t.state = ? AND t.updated <= ?", (agent, state, before), "tasks_resting")
        for agent, state in resting(connection)
        if state in selection.states and selection.agent in ("", agent)
    ]
    if selection.state in (1, 2):  # no index: only an operator asks for these, and off the writer
        found_ranges.append(Range("t.state = ? AND t.updated <= ?", (selection.state, before)))
    return found_ranges


def _holding(connection: sqlite3.Connection, selection: Selection) -> list[int]:
    """The owners that may have tasks of a principal: its own, and those it shares with others."""
    everyone = owners(connection, replace(selection, principal=EVERYONE))
    own = owners(connection, selection)
    marks = ", ".join("?" * len(own))
    joined = connection.execute(f"SELECT DISTINCT host FROM participants WHERE owner IN ({marks})", own)
    return list(dict.fromkeys((*own, *everyone, *(host for (host,) in joined))))


def _of_context(connection: sqlite3.Connection, owner: int, selection: Selection) -> list[Range]:
    here = (owner, selection.context)
    found = [
        Range("t.session > 0 AND NOT t.visible AND t.owner = ? AND t.context = ?", here, "tasks_claimed"),
        Range("t.ready AND NOT t.visible AND t.owner = ? AND t.context = ?", here, "tasks_waiting"),
    ]
    if connection.execute(_IN_CONTEXT, here).fetchone():
        found.append(Range("t.visible AND t.owner = ? AND t.context = ?", here, "tasks_by_context"))
    return found


def page(connection: sqlite3.Connection, place: Range, at: Place | None) -> tuple[list[Head], Place | None]:
    """The next tasks of a range after `at`, and where to go on from; None at its end."""
    order = "t.updated, t.owner, t.task" if place.by_time else "t.owner, t.task"
    after = "" if at is None else f" AND ({order}) > ({', '.join('?' * len(at))})"
    index = f"INDEXED BY {place.index}" if place.index else ""
    sql = _PAGE.format(columns=_COLUMNS, index=index, where=place.where, after=after, order=order)
    rows = connection.execute(sql, (*place.values, *(at or ()), PAGE)).fetchall()
    heads = [head_of(TaskRef(Owner(row[2], row[3]), row[4]), row[5:]) for row in rows]
    if len(rows) < PAGE:
        return heads, None
    updated, owner, task = rows[-1][0], rows[-1][1], rows[-1][4]
    return heads, (updated, owner, task) if place.by_time else (owner, task)


def measure(connection: sqlite3.Connection, heads: list[Head]) -> Counts:
    """What these tasks hold."""
    total = Counts()
    for head in heads:
        where = (owner_number(connection, head.ref.owner), head.ref.key)
        chunks, chunk_bytes = connection.execute(_CHUNKS, where).fetchone()
        artifacts, artifact_bytes = connection.execute(_ARTIFACTS, where).fetchone()
        (log_bytes,) = connection.execute(_LOG, where).fetchone()
        (message_bytes,) = connection.execute(_MESSAGES, where).fetchone()
        size = chunk_bytes + artifact_bytes + log_bytes + message_bytes
        total += Counts(1, head.last, head.messages, artifacts, chunks, size)
    return total
