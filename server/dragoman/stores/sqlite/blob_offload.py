"""The way of an append that holds large parts: they become files first, then the append goes to the writer.

Writing files takes its time on threads of its own. Changes of the same task wait for one that is on this way, so
that they are applied in the order of the calls; changes of other tasks do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dragoman.core.task import blob_references
from dragoman.core.task.blob_references import EVENT_TREE, OffloadedChange
from dragoman.core.task.log import Append, Appended, TaskRef
from dragoman.stores.sqlite.blob_restore import SqliteBlobRestorer
from dragoman.stores.sqlite.blobs import BlobFiles

BLOB_WRITER_THREADS: Final = 2
"""Threads that write files: more would only wait for the same disk."""


class SqliteBlobOffloader:
    """Takes large parts out of changes. `submit` hands a change to the writer."""

    def __init__(
        self,
        blob_files: BlobFiles,
        blob_restorer: SqliteBlobRestorer,
        marker: bytes,
        submit: Callable[[Append], asyncio.Future[Appended]],
    ) -> None:
        self._blob_files = blob_files
        self._blob_restorer = blob_restorer
        self._marker = marker
        self._submit = submit
        self._threads = ThreadPoolExecutor(BLOB_WRITER_THREADS, "dragoman-blobs")
        self._previous_by_task: dict[TaskRef, asyncio.Future[None]] = {}
        self._running_offloads: set[asyncio.Task[None]] = set()

    def append(self, change: Append) -> asyncio.Future[Appended]:
        """As `ports.Store.append`. A small change of a task that has nothing on the way goes straight on."""
        ahead = self._previous_by_task.get(change.task)
        if ahead is None and not blob_references.has_large_part(change):
            return self._submit(change)
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
        self._threads.shutdown(wait=False)

    async def _append(
        self,
        change: Append,
        previous: asyncio.Future[None] | None,
        handed_over: asyncio.Future[None],
        result: asyncio.Future[Appended],
    ) -> None:
        contents: dict[bytes, bytes] = {}
        try:
            try:
                if blob_references.has_large_part(change):
                    loop = asyncio.get_running_loop()
                    spilled = await loop.run_in_executor(self._threads, self._offload, change)
                    change, contents = spilled.change, spilled.contents
            finally:
                if previous is not None:
                    await previous
            future = self._submit(change)
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
            self._blob_files.release(contents.keys())
            self._hand_over(change.task, handed_over)

    def _offload(self, change: Append) -> OffloadedChange:
        """Puts the large parts on disk, and holds them."""
        spilled = blob_references.offload_parts(change, self._marker)
        self._blob_files.hold(spilled.contents.keys())
        try:
            for digest, content in spilled.contents.items():
                self._blob_files.write(digest, content)
        except BaseException:
            self._blob_files.release(spilled.contents.keys())
            raise
        return spilled

    def _hand_over(self, ref: TaskRef, handed_over: asyncio.Future[None]) -> None:
        """Lets the next change of the task go on."""
        if not handed_over.done():
            handed_over.set_result(None)
        if self._previous_by_task.get(ref) is handed_over:
            del self._previous_by_task[ref]
