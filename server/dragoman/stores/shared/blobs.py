"""Large parts of messages and artifacts: stored beside the rows before an append, restored in responses.

Rows hold references (`core.task.blob_references`). A response contains the bytes up to a budget, beyond it an
expiring link.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from dragoman.core.errors import OutOfMemory
from dragoman.core.task import blob_references
from dragoman.core.task.blob_references import EVENT_TREE, URL_FIELD, BlobReference, FieldTree, OffloadedChange
from dragoman.core.task.contents import ContentReader, ResponseBudget, RowData, RowSize, StoredContent
from dragoman.core.task.log import Append, Appended, Event, TaskRef

NO_CONTENTS: Final[Mapping[bytes, bytes]] = {}
_COMMITTED_WITHOUT_MEMORY: Final = (
    "the server ran out of memory; this request may have been done, so check before you repeat it"
)


class BlobRestorer(ABC):
    """Replaces references with bytes or links. The base of each store's `dragoman.ports.Blobs`."""

    def __init__(self, secret: bytes, marker: bytes, limit: int, clock: Callable[[], int]) -> None:
        """secret: signs links. marker: is in every reference. limit: bytes for each response. clock: milliseconds."""
        self._secret = secret
        self._marker = marker
        self._limit = limit
        self._clock = clock
        self._base_url: Callable[[], str] = str

    def set_base_url(self, base: Callable[[], str]) -> None:
        self._base_url = base

    def budget(self) -> ResponseBudget:
        return ResponseBudget(self._limit, self._link)

    def content_of(self, digest: bytes) -> bytes | None:
        """The bytes of a blob that was not read in advance. None: the response gets a link instead."""
        return None

    def restore(
        self, data: bytes, tree: FieldTree, budget: ResponseBudget, contents: Mapping[bytes, bytes] = NO_CONTENTS
    ) -> bytes:
        """The data as a reader receives it, with `contents` (by digest) in memory."""

        def resolve(reference: BlobReference) -> tuple[int, bytes]:
            blob, content = reference.blob, None
            if blob.size <= budget.remaining_bytes:
                content = contents.get(blob.digest) or self.content_of(blob.digest)
            if content is None:
                return URL_FIELD, self._link(blob.digest.hex(), reference.filename, reference.link_type).encode()
            budget.remaining_bytes -= blob.size
            return reference.field, content

        return blob_references.restore_parts(data, tree, self._marker, resolve)

    def _events_to_restore(self, events: list[Event]) -> Iterator[tuple[Event, ResponseBudget]]:
        """Yields each event that has references, with its budget; the caller restores it before the next.

        Drops the remaining `events` as soon as the blobs alone fill one response.
        """
        used = 0
        for number, event in enumerate(events, 1):
            if self._marker not in event.data:
                continue
            budget = self.budget()
            yield event, budget
            used += self._limit - budget.remaining_bytes
            if used >= self._limit > 0:
                del events[number:]
                return

    def check_link(self, name: str, query: Mapping[str, str]) -> None:
        """Raises PermissionError for a link that is not signed by this store or has expired."""
        if not blob_references.is_valid_blob_link(self._secret, name, query, self._clock() / 1000):
            raise PermissionError("this link is not signed by this server, or it has expired; read the task again")

    def content(self, name: str, query: Mapping[str, str]) -> ContentReader | None:
        stored = StoredContent.parse(name)
        if stored is None:
            return None
        self.check_link(name, query)
        return ContentReader(stored, self.read_rows, self.read_sizes)

    @abstractmethod
    async def read_rows(self, content: StoredContent, first: int, limit: int) -> Sequence[RowData]:
        """The rows of a content from a sequence on, until they have `limit` bytes."""

    @abstractmethod
    async def read_sizes(self, content: StoredContent) -> Sequence[RowSize]:
        """The sizes of a content's rows."""

    def _link(self, name: str, filename: str, media_type: str) -> str:
        expires = self._clock() // 1000 + blob_references.BLOB_LINK_LIFETIME
        query = blob_references.blob_link_query(self._secret, name, expires, filename, media_type)
        return f"{self._base_url()}/blobs/{name}?{query}"


class BlobOffloader(ABC):
    """Takes large parts out of changes. A subclass stores them.

    Changes of a task wait for one that is being offloaded, so they are applied in the order of the calls; changes of
    other tasks do not wait.
    """

    def __init__(self, blob_restorer: BlobRestorer, submit: Callable[[Append], asyncio.Future[Appended]]) -> None:
        """submit: queues a change for the writer."""
        self._blob_restorer = blob_restorer
        self._submit = submit
        self._previous_by_task: dict[TaskRef, asyncio.Future[None]] = {}
        self._running_offloads: set[asyncio.Task[None]] = set()

    def append(self, change: Append) -> asyncio.Future[Appended]:
        """As `ports.Store.append`. A small change of a task with nothing in progress goes straight to the writer."""
        previous = self._previous_by_task.get(change.task)
        if previous is None and not change.may_have_part_over(blob_references.LARGE_PART_BYTES):
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
                if change.may_have_part_over(blob_references.LARGE_PART_BYTES):
                    offloaded = await self._offload(change)
                    change, contents = offloaded.change, offloaded.contents
            finally:
                if previous is not None:
                    await previous
            future = self._submit(change)
            self._hand_over(change.task, handed_over)
            appended, restorer = await future, self._blob_restorer
            try:
                for event in appended.events:
                    event.data = restorer.restore(event.data, EVENT_TREE, restorer.budget(), contents)
            except MemoryError as error:
                failure = OutOfMemory(_COMMITTED_WITHOUT_MEMORY)
                failure.outcome_unknown = True
                raise failure from error
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
