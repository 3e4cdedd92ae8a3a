"""The schema of a database: its migrations are numbered, never edited, and made by one process at a time."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator
from typing import Final

from asyncpg import Connection, DeadlockDetectedError, LockNotAvailableError

from dragoman.core.task import maintenance
from dragoman.stores.postgres.errors import InvalidDatabase, PostgresSchemaTooNew
from dragoman.stores.shared.schema import migration_scripts

log = logging.getLogger("dragoman.store")

MIGRATION_LOCK: Final = 0x647261676F6D616E
"""The advisory lock of whoever migrates: "dragoman" in ASCII."""

MIGRATION_LOCK_TIMEOUT: Final = "2s"
"""How long a change of a table may wait for those who use it: everybody who comes after it waits, too."""

MIGRATION_ATTEMPTS: Final = 10
MIGRATION_RETRY_INTERVAL: Final = 1.0
"""Seconds between two tries, in which others have their turn."""

_CREATE_META: Final = 'CREATE TABLE IF NOT EXISTS meta (name text COLLATE "C" PRIMARY KEY, value text NOT NULL)'
_SELECT_VERSION: Final = "SELECT value::int FROM meta WHERE name = 'schema'"
_SELECT_OLDEST: Final = "SELECT value FROM meta WHERE name = 'oldest'"
_UPSERT_META: Final = "INSERT INTO meta VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_INSERT_META: Final = "INSERT INTO meta VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"


async def migrate(connection: Connection, *, make: bool = True) -> None:
    """Brings the database to this version's schema, whole or not at all; not from nothing, without `make`.

    One that is past it is left as it is, if programs of this version may serve it. Raises SchemaTooNew when they may
    not, Unusable for what cannot be a store, and when somebody else holds a table all the time.

    Servers that start at the same time wait for each other: the lock goes with the transaction, so that it is good
    behind a pooler, too.
    """
    for left in reversed(range(MIGRATION_ATTEMPTS)):
        try:
            await _migrate(connection, make=make)
        except (LockNotAvailableError, DeadlockDetectedError) as error:
            if not left:
                why = "somebody holds a table, a dump perhaps (see pg_stat_activity)"
                raise InvalidDatabase(f"{error}: {why}; start again when that has ended") from error
            await asyncio.sleep(MIGRATION_RETRY_INTERVAL)
        else:
            return


async def _migrate(connection: Connection, *, make: bool) -> None:
    steps = dict(_steps())
    async with connection.transaction(isolation="read_committed"):
        await connection.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        if not await connection.fetchval("SELECT to_regclass('meta') IS NOT NULL"):
            if not make:
                raise InvalidDatabase("there is no store in this database; see whether it is the right one")
            await connection.execute(_CREATE_META)
        version = await connection.fetchval(_SELECT_VERSION) or 0
        if version > (known := max(steps)):
            if why := maintenance.schema_problem(version, known, await connection.fetchval(_SELECT_OLDEST)):
                raise PostgresSchemaTooNew(why)
            log.info("the store has schema %d, of a newer release; this one knows %d and may serve it", version, known)
            return
        await connection.execute(f"SET LOCAL lock_timeout = '{MIGRATION_LOCK_TIMEOUT}'")
        for number in range(version + 1, known + 1):
            await connection.execute(steps[number])
        if version < known:
            await connection.execute(_UPSERT_META, "schema", str(known))
            await connection.execute(_UPSERT_META, "oldest", str(maintenance.min_schema(steps.items())))
        else:  # a store from before this was kept
            await connection.execute(_INSERT_META, "oldest", str(maintenance.min_schema(steps.items())))
        # A store that is made anew has another epoch, so that old cursors are refused rather than misread.
        if version == 0:
            await connection.execute(_INSERT_META, "epoch", secrets.token_hex(4))
            await connection.execute(_INSERT_META, "secret", secrets.token_hex(32))


def _steps() -> Iterator[tuple[int, str]]:
    return migration_scripts(__package__)
