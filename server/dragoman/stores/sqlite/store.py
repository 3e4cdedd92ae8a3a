"""The SQLite store: one writer thread and reader threads on one file, with large parts in files beside it."""

from __future__ import annotations

import asyncio
import hmac
import logging
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

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
from dragoman.core.errors import Unavailable, lacks_memory, out_of_memory
from dragoman.core.names import Owner
from dragoman.core.task.cursors import FoundTasks, TaskPage, TaskQuery, TaskSearch
from dragoman.core.task.log import Event, TaskRecord, TaskRef
from dragoman.core.task.maintenance import DEFAULT_STORAGE_OPTIONS, StorageOptions
from dragoman.core.task.steps import StepRecord
from dragoman.ids import SteadyClock
from dragoman.ports import BackupProgress, CompactionResult, TaskMessages, TaskSnapshot
from dragoman.stores.shared import tables
from dragoman.stores.shared.compaction import Compactor, merge_chunks
from dragoman.stores.shared.errors import Verdict
from dragoman.stores.sqlite import errors, reads
from dragoman.stores.sqlite.cold import backup, blobs, claims, daily_usage, search, task_tables
from dragoman.stores.sqlite.cold.blobs import BlobFiles, SqliteBlobOffloader, SqliteBlobRestorer, SqliteBlobSweeper
from dragoman.stores.sqlite.cold.erasure import SqliteEraser
from dragoman.stores.sqlite.cold.pushes import SqlitePushes
from dragoman.stores.sqlite.hot import DEFAULT_TIMINGS, SqliteTimings, figures
from dragoman.stores.sqlite.hot.loop_reader import LoopReader, NotOnLoop
from dragoman.stores.sqlite.hot.writer import Checkpointer, SqliteWriter
from dragoman.stores.sqlite.queries import SqliteQueryRunner
from dragoman.stores.sqlite.schema import DatabaseFiles, Synchronous, connect, migrate

log = logging.getLogger("dragoman.store")

READER_THREADS: Final = 2
"""Reader threads. SQLite reads hold the interpreter lock for most of their time, so more would only take turns."""

_FILES_LOST: Final = (
    "the database file was removed or replaced, so writes are rejected until it is back; acknowledged tasks are kept "
    "while the server runs; tell its operator"
)

P = ParamSpec("P")
T = TypeVar("T")


def open_store(
    path: Path,
    *,
    clock: Callable[[], int] | None = None,
    synchronous: Synchronous = "full",
    sizes: StorageOptions = DEFAULT_STORAGE_OPTIONS,
    timings: SqliteTimings = DEFAULT_TIMINGS,
) -> SqliteStore:
    """Opens the database, creating or migrating it first.

    clock: milliseconds, by default a SteadyClock. `synchronous="normal"` makes commits cheaper; a power failure may
    then undo the last ones, a crash of the process never does. Raises sqlite3.Error, and SchemaTooNew for a file of a
    newer release.
    """
    connection = connect(path, synchronous)
    try:
        migrate(connection)
        if figures.has_unlisted(connection):  # after a crash
            connection.execute("BEGIN IMMEDIATE")
            figures.list_tasks(connection)
            connection.execute("COMMIT")
        return SqliteStore(path, connection, clock or SteadyClock(), sizes, timings)
    except BaseException:
        connection.close()
        raise


