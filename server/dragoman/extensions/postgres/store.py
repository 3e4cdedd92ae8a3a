"""The PostgreSQL store: one writer for each process, separate readers, everything in one database.

Several processes may open the same database. Row locks and advisory locks, which end with their transaction, decide
who runs a task, which message was first, and whether a quota has room. Time is the database server's.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from asyncpg import Connection

from dragoman.core.counters import StoreStats
from dragoman.core.daily_usage import (
    KEPT_DAYS,
    KEPT_HOURS,
    DailyUsageQuery,
    DailyUsageRow,
    HourlyUsage,
    HourlyUsageQuery,
    day_of,
    hour_of,
)
from dragoman.core.errors import UnsupportedOperation
from dragoman.core.names import Owner
from dragoman.core.task.blob_references import MARKER_BYTES
from dragoman.core.task.cursors import FoundTasks, OpenTasks, StateCount, TaskPage, TaskQuery, TaskSearch
from dragoman.core.task.log import Event, TaskRecord, TaskRef
from dragoman.core.task.maintenance import (
    DEFAULT_STORAGE_OPTIONS,
    StorageOptions,
)
from dragoman.core.task.steps import StepRecord
from dragoman.extensions.postgres import blobs, claims, daily_usage, reads, task_tables
from dragoman.extensions.postgres.database import (
    BEGIN_READ,
    DEFAULT_RETRIES,
    MAINTENANCE_TIMEOUT,
    MIGRATION_SETTINGS,
    STATEMENT_TIMEOUT,
    WRITE_LOCK,
    Database,
    PostgresRetries,
    SideConnection,
    run_transaction,
)
from dragoman.extensions.postgres.errors import (
    DATABASE_ERRORS,
    DatabaseUnreachable,
    InvalidDatabase,
    explain,
    is_permanent,
)
from dragoman.extensions.postgres.hosts import HostConnector
from dragoman.extensions.postgres.hot import steps
from dragoman.extensions.postgres.hot.writer import PostgresWriter
from dragoman.extensions.postgres.large_parts import PostgresBlobOffloader, PostgresBlobRestorer
from dragoman.extensions.postgres.maintenance import partitions, search, task_counts
from dragoman.extensions.postgres.maintenance.compaction import LOCK_TASK, merge_chunks
from dragoman.extensions.postgres.maintenance.erasure import PostgresEraser
from dragoman.extensions.postgres.pushes import PostgresPushes
from dragoman.extensions.postgres.queries import GroupedReads, PostgresQueryRunner
from dragoman.extensions.postgres.schema import migrate
from dragoman.ids import SteadyClock, now_ms
from dragoman.ports import AgentTasks, BackupProgress, CompactionResult, TaskMessages, TaskSnapshot
from dragoman.stores.shared.compaction import Compactor
from dragoman.stores.shared.tables import (
    StoredApiKeys,
    StoredAuditLog,
    StoredCancels,
    StoredKeyValues,
    StoredUpstreams,
    StoredWorkerRegistry,
)

log = logging.getLogger("dragoman.store")

AUDIT_LOCK: Final = WRITE_LOCK + 100
"""Advisory lock for adding entries to the audit log."""

BACKUP_UNSUPPORTED: Final = (
    "a store on PostgreSQL is backed up with PostgreSQL's own tools: pg_dump, or pg_basebackup with a log archive; "
    "large parts are in the database, too"
)

FAILOVER_ERROR: Final = (
    "the database was failed over (timeline %s, now %s): unless the standby was synchronous, the last commits are "
    "lost; restart every server"
)


class PostgresStore:
    """Implements `dragoman.ports.Store` on a database, for the event loop on which it was opened."""

    def __init__(
        self,
        url: str,
        database: Database,
        maintenance: Database,
        epoch: str,
        secret: bytes,
        sizes: StorageOptions,
        clock: Callable[[], int] | None,
        statement_timeout: float,
    ) -> None:
        """maintenance: the same database, with the deadlines of compaction and erasure."""
        self._database = database
        self._maintenance = maintenance
        self._epoch = epoch
        self._secret = secret
        self._writer = PostgresWriter(database)
        self.commit_counters = self._writer.commits
        self._session_connection = SideConnection(
            url, "dragoman-session-rows", pooled=database.pooled, timeout=statement_timeout
        )
        self._link_connection = SideConnection(url, "dragoman-links", pooled=database.pooled, timeout=statement_timeout)
        marker = hmac.digest(secret, b"reference", "sha256")[:MARKER_BYTES]
        self.blobs = PostgresBlobRestorer(
            database, self._read_blobs, self._link_connection, secret, marker, sizes.inline_bytes, clock or now_ms
        )
        self._blob_offloader = PostgresBlobOffloader(database, self._writer, self.blobs, marker)
        self.append = self._blob_offloader.append  # every append goes through it
        self._task_reads = GroupedReads(database, reads.read_tasks)
        self._message_reads = GroupedReads(database, reads.read_messages)
        runner = PostgresQueryRunner(database)
        self._compactor = Compactor(PostgresQueryRunner(maintenance), sizes, merge_chunks, LOCK_TASK)
        self.api_keys = StoredApiKeys(runner)
        self.pushes = PostgresPushes(database)
        self.worker_registry = StoredWorkerRegistry(runner)
        self.cancel_requests = cancels = StoredCancels(runner, "FOR UPDATE OF c")
        self.erasures = PostgresEraser(maintenance, self._writer.counter_slot, cancels.delete_obsolete)
        self.key_values = StoredKeyValues(runner)
        self.upstreams = StoredUpstreams(runner)
        self.audit = StoredAuditLog(runner, f"SELECT pg_advisory_xact_lock({AUDIT_LOCK})")
        self._now = clock or SteadyClock()
        self._timeline = ""
        self._closed = False

    def secret(self, purpose: str) -> bytes:
        return hmac.digest(self._secret, f"purpose {purpose}".encode(), "sha256")

    async def find(self, owner: Owner, agent: str, task_id: str) -> TaskRecord | None:
        return await self._database.read(reads.find, owner, agent, task_id)

    async def locate(self, task_id: str) -> list[TaskRecord]:
        return await self._database.read(reads.locate, task_id)

    async def read(self, task: TaskRef, *, history: int | None = None, artifacts: bool = True) -> TaskSnapshot | None:
        snapshot = await self._task_reads.read((task, history, artifacts))
        budget = self.blobs.budget()
        if isinstance(snapshot, reads.LargeTask):
            snapshot = await self._database.read_snapshot(reads.read, task, history, artifacts, budget)
        return await self.blobs.snapshot(snapshot, budget)

    async def get(self, owner: Owner, agent: str, task_id: str, *, history: int | None = None) -> TaskSnapshot | None:
        """A task by one statement; by several, on one snapshot, if it is large."""
        budget, args = self.blobs.budget(), (owner, agent, task_id, history)
        try:
            snapshot = await self._database.read(reads.get, *args, None)
        except reads.LargeTask:
            snapshot = await self._database.read_snapshot(reads.get, *args, budget)
        return await self.blobs.snapshot(snapshot, budget)

    async def events(self, task: TaskRef, after: int, limit: int = 256) -> list[Event]:
        return await self.blobs.events(await self._database.read(reads.events, task, after, limit))

    async def oldest_sequence(self, task: TaskRef) -> int:
        return await self._database.read(reads.oldest_sequence, task)

    async def messages(self, task: TaskRef, after: int = 0) -> TaskMessages | None:
        return await self.blobs.messages(await self._message_reads.read((task, after)))

    async def envelope(self, task: TaskRef, number: int) -> bytes:
        return await self._database.read(reads.envelope, task, number)

    async def page(self, query: TaskQuery) -> TaskPage:
        budget = self.blobs.budget()
        return await self.blobs.page(await self._database.read_snapshot(reads.page, query, budget), budget)

    async def search(self, query: TaskSearch) -> FoundTasks:
        budget = self.blobs.budget()
        return await self.blobs.search(await self._database.read_snapshot(search.search, query, budget), budget)

    async def count_states(self, query: TaskSearch) -> list[StateCount]:
        return await self._database.read_snapshot(task_counts.count_states, query)

    async def open_tasks(self, query: TaskSearch) -> list[OpenTasks]:
        return await self._database.read_snapshot(task_counts.open_tasks, query)

    async def scopes(self, limit: int) -> list[str]:
        return await self._database.read(search.scopes, limit)

    async def agents_of(self, principal: str) -> list[AgentTasks]:
        return await self._database.read(reads.agents_of, principal)

    async def last_sequences(self, tasks: Collection[TaskRef]) -> dict[bytes, int]:
        return await self._database.read(reads.last_sequences, tasks)

    async def ready_tasks(self, agents: Collection[str], limit: int, after: str = "") -> list[TaskRecord]:
        waiting = await self._database.read(claims.ready_tasks, agents, limit, after)
        self._writer.known.note_waiting(waiting)
        return [task.record for task in waiting]

    async def orphaned_tasks(self, session: int, limit: int, *, expired: bool = True) -> list[TaskRecord]:
        await self._end_dead_sessions()
        return await self._database.read(reads.orphaned_tasks, session, self._database.fixed_now, limit, expired)

    async def _end_dead_sessions(self) -> None:
        """Ends the sessions of processes of this machine that have died, before they expire."""
        if not (namespace := claims.current_pid_namespace()):
            return
        local = await self._database.read(claims.local_sessions, namespace)
        if dead := sorted(number for number, process in local.items() if claims.has_process_ended(process)):
            await self._database.write(claims.end_sessions, dead)
            log.info("ended sessions of dead processes: %s", ", ".join(map(str, dead)))

    @property
    def epoch(self) -> str:
        return self._epoch

    async def open_session(self, lease: float, *, exclusive: bool = False) -> int:
        return await self._database.write(
            claims.begin_session, self._database.fixed_now, lease, exclusive, claims.current_process()
        )

    def renew_session(self, session: int, lease: float) -> int:
        async def renew(connection: Connection) -> tuple[int, int, str]:
            return await claims.renew_session(connection, session, self._database.fixed_now, lease)

        expiry, now, timeline = self._session_connection.run(renew)
        self.follow(now)
        if self._timeline not in ("", timeline):
            log.error(FAILOVER_ERROR, self._timeline, timeline)
        self._timeline = timeline
        return expiry - now

    def now(self) -> int:
        return self._now()

    def follow(self, now: int) -> None:
        """Goes on from the server's time, in milliseconds, until the next renewal. Not where a clock was passed."""
        if isinstance(self._now, SteadyClock):
            self._now = SteadyClock(lambda: now / 1000)

    async def sessions(self) -> dict[int, int]:
        return await self._database.read(claims.live_sessions, self._database.fixed_now)

    async def compact(self) -> CompactionResult:
        await self._maintenance.delete_commit_marks()
        await partitions.add_partition(self._maintenance)
        await self.cancel_requests.delete_obsolete()
        result = CompactionResult(
            await self._compactor.compact_artifacts(),
            await self._compactor.truncate_logs(),
            await blobs.remove_unused_blobs(self._maintenance),
            await self._compact_usage(),
        )
        if result != CompactionResult():
            log.info("compacted the store: %s", result)
        return result

    async def _compact_usage(self) -> int:
        now = await self._maintenance.read(self._maintenance.now)
        while await self._maintenance.write(daily_usage.merge_hours_before, hour_of(now) - KEPT_HOURS + 1):
            pass
        return await self._maintenance.write(daily_usage.delete_days_before, day_of(now) - KEPT_DAYS)

    async def delegated_tasks(self, task: TaskRef, limit: int) -> list[TaskRecord]:
        return await self._database.read(task_tables.delegated_tasks, task, limit)

    async def daily_usage(self, query: DailyUsageQuery) -> list[DailyUsageRow]:
        return await self._database.read(daily_usage.read, query)

    async def hourly_usage(self, query: HourlyUsageQuery) -> HourlyUsage:
        return await self._database.read(daily_usage.read_hours, query)

    async def steps(self, task: TaskRef, *, results: bool = False, only: Sequence[StepRecord] = ()) -> list[StepRecord]:
        return await self.blobs.steps(await self._database.read(steps.read_steps, task, results, only))

    async def sleeping_tasks(self, until: int, limit: int) -> list[TaskRecord]:
        return await self._database.read(steps.sleeping_tasks, until, limit)

    async def stats(self) -> StoreStats:
        return await self._database.read_snapshot(reads.read_stats, self._database.fixed_now)

    def backup(self, destination: Path) -> AsyncGenerator[BackupProgress, None]:
        raise UnsupportedOperation(BACKUP_UNSUPPORTED)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._blob_offloader.close()
        await self._writer.close()
        await self._database.close()
        await self._maintenance.close()
        await asyncio.to_thread(self._session_connection.close)
        await asyncio.to_thread(self._link_connection.close)
        await asyncio.to_thread(self.blobs.close)

    async def _read_blobs(self, digests: Collection[bytes]) -> Mapping[bytes, bytes]:
        return await self._database.read(blobs.read_blobs, digests)


