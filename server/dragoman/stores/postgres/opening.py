"""Opening a database: is it one that can keep a store, and what is wrong with it if not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote, urlsplit

import asyncpg
from asyncpg import Connection

from dragoman.core.sizes import DEFAULT, Sizes
from dragoman.stores.postgres.database import ANSWER, CONNECT, Database
from dragoman.stores.postgres.migrating import migrate
from dragoman.stores.postgres.store import PostgresStore
from dragoman.stores.postgres.trouble import Unusable, explain

log = logging.getLogger("dragoman.store")

OLDEST: Final = 140_000
"""The oldest PostgreSQL that will do, as `server_version_num` says it."""

CONNECTIONS: Final = 10
"""Connections of one process, besides three that it keeps for writing, for its session and for links."""

_ABOUT: Final = """
SELECT current_setting('server_version_num')::int AS version, current_setting('server_version') AS called,
    pg_is_in_recovery() AS standby, current_setting('transaction_read_only') AS read_only,
    current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS standbys, current_setting('server_encoding') AS encoding
"""


async def open_store(
    url: str,
    *,
    clock: Callable[[], int] | None = None,
    sizes: Sizes = DEFAULT,
    connections: int = CONNECTIONS,
    pooled: bool = False,
    make: bool = True,
) -> PostgresStore:
    """Opens the database, making or migrating its tables first; `make=False` refuses one that has none.

    url: `postgresql://USER@HOST:PORT/DATABASE`, as libpq has it. clock: milliseconds instead of the server's time.
    pooled: a pooler in between may give each transaction another connection, so that nothing is prepared.
    Raises Unusable, with one line that says what is wrong and nothing that is secret.
    """
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT, command_timeout=ANSWER, statement_cache_size=0)
        try:
            async with connection.transaction():
                await check(connection)
            await migrate(connection, make=make)
            async with connection.transaction():
                meta = dict(await connection.fetch("SELECT name, value FROM meta"))
        finally:
            await connection.close(timeout=CONNECT)
    except Unusable:
        raise
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise Unusable(_without_secrets(explain(error), url)) from None  # its traceback shows arguments
    database = Database(url, clock, connections=connections, pooled=pooled)
    await database.open()
    return PostgresStore(url, database, meta["epoch"], bytes.fromhex(meta["secret"]), sizes, clock)


async def check(connection: Connection) -> None:
    """Raises Unusable for a server that would break a promise, and warns of one that may."""
    about = await connection.fetchrow(_ABOUT)
    if about["version"] < OLDEST:
        raise Unusable(f"it is PostgreSQL {about['called']}; the oldest that will do is {OLDEST // 10_000}")
    if about["standby"]:
        raise Unusable("it is a standby, which cannot be written; name the primary")
    if about["read_only"] == "on":
        raise Unusable("its transactions are read-only (default_transaction_read_only); name a primary that is not")
    if about["encoding"] != "UTF8":
        raise Unusable(f"its encoding is {about['encoding']}; make the database with ENCODING 'UTF8'")
    if about["fsync"] == "off":
        raise Unusable("fsync is off: a crash of its machine could take everything; turn it on in postgresql.conf")
    if about["full_page_writes"] == "off":
        log.warning("full_page_writes is off: unless its disk writes pages whole, a crash of its machine may damage it")
    if about["synchronous_commit"] == "off":
        log.warning("synchronous_commit is off: a crash of its machine may take the last tasks that were acknowledged")
    elif about["standbys"] and about["synchronous_commit"] == "local":
        log.warning(
            "synchronous_commit is local: a failover to a standby may take the last tasks that were acknowledged"
        )


def _without_secrets(text: str, url: str) -> str:
    try:
        password = urlsplit(url).password
    except ValueError:
        password = None
    for said in (password, unquote(password)) if password else ():
        text = text.replace(said, "***")
    return text
