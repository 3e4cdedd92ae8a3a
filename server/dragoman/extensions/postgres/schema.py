"""Migrates the schema of a database, one process at a time."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator
from functools import partial
from typing import Final

from asyncpg import Connection

from dragoman.core.task import maintenance
from dragoman.extensions.postgres.database import BEGIN, MIGRATION_LOCK, run_transaction
from dragoman.extensions.postgres.errors import (
    DATABASE_ERRORS,
    InvalidDatabase,
    PostgresSchemaTooNew,
    explain,
    verdict_of,
)
from dragoman.stores.shared.errors import Verdict
from dragoman.stores.shared.rows import migration_scripts

log = logging.getLogger("dragoman.store")

MIGRATION_LOCK_TIMEOUT: Final = "2s"
"""How long a migration may wait for a table lock: everything that comes after it waits, too."""

MIGRATION_STEP_TIMEOUT: Final = 24 * 3600.0
"""Seconds for one step, and for the migration of another server: rewriting a large table takes as long as it takes."""

MIGRATION_ATTEMPTS: Final = 10
MIGRATION_RETRY_INTERVAL: Final = 1.0
"""Seconds between two attempts, in which others can use the table."""

_CREATE_META: Final = 'CREATE TABLE IF NOT EXISTS meta (name text COLLATE "C" PRIMARY KEY, value text NOT NULL)'
_SELECT_VERSION: Final = "SELECT value::int FROM meta WHERE name = 'schema'"
_SELECT_OLDEST: Final = "SELECT value FROM meta WHERE name = 'oldest'"
_UPSERT_META: Final = "INSERT INTO meta VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_INSERT_META: Final = "INSERT INTO meta VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"


async def migrate(connection: Connection, *, make: bool = True) -> None:
    """Migrates the database to this release's schema, completely or not at all. Creates tables only with `make`.

    A newer schema is left as it is, if this release can use it. Raises PostgresSchemaTooNew if it cannot, and
    InvalidDatabase for a database without a store, or when another session locks a table all the time.

    Servers that start at the same time wait for each other. The lock ends with the transaction, so it works behind a
    pooler, too.
    """
    for attempts_left in reversed(range(MIGRATION_ATTEMPTS)):
        try:
            await run_transaction(connection, BEGIN, partial(_migrate, make), [])
        except DATABASE_ERRORS as error:
            if (verdict := verdict_of(error)) not in (Verdict.REPEAT, Verdict.BLOCKED):
                raise
            if not attempts_left:
                blocked = "another session holds a lock on a table, perhaps a dump (see pg_stat_activity)"
                reason = f"{error}: {blocked}" if verdict is Verdict.BLOCKED else explain(error)
                raise InvalidDatabase(f"{reason}; start again when it has ended") from error
            await asyncio.sleep(MIGRATION_RETRY_INTERVAL)
        else:
            return


async def _migrate(make: bool, connection: Connection) -> None:
    steps = dict(_steps())
    await connection.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})", timeout=MIGRATION_STEP_TIMEOUT)
    if not await connection.fetchval("SELECT to_regclass('meta') IS NOT NULL"):
        if not make:
            raise InvalidDatabase("this database has no store; check that it is the right one")
        await connection.execute(_CREATE_META)
    version = await connection.fetchval(_SELECT_VERSION) or 0
    if version > (known := max(steps)):
        if why := maintenance.schema_problem(version, known, await connection.fetchval(_SELECT_OLDEST)):
            raise PostgresSchemaTooNew(why)
        log.info(
            "the store has schema %d of a newer release; this release has schema %d and can use it", version, known
        )
        return
    await connection.execute(f"SET LOCAL lock_timeout = '{MIGRATION_LOCK_TIMEOUT}'")
    for number in range(version + 1, known + 1):
        await connection.execute(steps[number], timeout=MIGRATION_STEP_TIMEOUT)
    if version < known:
        await connection.execute(_UPSERT_META, "schema", str(known))
        await connection.execute(_UPSERT_META, "oldest", str(maintenance.min_schema(steps.items())))
    # A new store has another epoch, so that old cursors are rejected rather than misread.
    if version == 0:
        await connection.execute(_INSERT_META, "epoch", secrets.token_hex(4))
        await connection.execute(_INSERT_META, "secret", secrets.token_hex(32))


def _steps() -> Iterator[tuple[int, str]]:
    return migration_scripts(__package__)
