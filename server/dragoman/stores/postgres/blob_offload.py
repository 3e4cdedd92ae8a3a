"""The way of an append that holds large parts: they are committed first, then the append goes to the writer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from dragoman.core.task import blob_references
from dragoman.core.task.blob_references import EVENT_TREE, OffloadedChange
from dragoman.core.task.log import Append, Appended, TaskRef
from dragoman.stores.postgres import blobs
from dragoman.stores.postgres.blob_restore import PostgresBlobRestorer
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.hot.writer import PostgresWriter


class PostgresBlobOffloader:
    """Takes large parts out of changes. Changes of the same task wait for one that is on this way, so that they
    are applied in the order of the calls; changes of other tasks do not."""

    def __init__(
        self, database: Database, writer: PostgresWriter, blob_restorer: PostgresBlobRestorer, marker: bytes
    ) -> None:
        self._database = database
        self._writer = writer
        self._blob_restorer = blob_restorer
        self._marker = marker
        self._previous_by_task: dict[TaskRef, asyncio.Future[None]] = {}
        self._running_offloads: set[asyncio.Task[None]] = set()

    def append(self, change: Append) -> asyncio.Future[Appended]:
        """As `ports.Store.append`. A small change of a task that has nothing on the way goes straight on."""
        ahead = self._previous_by_task.get(change.task)
        if ahead is None and not blob_references.has_large_part(change):
            return self._writer.submit(change)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Appended] = loop.create_future()
        passed = self._previous_by_task[change.task] = loop.create_future()
        work = loop.create_task(self._append(change, ahead, passed, answer))
        self._running_offloads.add(work)
        work.add_done_callback(self._running_offloads.discard)
        return answer

    async def close(self) -> None:
        """Waits for what is on the way."""
        while self._running_offloads:
            await asyncio.wait(self._running_offloads)

    async def _append(
        self,
        change: Append,
        previous: asyncio.Future[None] | None,
        handed_over: asyncio.Future[None],
        result: asyncio.Future[Appended],
    ) -> None:
        contents: Mapping[bytes, bytes] = {}
        try:
            try:
                if blob_references.has_large_part(change):
                    spilled = await self._offload(change)
                    change, contents = spilled.change, spilled.contents
            finally:
                if previous is not None:
                    await previous
            future = self._writer.submit(change)
            self._hand_over(change.task, handed_over)
            appended = await future
            for event in appended.events:
                event.data = self._blob_restorer.restore(event.data, EVENT_TREE, contents)
            if not result.done():
                result.set_result(appended)
        except Exception as error:
            if not result.done():
                result.set_exception(error)
        finally:
            self._hand_over(change.task, handed_over)

    async def _offload(self, change: Append) -> OffloadedChange:
        """Commits the large parts."""
        spilled = await asyncio.to_thread(blob_references.offload_parts, change, self._marker)
        for digest, content in sorted(spilled.contents.items()):
            await self._database.write(blobs.write_blob, digest, content, self._database.fixed_now)
        return spilled

    def _hand_over(self, ref: TaskRef, handed_over: asyncio.Future[None]) -> None:
        """Lets the next change of the task go on."""
        if not handed_over.done():
            handed_over.set_result(None)
        if self._previous_by_task.get(ref) is handed_over:
            del self._previous_by_task[ref]