MIN_SERVER_VERSION: Final = 140_000
"""The oldest supported PostgreSQL, as `server_version_num`."""

DEFAULT_CONNECTIONS: Final = 10
"""Pool size of one process, besides four connections for appends, maintenance, its session and blob links."""

_SERVER_SETTINGS: Final = """
SELECT current_setting('server_version_num')::int AS version, current_setting('server_version') AS called,
    pg_is_in_recovery() AS standby, current_setting('default_transaction_read_only') AS read_only,
    current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS standbys, current_setting('server_encoding') AS encoding,
    current_setting('statement_timeout') AS statement_timeout
"""


async def open_store(
    url: str,
    *,
    clock: Callable[[], int] | None = None,
    sizes: StorageOptions = DEFAULT_STORAGE_OPTIONS,
    connections: int = DEFAULT_CONNECTIONS,
    pooled: bool = False,
    make: bool = True,
    statement_timeout: float = STATEMENT_TIMEOUT,
    retries: PostgresRetries = DEFAULT_RETRIES,
) -> PostgresStore:
    """Opens the database, creating or migrating its tables first; `make=False` rejects a database without tables.

    url: `postgresql://USER@HOST:PORT/DATABASE`, as libpq has it; several hosts are separated by commas.
    clock: milliseconds instead of the server's time.
    pooled: a pooler in between may give each transaction another connection, so no statement is prepared.
    statement_timeout: seconds for one statement, one connection attempt, and until a connection is free.
    Raises InvalidDatabase with one line, without secrets; DatabaseUnreachable when a retry may succeed.
    """
    try:
        connection = await HostConnector().connect(
            url,
            timeout=statement_timeout,
            command_timeout=statement_timeout,
            statement_cache_size=0,
            server_settings=None if pooled else MIGRATION_SETTINGS,
        )
        try:
            await run_transaction(connection, BEGIN_READ, check_server, [])
            await migrate(connection, make=make)
            meta = await run_transaction(connection, BEGIN_READ, _read_meta, [])
        finally:
            await connection.close(timeout=statement_timeout)
    except InvalidDatabase:
        raise
    except (*DATABASE_ERRORS, ValueError) as error:
        kind = InvalidDatabase if is_permanent(error) else DatabaseUnreachable
        raise kind(_without_secrets(explain(error), url)) from None  # its traceback shows arguments
    database = Database(url, clock, connections=connections, pooled=pooled, timeout=statement_timeout, retries=retries)
    maintenance_timeout = max(MAINTENANCE_TIMEOUT, statement_timeout)
    maintenance = Database(url, clock, connections=1, pooled=pooled, timeout=maintenance_timeout, retries=retries)
    await database.open()
    await maintenance.open()
    secret = bytes.fromhex(meta["secret"])
    store = PostgresStore(url, database, maintenance, meta["epoch"], secret, sizes, clock, statement_timeout)
    store.follow(await database.read(database.now))
    return store


