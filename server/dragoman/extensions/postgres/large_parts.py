"""Large parts of messages and artifacts: committed before their append, restored in what is read.

The rows of a response are read before its blobs, so a blob may have been removed in between: it becomes a link that
leads nowhere, as its task was removed too.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from asyncpg import Connection

from dragoman.core.task import blob_references
from dragoman.core.task.blob_references import (
    EVENT_TREE,
    MESSAGE_TREE,
    PART_TREE,
    TASK_TREE,
    URL_FIELD,
    BlobReference,
    FieldTree,
    OffloadedChange,
)
from dragoman.core.task.contents import ResponseBudget, RowData, RowSize, StoredContent, unlimited_budget
from dragoman.core.task.cursors import FoundTasks, TaskPage
from dragoman.core.task.log import Append, Event
from dragoman.core.task.steps import StepRecord
from dragoman.extensions.postgres import blobs, reads
from dragoman.extensions.postgres.database import Database, SideConnection
from dragoman.extensions.postgres.hot.writer import PostgresWriter
from dragoman.ports import TaskMessages, TaskSnapshot
from dragoman.stores.shared.blobs import BlobOffloader, BlobRestorer

_SELECT_BLOB: Final = "SELECT content FROM blobs WHERE hash = $1"

ReadBlobs = Callable[[Collection[bytes]], Awaitable[Mapping[bytes, bytes]]]
"""Reads the bytes of blobs, by digest."""


class PostgresBlobRestorer(BlobRestorer):
    """Implements `dragoman.ports.Blobs` on a database."""

    def __init__(
        self,
        database: Database,
        read_blobs: ReadBlobs,
        side_connection: SideConnection,
        secret: bytes,
        marker: bytes,
        limit: int,
        clock: Callable[[], int],
    ) -> None:
        """side_connection: for `find`, which blocks."""
        super().__init__(secret, marker, limit, clock)
        self._database = database
        self._read_blobs = read_blobs
        self._side_connection = side_connection
        self._copies_folder: tempfile.TemporaryDirectory[str] | None = None

    def find(self, digest: str, query: Mapping[str, str]) -> Path | None:
        """A copy of the blob behind a link; None when it was removed. Blocks.

        Raises PermissionError for an invalid link, Unavailable when the server cannot be reached.
        """
        self.check_link(digest, query)

        async def read(connection: Connection) -> bytes | None:
            content: bytes | None = await connection.fetchval(_SELECT_BLOB, bytes.fromhex(digest))
            return content

        content = self._side_connection.run(read)
        if content is None:
            return None
        if self._copies_folder is None:
            self._copies_folder = tempfile.TemporaryDirectory(prefix="dragoman-blobs-")
        path = Path(self._copies_folder.name) / digest
        if not path.exists():
            draft = path.with_suffix(".part")
            draft.write_bytes(content)
            draft.replace(path)
        return path

    def close(self) -> None:
        """Removes the copies."""
        if self._copies_folder is not None:
            self._copies_folder.cleanup()
            self._copies_folder = None

    async def read_rows(self, content: StoredContent, first: int, limit: int) -> Sequence[RowData]:
        return await self._database.read(reads.content_rows, content, first, limit)

    async def read_sizes(self, content: StoredContent) -> Sequence[RowSize]:
        return await self._database.read(reads.content_sizes, content)

    async def snapshot(self, snapshot: TaskSnapshot | None, budget: ResponseBudget) -> TaskSnapshot | None:
        if snapshot is None or self._marker not in snapshot.task:
            return snapshot
        (task,) = await self._restore_all([snapshot.task], TASK_TREE, budget)
        return replace(snapshot, task=task)

    async def events(self, events: list[Event]) -> list[Event]:
        """These events; fewer when their blobs alone fill one response."""
        for event, budget in self._events_to_restore(events):
            (event.data,) = await self._restore_all([event.data], EVENT_TREE, budget)
        return events

    async def messages(self, found: TaskMessages | None) -> TaskMessages | None:
        if found is None or not any(self._marker in stored.message for stored in found.messages):
            return found
        restored = await self._restore_all(
            [stored.message for stored in found.messages], MESSAGE_TREE, unlimited_budget()
        )
        messages = [replace(stored, message=data) for stored, data in zip(found.messages, restored, strict=True)]
        return replace(found, messages=messages)

    async def steps(self, steps: list[StepRecord]) -> list[StepRecord]:
        large = [step for step in steps if self._marker in step.result]
        restored = await self._restore_all([step.result for step in large], PART_TREE, unlimited_budget())
        for step, result in zip(large, restored, strict=True):
            step.result = result
        return steps

    async def page(self, page: TaskPage, budget: ResponseBudget) -> TaskPage:
        if not any(self._marker in task for task in page.tasks):
            return page
        return replace(page, tasks=await self._restore_all(page.tasks, TASK_TREE, budget))

    async def search(self, found: FoundTasks, budget: ResponseBudget) -> FoundTasks:
        if not any(self._marker in one.task for one in found.tasks):
            return found
        restored = await self._restore_all([one.task for one in found.tasks], TASK_TREE, budget)
        return replace(found, tasks=[replace(one, task=task) for one, task in zip(found.tasks, restored, strict=True)])

    async def _restore_all(self, items: Sequence[bytes], tree: FieldTree, budget: ResponseBudget) -> list[bytes]:
        """The restored parts of one response, which share its budget."""
        wanted: set[bytes] = set()
        remaining = budget.remaining_bytes

        def collect(reference: BlobReference) -> tuple[int, bytes]:
            nonlocal remaining
            if reference.blob.size <= remaining:
                remaining -= reference.blob.size
                wanted.add(reference.blob.digest)
            return URL_FIELD, b""

        for data in items:
            blob_references.restore_parts(data, tree, self._marker, collect)
        contents = await self._read_blobs(wanted) if wanted else {}
        return [await asyncio.to_thread(self.restore, data, tree, budget, contents) for data in items]


class PostgresBlobOffloader(BlobOffloader):
    """Writes large parts to `blobs`. They stay for `blobs.UNUSED_BLOB_GRACE_MS` without their append."""

    def __init__(
        self, database: Database, writer: PostgresWriter, blob_restorer: PostgresBlobRestorer, marker: bytes
    ) -> None:
        super().__init__(blob_restorer, writer.submit)
        self._database = database
        self._marker = marker

    async def _offload(self, change: Append) -> OffloadedChange:
        offloaded = await asyncio.to_thread(blob_references.offload_parts, change, self._marker)
        for digest, content in sorted(offloaded.contents.items()):
            await self._database.write(blobs.write_blob, digest, content, self._database.fixed_now)
        return offloaded

    def _release(self, contents: Mapping[bytes, bytes]) -> None:
        """Nothing is held: unused blobs are removed once they are old enough."""
