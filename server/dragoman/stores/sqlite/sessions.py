"""Session rows: begun once, renewed, and over when they expire by the store's clock."""

from __future__ import annotations

import sqlite3


def begin(connection: sqlite3.Connection, now: int, lease: float, alone: bool) -> int:
    """A new session. `alone` ends all others."""
    if alone:
        connection.execute("UPDATE sessions SET expires = 0 WHERE expires > 0")
    cursor = connection.execute("INSERT INTO sessions (started, expires) VALUES (?, ?)", (now, _end(now, lease)))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def renew(connection: sqlite3.Connection, session: int, now: int, lease: float) -> int:
    """Puts the end of a session off. One that has expired lives again; the claims that were taken from it do not.

    Gives how many milliseconds it had left.
    """
    row = connection.execute("SELECT expires FROM sessions WHERE session = ?", (session,)).fetchone()
    connection.execute("UPDATE sessions SET expires = ? WHERE session = ?", (_end(now, lease), session))
    return int(row[0]) - now if row else 0


def alive(connection: sqlite3.Connection, now: int) -> dict[int, int]:
    """The sessions that have not expired, with the time when they will."""
    return dict(connection.execute("SELECT session, expires FROM sessions WHERE expires > ?", (now,)).fetchall())


def _end(now: int, lease: float) -> int:
    return now + round(lease * 1000)
