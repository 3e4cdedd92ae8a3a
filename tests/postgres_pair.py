"""A PostgreSQL with a synchronous standby on this machine, which can fail over any number of times.

Nothing is acknowledged that only the primary has: every commit waits for the standby (`synchronous_standby_names`).
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.postgres import Server, needed

if TYPE_CHECKING:
    import asyncpg

REPLICATION: Final = ("wal_retrieve_retry_interval=100ms", "max_wal_senders=10")
"""A standby connects to a primary that restarted at once, rather than within five seconds."""
CATCH_UP: Final = 60.0
"""Seconds for a standby to catch up."""
_STANDBYS: Final = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'"


class PostgresPair:
    """A primary and its standby. Has what tests use of `tests.postgres.Server`; those methods act on the primary."""

    def __init__(self, *settings: str) -> None:
        """settings: of both servers, such as `shared_buffers=64MB`."""
        self.primary = Server(*REPLICATION, *settings)
        self.standby = Server(*REPLICATION, *settings, data=Path("made by pg_basebackup"))
        self.standby.data = self.standby.folder / "data"
        self._servers: Sequence[Server] = (self.primary, self.standby)

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """A URL with both hosts, in a fixed order; connections go to the one that accepts writes."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self._servers)
        return f"postgresql://{user}@{hosts}/{database}?target_session_attrs=read-write"

    @property
    def port(self) -> int:
        """The port of the primary."""
        return self.primary.port

    @property
    def pid(self) -> int:
        """The id of the primary's main process."""
        return self.primary.pid

    def start(self) -> None:
        """Starts the primary, and at the first time the standby."""
        self.primary.start()
        if not self.standby.data.exists():
            self.add_standby()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stops the primary."""
        self.primary.stop(how)

    def freeze(self) -> None:
        """Freezes the primary."""
        self.primary.freeze()

    def thaw(self) -> None:
        """Continues the primary."""
        self.primary.thaw()

    def remove(self) -> None:
        """Stops and removes both."""
        self.primary.remove()
        self.standby.remove()

    def add_standby(self) -> None:
        """Copies the primary to the standby's empty folder, and starts it as synchronous standby."""
        standby, port = self.standby, self.primary.port
        source = f"host=127.0.0.1 port={port} user=postgres application_name=standby"
        standby.run("pg_basebackup", "-d", source, "-D", str(standby.data), "-R", "-X", "stream", "-c", "fast", "-N")
        # Its copy of the primary's setting would make it wait for itself after its promotion.
        with (standby.data / "postgresql.auto.conf").open("a") as file:
            file.write("synchronous_standby_names = ''\n")
        standby.start()
        asyncio.run(self._on_primary(_wait_for_the_standby))

    def kill(self) -> None:
        """Ends the primary as the loss of its machine does: all processes at once."""
        self.primary.freeze()  # no process of it can act on the death of another
        self.primary.kill_all()

    def promote(self) -> None:
        """Waits until the standby is the primary. The former one has to be killed or frozen, and stays so."""
        self.standby.run("pg_ctl", "promote", "-D", str(self.standby.data), "-w")
        self.primary, self.standby = self.standby, self.primary

    def replace_standby(self) -> None:
        """Makes the former primary, which was killed, a standby of the current one."""
        shutil.rmtree(self.standby.data)
        self.add_standby()

    async def in_sync(self, seconds: float = CATCH_UP) -> None:
        """Waits until the standby has everything that a reader of the primary may have seen.

        A primary that crashed and restarted shows commits at once that its standby does not have yet. No failover
        keeps those, whatever the client does.
        """
        import asyncpg  # most of the tests run without the extra

        async with asyncio.timeout(seconds):
            while True:
                with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    await self._on_primary(_count_standbys)
                    return
                await asyncio.sleep(0.1)

    async def _on_primary(self, job: Callable[[asyncpg.Connection], Awaitable[None]]) -> None:
        import asyncpg

        connection = await asyncpg.connect(self.primary.url(), timeout=10)
        try:
            await job(connection)
        finally:
            connection.terminate()


async def _wait_for_the_standby(connection: asyncpg.Connection) -> None:
    await connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
    await connection.execute("SELECT pg_reload_conf()")
    deadline = time.monotonic() + CATCH_UP
    while not await connection.fetchval(_STANDBYS):
        if time.monotonic() > deadline:
            raise RuntimeError(f"after {CATCH_UP:g} s the standby is not synchronous")
        await asyncio.sleep(0.05)


async def _count_standbys(connection: asyncpg.Connection) -> None:
    if not await connection.fetchval(_STANDBYS):
        raise OSError("no standby is in sync")


@asynccontextmanager
async def postgres_pair(*settings: str) -> AsyncIterator[PostgresPair]:
    """Runs a pair inside the block. Skips a test without PostgreSQL."""
    needed()
    pair = await asyncio.to_thread(PostgresPair, *settings)
    try:
        await asyncio.to_thread(pair.start)
        yield pair
    finally:
        await asyncio.to_thread(pair.remove)
