"""What tasks have used: a row for each key that an agent reported, and one for what it reported without.

What a task uses counts for the task that it works for as well, and for those above. The sum stands in the metadata of
a task, where whoever reads or lists it sees it, as it was when its own agent reported last. Tasks of which nothing is
reported pay for none of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from dragoman.core.log import TaskRef
from dragoman.core.usage import DEPTH, MOST, NONE, Usage, Used, noted

ADD: Final = f"""
INSERT INTO usage (owner, task, key, tokens, cost) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (owner, task, key) DO UPDATE
    SET tokens = min(tokens + excluded.tokens, {MOST}), cost = min(cost + excluded.cost, {MOST}) WHERE key = ''
"""
PASS_ON: Final = f"""
INSERT INTO delegated (owner, task, tokens, cost) VALUES (?, ?, ?, ?)
ON CONFLICT (owner, task) DO UPDATE
    SET tokens = min(tokens + excluded.tokens, {MOST}), cost = min(cost + excluded.cost, {MOST})
"""
ROWS: Final = """
SELECT tokens, cost, 0 FROM usage WHERE owner = ?1 AND task = ?2
UNION ALL SELECT tokens, cost, 1 FROM delegated WHERE owner = ?1 AND task = ?2
"""
OWNER: Final = "SELECT owner FROM owners WHERE scope = ? AND principal = ?"
ATTACH: Final = "INSERT OR IGNORE INTO parents (owner, task, parent) VALUES (?, ?, ?)"
PARENT: Final = "SELECT parent FROM parents WHERE owner = ? AND task = ?"
METADATA: Final = "SELECT metadata FROM tasks WHERE owner = ? AND task = ?"
NOTE: Final = "UPDATE tasks SET metadata = ? WHERE owner = ? AND task = ?"
FORGET: Final = (
    "DELETE FROM usage WHERE owner = ?1 AND task = ?2",
    "DELETE FROM delegated WHERE owner = ?1 AND task = ?2",
    "DELETE FROM parents WHERE owner = ?1 AND task = ?2",
    "DELETE FROM parents WHERE owner = ?1 AND parent = ?2",
)


def attach(connection: sqlite3.Connection, owner: int, key: bytes, parent: bytes) -> None:
    """From now on a task works for another one."""
    connection.execute(ATTACH, (owner, key, parent))


def add(connection: sqlite3.Connection, owner: int, key: bytes, used: Used) -> Usage:
    """Counts a report, for the task and those above it. Gives the task's sum after that."""
    counted = connection.execute(ADD, (owner, key, used.key, used.tokens, used.cost)).rowcount
    if counted and used.amount:
        for above in _above(connection, owner, key):
            connection.execute(PASS_ON, (owner, above, used.tokens, used.cost))
    if usage := _of(connection, owner, key):
        (metadata,) = connection.execute(METADATA, (owner, key)).fetchone()
        connection.execute(NOTE, (noted(metadata, usage), owner, key))
    return usage


def read(connection: sqlite3.Connection, ref: TaskRef) -> Usage:
    """All that a task has used."""
    row = connection.execute(OWNER, ref.owner).fetchone()
    return _of(connection, row[0], ref.key) if row else NONE


def forget(connection: sqlite3.Connection, owner: int, key: bytes) -> None:
    """For a task that goes. What it used was used for those above it all the same."""
    for statement in FORGET:
        connection.execute(statement, (owner, key))


def _above(connection: sqlite3.Connection, owner: int, key: bytes) -> Iterator[bytes]:
    """The tasks that a task works for, from its own one up."""
    for _ in range(DEPTH):
        row = connection.execute(PARENT, (owner, key)).fetchone()
        if row is None:
            return
        (key,) = row
        yield key


def _of(connection: sqlite3.Connection, owner: int, key: bytes) -> Usage:
    """A sum in SQL would fail beyond 64 bits."""
    return Usage.of(connection.execute(ROWS, (owner, key)).fetchall())
