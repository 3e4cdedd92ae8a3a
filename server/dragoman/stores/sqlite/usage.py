"""What tasks have used: a row for each key that an agent reported, and one for what it reported without."""

from __future__ import annotations

import sqlite3
from typing import Final

from dragoman.core.log import TaskRef
from dragoman.core.usage import MOST, Usage, Used

ADD: Final = f"""
INSERT INTO usage (owner, task, key, tokens, cost) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (owner, task, key) DO UPDATE
    SET tokens = min(tokens + excluded.tokens, {MOST}), cost = min(cost + excluded.cost, {MOST}) WHERE key = ''
"""
ROWS: Final = "SELECT tokens, cost FROM usage WHERE owner = ? AND task = ?"
OWNED: Final = """
SELECT u.tokens, u.cost FROM owners o JOIN usage u USING (owner) WHERE o.scope = ? AND o.principal = ? AND u.task = ?
"""
FORGET: Final = "DELETE FROM usage WHERE owner = ? AND task = ?"


def add(connection: sqlite3.Connection, owner: int, key: bytes, used: Used) -> Usage:
    """Counts a report. Gives the sum after that."""
    connection.execute(ADD, (owner, key, used.key, used.tokens, used.cost))
    return _sum(connection.execute(ROWS, (owner, key)).fetchall())


def read(connection: sqlite3.Connection, ref: TaskRef) -> Usage:
    """All that a task has used."""
    rows = connection.execute(OWNED, (*ref.owner, ref.key)).fetchall()
    return _sum(rows)


def _sum(rows: list[tuple[int, int]]) -> Usage:
    """A sum in SQL would fail beyond 64 bits."""
    return Usage(*(min(sum(column), MOST) for column in zip(*rows, strict=True)))


def forget(connection: sqlite3.Connection, owner: int, key: bytes) -> None:
    """For a task that goes."""
    connection.execute(FORGET, (owner, key))
