"""PostgreSQL: a store that several servers may share. This module imports no driver; opening a store does."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from dragoman.core.durations import Backoff
from dragoman.ports import Store
from dragoman.ports.extension import Option, ServerExtension, StartError, StoreRequest, StoreScheme

log = logging.getLogger("dragoman.store")

START_BACKOFF: Final = Backoff(0.1, 1.0)
"""Between attempts to open the database while it is unreachable."""

START_LOG_INTERVAL: Final = 10.0
"""Seconds between log lines while a start waits for the database."""

_URL: Final = re.compile(r"postgresql://[^/?#]+/[^/?#]+([?][^#]*)?")


class PostgresSettings(BaseModel):
    """The settings of PostgreSQL stores."""

    model_config = ConfigDict(frozen=True)

    connections: Annotated[
        int, Option("postgres_connections", "N", "PostgreSQL connections in the pool; four more are used. [10]")
    ] = Field(default=10, ge=1)
    """In addition to four for appends, maintenance, the session and links."""
    pooler: Annotated[
        bool, Option("postgres_pooler", "", "PostgreSQL is behind a pooler in transaction mode.", bool)
    ] = False
    """The pooler may use another connection for each transaction."""
    statement_timeout: Annotated[
        float,
        Option("postgres_statement_timeout", "S", "Seconds within which PostgreSQL must respond to a statement. [5]"),
    ] = Field(default=5.0, gt=0, allow_inf_nan=False)
    """For a statement, for a connection attempt, and until a connection is free; then calls fail."""


async def open_from_settings(settings: PostgresSettings, request: StoreRequest) -> Store:
    """Opens a store. Raises ImportError without the driver, StartError."""
    from dragoman.extensions.postgres.errors import DatabaseUnreachable, InvalidDatabase
    from dragoman.extensions.postgres.store import open_store

    clock = asyncio.get_running_loop().time
    attempts, log_at = 0, clock()
    while True:
        attempts += 1
        try:
            store = await open_store(
                request.url,
                make=request.create,
                sizes=request.storage,
                connections=settings.connections,
                pooled=settings.pooler,
                statement_timeout=settings.statement_timeout,
            )
        except InvalidDatabase as error:
            if not (request.wait and isinstance(error, DatabaseUnreachable)):
                # the cause may contain a password
                raise StartError(f"the store {request.name} cannot be opened: {error}") from None
            if clock() >= log_at:
                log.warning("the start waits for PostgreSQL at %s: %s", hosts_of(request.name), error)
                log_at = clock() + START_LOG_INTERVAL
        else:
            if attempts > 1:
                log.info("PostgreSQL at %s responds; the start continues", hosts_of(request.name))
            return store
        await asyncio.sleep(START_BACKOFF.delay(attempts))


def hosts_of(url: str) -> str:
    """Hosts and ports of a database, without user and password."""
    hosts = urlsplit(url).netloc.rpartition("@")[2].split(",")
    known = [host if re.search(r":\d+$", host) else f"{host}:5432" for host in hosts if host]
    return ", ".join(known) or url  # a socket: its folder is an option


EXTENSION: Final = ServerExtension(
    name="postgres",
    title="PostgreSQL",
    requirement="dragoman[postgres]",
    libraries=("asyncpg",),
    settings=PostgresSettings,
    stores={
        "postgresql": StoreScheme(
            url_format="postgresql://USER@HOST/DATABASE",
            is_valid=lambda url: _URL.fullmatch(url) is not None,
            open=open_from_settings,
            backup="pg_dump and pg_restore, or pg_basebackup",
        )
    },
)
