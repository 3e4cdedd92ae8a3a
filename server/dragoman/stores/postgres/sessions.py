"""Session rows: begun once, renewed, and over when they expire by the server's clock."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from asyncpg import Connection

from dragoman.stores.postgres.database import NOW

_END_ALL: Final = "UPDATE sessions SET expires = 0 WHERE expires > 0"
_BEGIN: Final = f"""
INSERT INTO sessions (started, expires, process)
VALUES ({NOW.format("$1")}, {NOW.format("$1")} + $2, $3) RETURNING session
"""
_RENEW: Final = f"""
UPDATE sessions s SET expires = {NOW.format("$2")} + $3
FROM (SELECT expires FROM sessions WHERE session = $1) was WHERE s.session = $1
RETURNING was.expires - {NOW.format("$2")}, left(pg_walfile_name(pg_current_wal_lsn()), 8)
"""
_HELD: Final = "SELECT session, process FROM sessions WHERE expires > 0 AND process LIKE $1 || ' %'"
_END: Final = "UPDATE sessions SET expires = 0 WHERE session = ANY ($1::bigint[])"
_ALIVE: Final = f"SELECT session, expires FROM sessions WHERE expires > {NOW.format('$1')}"


class Forgotten(Exception):
    """A session that was begun is not in the store: it lost its last commits, or it is another store."""

    def __init__(self, session: int) -> None:
        super().__init__(
            f"the store knows no session {session} any more: it was restored, or failed over to a standby that lagged "
            "behind; restart this server"
        )


async def begin(connection: Connection, at: int | None, lease: float, alone: bool, process: str) -> int:
    """A new session. `alone` ends all others."""
    if alone:
        await connection.execute(_END_ALL)
    session: int = await connection.fetchval(_BEGIN, at, _length(lease), process)
    return session


async def renew(connection: Connection, session: int, at: int | None, lease: float) -> tuple[int, str]:
    """Puts the end of a session off. One that has expired lives again; the claims that were taken from it do not.

    Gives how many milliseconds it had left, and the database's timeline: another one after each failover. Raises
    Forgotten for a session that is not there.
    """
    row = await connection.fetchrow(_RENEW, session, at, _length(lease))
    if row is None:
        raise Forgotten(session)
    return row[0], row[1]


async def held(connection: Connection, place: str) -> dict[int, str]:
    """The sessions that nobody has ended, of processes that said that they are in this place, with what they said."""
    return {row[0]: row[1] for row in await connection.fetch(_HELD, place)}


async def end(connection: Connection, sessions: Collection[int]) -> None:
    """Ends sessions whose processes are gone."""
    await connection.execute(_END, list(sessions))


async def alive(connection: Connection, at: int | None) -> dict[int, int]:
    """The sessions that have not expired, with the time when they will."""
    return {row[0]: row[1] for row in await connection.fetch(_ALIVE, at)}


def _length(lease: float) -> int:
    return round(lease * 1000)
