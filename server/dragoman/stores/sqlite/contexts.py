"""The state of conversations: an agent's JSON, with a version that makes two writers meet."""

from __future__ import annotations

import sqlite3
from typing import Final

from dragoman.core.log import CHANGED, ContextState, Head, Refused

READ: Final = "SELECT data, version FROM context_state WHERE owner = ? AND agent = ? AND context = ?"
WRITE: Final = "INSERT OR REPLACE INTO context_state (owner, agent, context, version, data) VALUES (?, ?, ?, ?, ?)"


def read(connection: sqlite3.Connection, owner: int, agent: str, context: str) -> ContextState:
    """The state as last committed; empty, of version 0, when there is none."""
    row = connection.execute(READ, (owner, agent, context)).fetchone()
    return ContextState(row[0], row[1]) if row else ContextState()


def write(connection: sqlite3.Connection, owner: int, head: Head, state: ContextState) -> None:
    """Writes the state. Raises Refused (CHANGED) when somebody else wrote it since it was read."""
    known = read(connection, owner, head.agent, head.context).version
    if state.version != known + 1:
        raise Refused(CHANGED, head)
    connection.execute(WRITE, (owner, head.agent, head.context, state.version, state.data))
