"""Appends with large parts: the parts are stored first, then the append goes to the writer.

Storing takes time. Changes of the same task wait for one that is being offloaded, so they are applied in the order
of the calls; changes of other tasks do not wait.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from dragoman.core.task import blob_references
from dragoman.core.task.blob_references import EVENT_TREE, OffloadedChange
from dragoman.core.task.log import Append, Appended, TaskRef
from dragoman.stores.shared.blob_restore import NO_CONTENTS, BlobRestorer


class BlobOffloader(ABC):
    """Takes large parts out of changes. A store says how they are stored."""

    def __init__(self, blob_restorer: BlobRestorer, submit: Callable[[Append], asyncio.Future[Appended]]) -> None:
        """submit: queues a change for the writer."""
        self._blob_restorer = blob_restorer
        self._submit = submit
        self._previous_by_task: dict[TaskRef, asyncio.Future[None]] = {}
        self._running_offloads: set[asyncio.Task[None]] = set()

    def append(self, change: Append) -> asyncio.Future[Appended]:
        """As `ports.Store.append`. A small change of a task with nothing in progress goes straight to the writer."""
        previous = self._previous_by_task.get(change.task)
        if previous is None and not blob_references.has_large_part(change):
            return self._submit(change)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Appended] = loop.create_future()
        handed_over = self._previous_by_task[change.task] = loop.create_future()
        offload = loop.create_task(self._append(change, previous, handed_over, result))
        self._running_offloads.add(offload)
        offload.add_done_callback(self._running_offloads.discard)
        return result

    async def close(self) -> None:
        """Waits for the appends in progress."""
        while self._running_offloads:
            await asyncio.wait(self._running_offloads)

    @abstractmethod
    async def _offload(self, change: Append) -> OffloadedChange:
        """Stores the large parts durably. Their blobs are kept until `_release`."""

    @abstractmethod
    def _release(self, contents: Mapping[bytes, bytes]) -> None:
        """Called with these blobs (by digest) when their append has been committed, or has failed."""

    async def _append(
        self,
        change: Append,
        previous: asyncio.Future[None] | None,
        handed_over: asyncio.Future[None],
        result: asyncio.Future[Appended],
    ) -> None:
        contents: Mapping[bytes, bytes] = NO_CONTENTS
        try:
            try:
                if blob_references.has_large_part(change):
                    offloaded = await self._offload(change)
                    change, contents = offloaded.change, offloaded.contents
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
            self._release(contents)
            self._hand_over(change.task, handed_over)

    def _hand_over(self, ref: TaskRef, handed_over: asyncio.Future[None]) -> None:
        """Lets the next change of the task proceed."""
        if not handed_over.done():
            handed_over.set_result(None)
        if self._previous_by_task.get(ref) is handed_over:
            del self._previous_by_task[ref]