async def _read_meta(connection: Connection) -> dict[str, str]:
    return dict(await connection.fetch("SELECT name, value FROM meta"))


async def check_server(connection: Connection) -> None:
    """Raises InvalidDatabase for a server that would break a guarantee, and warns of one that may."""
    server = await connection.fetchrow(_SERVER_SETTINGS)
    if server["version"] < MIN_SERVER_VERSION:
        raise InvalidDatabase(
            f"it is PostgreSQL {server['called']}; the oldest supported version is {MIN_SERVER_VERSION // 10_000}"
        )
    if server["standby"]:
        raise InvalidDatabase("it is a standby, which is read-only; use the primary")
    if server["read_only"] == "on":
        raise InvalidDatabase(
            "its transactions are read-only (default_transaction_read_only); use a primary that accepts writes"
        )
    if server["encoding"] != "UTF8":
        raise InvalidDatabase(f"its encoding is {server['encoding']}; create the database with ENCODING 'UTF8'")
    if server["fsync"] == "off":
        raise InvalidDatabase(
            "fsync is off: a crash of its machine could destroy all data; turn it on in postgresql.conf"
        )
    if server["statement_timeout"] != "0":  # behind a pooler, which keeps the role's
        log.warning(
            "statement_timeout is %s for this user: longer statements fail, and a commit that waits for a standby may "
            "be lost in a failover; ALTER ROLE ... SET statement_timeout = 0",
            server["statement_timeout"],
        )
    if server["full_page_writes"] == "off":
        log.warning(
            "full_page_writes is off: unless its disk writes pages atomically, a crash of its machine may damage it"
        )
    if server["synchronous_commit"] == "off":
        log.warning("synchronous_commit is off: a crash of its machine may lose the last acknowledged tasks")
    elif server["standbys"] and server["synchronous_commit"] == "local":
        log.warning("synchronous_commit is local: a failover to a standby may lose the last acknowledged tasks")


def _without_secrets(text: str, url: str) -> str:
    try:
        password = urlsplit(url).password
    except ValueError:
        password = None
    for secret in (password, unquote(password)) if password else ():
        text = text.replace(secret, "***")
    return text
