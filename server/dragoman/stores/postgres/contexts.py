"""The state of conversations: an agent's JSON, with a version that makes two writers meet."""

from __future__ import annotations

from typing import Final

from asyncpg import Connection

from dragoman.core.log import CHANGED, ContextState, Head, Refused

_READ: Final = "SELECT data, version FROM context_state WHERE owner = $1 AND agent = $2 AND context = $3"
_WRITE: Final = """
INSERT INTO context_state (owner, agent, context, version, data) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (owner, agent, context) DO UPDATE SET version = excluded.version, data = excluded.data
"""


async def read(connection: Connection, owner: int, agent: str, context: str) -> ContextState:
    """The state as last committed; empty, of version 0, when there is none."""
    row = await connection.fetchrow(_READ, owner, agent, context)
    return ContextState(row[0], row[1]) if row else ContextState()


async def write(connection: Connection, owner: int, head: Head, state: ContextState) -> None:
    """Writes the state. Raises Refused (CHANGED) when somebody else wrote it since it was read."""
    known = (await read(connection, owner, head.agent, head.context)).version
    if state.version != known + 1:
        raise Refused(CHANGED, head)
    await connection.execute(_WRITE, owner, head.agent, head.context, state.version, state.data)
