"""The store in memory: implements `dragoman.ports.Store` on a `MemoryDatabase`.

Every call is a function of the database that `call` runs. Here that is at once; a simulated server's store delays it,
loses it or its answer (tests/simulation/connection.py).
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.simulation.memory import queries
from tests.simulation.memory.database import MemoryDatabase
from tests.simulation.memory.erasure import MemoryEraser
from tests.simulation.memory.pushes import MemoryPushes
from tests.simulation.memory.tables import (
    MemoryApiKeys,
    MemoryAuditLog,
    MemoryKeyValues,
    MemoryTables,
    MemoryUpstreams,
    MemoryWorkerRegistry,
    Run,
)

from dragoman.core.counters import CommitCounters, StoreStats
from dragoman.core.daily_usage import DailyUsageQuery, DailyUsageRow, HourlyUsage, HourlyUsageQuery
from dragoman.core.errors import InvalidParams
from dragoman.core.limits.admission import TokenBuckets
from dragoman.core.names import Owner
from dragoman.core.task.contents import UNLIMITED_BYTES, RowData, RowSize, StoredContent
from dragoman.core.task.cursors import FoundTasks, OpenTasks, StateCount, TaskPage, TaskQuery, TaskSearch
from dragoman.core.task.log import Append, Appended, Event, TaskRecord, TaskRef
from dragoman.core.task.maintenance import (
    DEFAULT_STORAGE_OPTIONS,
)
from dragoman.core.task.steps import StepRecord
from dragoman.ports import AgentTasks, BackupProgress, CompactionResult, TaskMessages, TaskSnapshot
from dragoman.stores.shared.blobs import BlobRestorer

T = TypeVar("T")


class MemoryBlobs(BlobRestorer):
    """Implements `dragoman.ports.Blobs` for a store that keeps large parts in its rows."""

    def __init__(self, database: MemoryDatabase, secret: bytes) -> None:
        super().__init__(secret, b"no reference", DEFAULT_STORAGE_OPTIONS.inline_bytes, database.clock)
        self._database = database

    def find(self, digest: str, query: Mapping[str, str]) -> Path | None:
        self.check_link(digest, query)
        return None

    async def read_rows(self, content: StoredContent, first: int, limit: int) -> Sequence[RowData]:
        return self._rows(content, first, limit)

    async def read_sizes(self, content: StoredContent) -> Sequence[RowSize]:
        return [
            RowSize(row.sequence, row.text, len(row.data)) for row in self._rows(content, content.row, UNLIMITED_BYTES)
        ]

    def _rows(self, content: StoredContent, first: int, limit: int) -> list[RowData]:
        for ref, rows in self._database.tasks.items():
            if ref.key == content.task:
                return rows.content_rows(content, first, limit)
        return []


class MemoryStore:
    """Implements `dragoman.ports.Store`. Several may share one database and its tables, as servers do."""

    def __init__(self, database: MemoryDatabase, tables: MemoryTables | None = None) -> None:
        self.database = database
        self.tables = tables or MemoryTables()
        self.closed = False
        self.blobs = MemoryBlobs(database, self.secret("links"))
        self.commit_counters = CommitCounters()
        self.epoch = database.epoch
        self.buckets = TokenBuckets()
        read, write = partial(self.call, is_write=False), partial(self.call, is_write=True)
        self.pushes = MemoryPushes(database, read, write)
        self.cancel_requests = MemoryCancels(database, read, write)
        self.key_values = MemoryKeyValues(database, read, write)
        self.api_keys = MemoryApiKeys(self.tables, read, write)
        self.audit = MemoryAuditLog(self.tables, read, write)
        self.worker_registry = MemoryWorkerRegistry(self.tables, read, write)
        self.upstreams = MemoryUpstreams(self.tables, read, write)
        self.erasures = MemoryEraser(database, self.tables, read, write)

    def call(self, work: Callable[[], T], *, is_write: bool) -> asyncio.Future[T]:
        """Runs a function of the database, in the order of the calls."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        loop.call_soon(settle, future, work)
        return future

    def now(self) -> int:
        return self.database.clock()

    def secret(self, purpose: str) -> bytes:
        return hmac.digest(b"a store in memory", purpose.encode(), "sha256")

    def append(self, change: Append) -> asyncio.Future[Appended]:
        if self.closed:
            raise RuntimeError("the store is closed")
        self.commit_counters.changes.add(1)
        self.commit_counters.seconds.add(0.0)
        return self.call(partial(self.database.append, change, self.buckets), is_write=True)

    def _read(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return self.call(work, is_write=False)

    # Tasks ------------------------------------------------------------------------------------------------------------

    async def find(self, owner: Owner, agent: str, task_id: str) -> TaskRecord | None:
        rows = await self._read(lambda: self.database.find(owner, agent, task_id))
        return rows.record if rows is not None else None

    async def get(self, owner: Owner, agent: str, task_id: str, *, history: int | None = None) -> TaskSnapshot | None:
        def get() -> TaskSnapshot | None:
            rows = self.database.find(owner, agent, task_id)
            return self.database.snapshot(rows, history, True, self.blobs.budget()) if rows is not None else None

        return await self._read(get)

    async def locate(self, task_id: str) -> list[TaskRecord]:
        return await self._read(lambda: queries.locate(self.database, task_id))

    async def read(self, task: TaskRef, *, history: int | None = None, artifacts: bool = True) -> TaskSnapshot | None:
        return await self._read(lambda: self.database.read(task, history, artifacts, self.blobs.budget()))

    async def events(self, task: TaskRef, after: int, limit: int = 256) -> list[Event]:
        return await self._read(lambda: self.database.events(task, after, limit))

    async def oldest_sequence(self, task: TaskRef) -> int:
        known = self.database.tasks
        return await self._read(lambda: known[task].log[0][0].sequence if task in known else 0)

    async def messages(self, task: TaskRef, after: int = 0) -> TaskMessages | None:
        return await self._read(lambda: self.database.messages(task, after))

    async def envelope(self, task: TaskRef, number: int) -> bytes:
        def envelope() -> bytes:
            rows = self.database.tasks.get(task)
            return rows.messages[number - 1].envelope if rows and 0 < number <= len(rows.messages) else b""

        return await self._read(envelope)

    async def page(self, query: TaskQuery) -> TaskPage:
        return await self._read(lambda: queries.page(self.database, query, self.blobs.budget()))

    async def search(self, query: TaskSearch) -> FoundTasks:
        return await self._read(lambda: queries.search(self.database, query, self.blobs.budget()))

    async def count_states(self, query: TaskSearch) -> list[StateCount]:
        return await self._read(lambda: queries.count_states(self.database, query))

    async def open_tasks(self, query: TaskSearch) -> list[OpenTasks]:
        return await self._read(lambda: queries.open_tasks(self.database, query))

    async def scopes(self, limit: int) -> list[str]:
        return await self._read(lambda: sorted({ref.owner.scope for ref in self.database.tasks})[:limit])

    async def agents_of(self, principal: str) -> list[AgentTasks]:
        return await self._read(lambda: queries.agents_of(self.database, principal))

    async def last_sequences(self, tasks: Collection[TaskRef]) -> dict[bytes, int]:
        known = self.database.tasks
        return await self._read(lambda: {ref.key: known[ref].record.last_sequence for ref in tasks if ref in known})

    async def ready_tasks(self, agents: Collection[str], limit: int, after: str = "") -> list[TaskRecord]:
        return await self._read(lambda: queries.ready_tasks(self.database, agents, limit, after))

    async def steps(self, task: TaskRef, *, results: bool = False, only: Sequence[StepRecord] = ()) -> list[StepRecord]:
        return await self._read(lambda: queries.steps(self.database, task, results, only))

    async def sleeping_tasks(self, until: int, limit: int) -> list[TaskRecord]:
        return await self._read(lambda: queries.sleeping_tasks(self.database, until, limit))

    # Sessions ---------------------------------------------------------------------------------------------------------

    async def open_session(self, lease: float, *, exclusive: bool = False) -> int:
        return await self.call(lambda: queries.open_session(self.database, lease, exclusive), is_write=True)

    def renew_session(self, session: int, lease: float) -> int:
        return queries.renew_session(self.database, session, lease)

    async def sessions(self) -> dict[int, int]:
        def live() -> dict[int, int]:
            now = self.database.clock()
            return {session: expiry for session, expiry in self.database.sessions.items() if expiry > now}

        return await self._read(live)

    async def orphaned_tasks(self, session: int, limit: int, *, expired: bool = True) -> list[TaskRecord]:
        return await self._read(lambda: queries.orphaned_tasks(self.database, session, limit, expired))

    # Maintenance ------------------------------------------------------------------------------------------------------

    async def compact(self) -> CompactionResult:
        events, usage_rows = await self._read(lambda: queries.compact(self.database))
        return CompactionResult(events=events, usage_rows=usage_rows)

    async def delegated_tasks(self, task: TaskRef, limit: int) -> list[TaskRecord]:
        return await self._read(lambda: queries.delegated_tasks(self.database, task, limit))

    async def daily_usage(self, query: DailyUsageQuery) -> list[DailyUsageRow]:
        return await self._read(lambda: queries.daily_usage(self.database, query))

    async def hourly_usage(self, query: HourlyUsageQuery) -> HourlyUsage:
        return await self._read(lambda: queries.hourly_usage(self.database, query))

    async def stats(self) -> StoreStats:
        return await self._read(lambda: queries.stats(self.database))

    def backup(self, destination: Path) -> AsyncGenerator[BackupProgress, None]:
        """Always raises InvalidParams: there are no files."""
        raise InvalidParams.field("destination", "cannot be used: this store is in memory only")

    async def close(self) -> None:
        self.closed = True


class MemoryCancels:
    """Implements `dragoman.ports.CancelRequests`."""

    def __init__(self, database: MemoryDatabase, read: Run, write: Run) -> None:
        self._database = database
        self._read = read
        self._write = write

    async def request(self, task: TaskRef, metadata: bytes = b"") -> None:
        def store() -> None:
            rows = self._database.tasks.get(task)
            if rows is not None and (rows.record.session or rows.record.ready):
                until, now = rows.record.last_received, self._database.clock()
                before = self._database.cancels.get(task)
                since = before[2] if before is not None and before[0] == until else now
                self._database.cancels[task] = (until, metadata, since)

        await self._write(store)

    async def of_session(self, session: int) -> Mapping[TaskRef, bytes]:
        found: Mapping[TaskRef, bytes] = await self._read(
            lambda: {
                record.ref: metadata
                for record, metadata, _ in self._database.pending_cancels()
                if record.session == session
            }
        )
        return found

    async def pending(self, tasks: Collection[TaskRef]) -> Mapping[TaskRef, bytes]:
        found: Mapping[TaskRef, bytes] = await self._read(
            lambda: {record.ref: data for record, data, _ in self._database.pending_cancels() if record.ref in tasks}
        )
        return found

    async def overdue(self, seconds: float) -> Collection[TaskRef]:
        def find() -> list[TaskRef]:
            until = self._database.clock() - round(seconds * 1000)
            return [record.ref for record, _, since in self._database.pending_cancels() if since <= until]

        found: list[TaskRef] = await self._read(find)
        return found

    async def withdraw(self, task: TaskRef) -> None:
        await self._write(lambda: self._database.cancels.pop(task, None))


def settle(future: asyncio.Future[T], work: Callable[[], T]) -> None:
    """Completes a future, unless it is done, with what a function of the database returns or raises."""
    try:
        result = work()
    except Exception as error:
        if not future.done():
            future.set_exception(error)
        return
    if not future.done():
        future.set_result(result)