def _on_reader(
    read: Callable[Concatenate[sqlite3.Connection, P], T], *, lists: bool = False
) -> Callable[Concatenate[SqliteStore, P], Coroutine[Any, Any, T]]:
    """A method of the store that runs a function on a reader's connection, in one transaction (`_read_listed`)."""

    async def method(store: SqliteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if lists:
            with suppress(Unavailable):  # on a full disk reads continue, without the tasks that are not listed
                return await store._read_listed(read, *args, **kwargs)
        return await store._read(read, *args, **kwargs)

    return method


class SqliteStore:
    """Implements `dragoman.ports.Store` on one SQLite file."""

    locate = _on_reader(reads.locate)
    oldest_sequence = _on_reader(reads.oldest_sequence)
    envelope = _on_reader(reads.envelope)
    count_states = _on_reader(search.count_states, lists=True)
    open_tasks = _on_reader(search.open_tasks, lists=True)
    scopes = _on_reader(search.scopes)
    agents_of = _on_reader(reads.agents_of, lists=True)
    last_sequences = _on_reader(reads.last_sequences)
    ready_tasks = _on_reader(claims.ready_tasks)
    delegated_tasks = _on_reader(task_tables.delegated_tasks)
    sleeping_tasks = _on_reader(task_tables.sleeping_tasks)

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        clock: Callable[[], int],
        sizes: StorageOptions,
        timings: SqliteTimings = DEFAULT_TIMINGS,
    ) -> None:
        self._secret = secret = blobs.store_secret(connection)
        marker = blobs.reference_marker(connection)
        self.path = path
        self.now = self._clock = clock
        self.epoch = str(connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()[0])
        self._backup_pages = timings.backup_pages
        self._checkpointer = Checkpointer(lambda: connect(path), path, timings)
        self.writer = SqliteWriter(connection, clock, self._checkpointer, timings)
        self.commit_counters = self.writer.committer.counters
        self._reader_local = threading.local()
        self._files = DatabaseFiles(path)
        self._backup_source = connect(path, readonly=True)  # for a backup after the names of the files are gone
        self._backup_source.execute("SELECT 1 FROM meta").fetchone()  # opens them
        self.loop_reader = LoopReader(connect(path, readonly=True), marker)
        self._reader_connections: list[sqlite3.Connection] = []
        self._is_damage_reported = False
        # Without an initializer: if one fails, for lack of memory or descriptors, the pool is unusable for good.
        self._readers = ThreadPoolExecutor(READER_THREADS, "dragoman-reader")
        self.blob_files = BlobFiles(backup.blob_folder(path))
        self.blobs = SqliteBlobRestorer(self.blob_files, self._read, secret, marker, sizes.inline_bytes, clock)
        self._blob_offloader = SqliteBlobOffloader(self.blob_files, self.blobs, marker, self.writer.submit)
        self.append = self._blob_offloader.append  # every append goes through it
        self._blob_sweeper = SqliteBlobSweeper(self.blob_files, self._read, self.writer.submit)
        runner = SqliteQueryRunner(self._read, self.writer.submit, clock)
        self._compactor = Compactor(runner, sizes, merge_chunks)
        self.api_keys = tables.StoredApiKeys(runner)
        self.pushes = SqlitePushes(self._read, self.writer.submit, clock)
        self.worker_registry = tables.StoredWorkerRegistry(runner)
        self.cancel_requests = cancels = tables.StoredCancels(runner)
        clear_cache = self.loop_reader.clear_cache
        self.erasures = SqliteEraser(self._read_listed, self.writer, clock, clear_cache, cancels.delete_obsolete)
        self.key_values = tables.StoredKeyValues(runner)
        self.upstreams = tables.StoredUpstreams(runner)
        self.audit = tables.StoredAuditLog(runner)

    def secret(self, purpose: str) -> bytes:
        return hmac.digest(self._secret, f"purpose {purpose}".encode(), "sha256")

    async def find(self, owner: Owner, agent: str, task_id: str) -> TaskRecord | None:
        try:
            return self.loop_reader.find(owner, agent, task_id)
        except NotOnLoop:
            return await self._read(reads.find, owner, agent, task_id)

    async def read(self, task: TaskRef, *, history: int | None = None, artifacts: bool = True) -> TaskSnapshot | None:
        try:
            return self.loop_reader.read(task, history, artifacts)
        except NotOnLoop:
            return await self._read(self.blobs.read, task, history, artifacts)

    async def get(self, owner: Owner, agent: str, task_id: str, *, history: int | None = None) -> TaskSnapshot | None:
        try:
            return self.loop_reader.get(owner, agent, task_id, history)
        except NotOnLoop:
            return await self._read(self.blobs.get, owner, agent, task_id, history)

    async def events(self, task: TaskRef, after: int, limit: int = 256) -> list[Event]:
        return await self._read(self.blobs.events, task, after, limit)

    async def messages(self, task: TaskRef, after: int = 0) -> TaskMessages | None:
        return await self._read(self.blobs.messages, task, after)

    async def page(self, query: TaskQuery) -> TaskPage:
        return await self._read(self.blobs.page, query)

    async def search(self, query: TaskSearch) -> FoundTasks:
        return await _on_reader(self.blobs.search, lists=True)(self, query)

    async def orphaned_tasks(self, session: int, limit: int, *, expired: bool = True) -> list[TaskRecord]:
        return await self._read(reads.orphaned_tasks, session, self._clock() if expired else 0, limit)

    async def open_session(self, lease: float, *, exclusive: bool = False) -> int:
        begin = partial(claims.begin_session, now=self._clock(), lease=lease, exclusive=exclusive)
        return int(await self.writer.submit(begin))

    def renew_session(self, session: int, lease: float) -> int:
        self._check_files()
        now = self._clock
        with now.follow() if isinstance(now, SteadyClock) else nullcontext(0) as step:

            def renew(connection: sqlite3.Connection) -> int:
                claims.move_timers(connection, step)
                return claims.renew_session(connection, session, now() + max(step, 0), lease)

            remaining = self.writer.write_blocking(renew)
        if step:
            log.warning("the clock of this machine was set by %+.0f s; what is due moves along", step / 1000)
        return remaining

    async def sessions(self) -> dict[int, int]:
        return await self._read(claims.live_sessions, self._clock())

    async def compact(self) -> CompactionResult:
        await self.cancel_requests.delete_obsolete()
        result = CompactionResult(
            await self._compactor.compact_artifacts(),
            await self._compactor.truncate_logs(),
            await self._blob_sweeper.remove_unused(),
            await self._compact_usage(),
        )
        if result != CompactionResult():
            log.info("compacted the store: %s", result)
        return result

    async def _compact_usage(self) -> int:
        submit, now = partial(self.writer.submit, low_priority=True), self._clock()
        while await submit(partial(daily_usage.merge_hours_before, hour=hour_of(now) - KEPT_HOURS + 1)):
            pass
        deleted: int = await submit(partial(daily_usage.delete_days_before, day=day_of(now) - KEPT_DAYS))
        return deleted

    async def daily_usage(self, query: DailyUsageQuery) -> list[DailyUsageRow]:
        await self.writer.write_figures()
        return await self._read(daily_usage.read, query)

    async def hourly_usage(self, query: HourlyUsageQuery) -> HourlyUsage:
        await self.writer.write_figures()
        return await self._read(daily_usage.read_hours, query)

    async def steps(self, task: TaskRef, *, results: bool = False, only: Sequence[StepRecord] = ()) -> list[StepRecord]:
        return await self._read(self.blobs.steps, task, results, only)

    async def stats(self) -> StoreStats:
        return await self._read(reads.read_stats, self._clock())

    def backup(self, destination: Path) -> AsyncGenerator[BackupProgress, None]:
        source = self._backup_source if self._files.problem() else None
        return backup.backup(self.path, destination, self._clock, source, self._backup_pages)

    def _check_files(self) -> None:
        """Rejects writes for as long as the files of the database are not those in use. Raises Unavailable."""
        problem = self._files.problem()
        was_refused, self.writer.refusal = bool(self.writer.refusal), problem and _FILES_LOST
        if problem and not was_refused:
            log.error(
                "%s: writes are rejected, because they would be lost when this process stops. Move the file back; or "
                "save all tasks with `dragoman backup FOLDER --server ADDRESS` while this process runs, stop it, and "
                "restore them with `dragoman restore FOLDER`",
                problem,
            )
        elif was_refused and not problem:
            log.warning("%s is back: writes are accepted again", self.path)
        if problem:
            raise Unavailable(_FILES_LOST)

    async def close(self) -> None:
        await self._blob_offloader.close()
        self.writer.flush()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.shutdown()
        while self._reader_connections:
            self._reader_connections.pop().close()
        self.loop_reader.close()
        self._backup_source.close()
        self._checkpointer.close()
        self.writer.close()

    def _reader(self) -> sqlite3.Connection:
        """The connection of this reader thread, opened when it is first used."""
        connection: sqlite3.Connection | None = getattr(self._reader_local, "connection", None)
        if connection is None:
            if self._files.problem():
                raise Unavailable(_FILES_LOST)
            connection = connect(self.path, readonly=True)
            self._reader_connections.append(connection)
            self._reader_local.connection = connection
        return connection

    def _report_damage(self, connection: sqlite3.Connection) -> None:
        """Logs a line for each damaged text, once."""
        if not self._is_damage_reported:
            self._is_damage_reported = True
            for line in errors.damaged_texts(connection):
                log.error("%s: %s", self.path, line)

    async def _read_listed(
        self, read: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Reads after a commit that lists all tasks, if there are others."""

        def read_if_listed(connection: sqlite3.Connection) -> tuple[T] | None:
            return None if figures.has_unlisted(connection) else (read(connection, *args, **kwargs),)

        if found := await self._read(read_if_listed):
            return found[0]
        await self.writer.submit(figures.list_tasks)
        return await self._read(read, *args, **kwargs)

    async def _read(
        self, read: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def snapshot(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN")  # one snapshot, however many statements
            try:
                return read(connection, *args, **kwargs)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

        def run() -> T:
            connection = self._reader()
            try:
                return snapshot(connection)
            except sqlite3.Error as error:
                if errors.is_undecodable(error):
                    self._report_damage(connection)
                    errors.tolerate_damaged_text(connection)
                elif errors.row_of(error).verdict is not Verdict.REPEAT:
                    raise
                return snapshot(connection)

        failure: Exception
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, run)
        except errors.DATABASE_ERRORS as error:
            failure = errors.failure_of(error, is_write=False)
            raise failure from error
        except RuntimeError as error:  # no thread could be started; another one may still do the read, unheard
            if not lacks_memory(error):
                raise
            failure = out_of_memory(error)
            raise failure from error
