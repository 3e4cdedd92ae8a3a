"""Large parts of messages and artifacts: written as files before their append, restored in what is read.

Reading uses the functions of `reads`, on the reader threads.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from dragoman.core.names import Owner
from dragoman.core.task import blob_references
from dragoman.core.task.blob_references import EVENT_TREE, MESSAGE_TREE, TASK_TREE, OffloadedChange
from dragoman.core.task.cursors import TaskPage, TaskQuery
from dragoman.core.task.log import Append, Appended, Event, TaskRef
from dragoman.ports import TaskMessages, TaskSnapshot
from dragoman.stores.shared.blobs import UNLIMITED_BYTES, BlobBudget, BlobOffloader, BlobRestorer
from dragoman.stores.sqlite import reads
from dragoman.stores.sqlite.blobs import BlobFiles
from dragoman.stores.sqlite.errors import map_error
from dragoman.supervision import log_fault

log = logging.getLogger("dragoman.store")

BLOB_WRITER_THREADS: Final = 2
"""Threads that write files: more would only wait for the same disk."""


class SqliteBlobRestorer(BlobRestorer):
    """Implements `dragoman.ports.Blobs` on files beside the database."""

    def __init__(
        self, blob_files: BlobFiles, secret: bytes, marker: bytes, limit: int, clock: Callable[[], int]
    ) -> None:
        super().__init__(secret, marker, limit, clock)
        self._blob_files = blob_files

    def find(self, digest: str, query: Mapping[str, str]) -> Path | None:
        """The file behind a link; None when it was removed. Raises PermissionError for an invalid link."""
        self._check_link(digest, query)
        path = self._blob_files.path(bytes.fromhex(digest))
        return path if path.exists() else None

    def content_of(self, digest: bytes) -> bytes | None:
        try:
            return self._blob_files.path(digest).read_bytes()
        except OSError as error:
            log_fault(log, "the file of a large part cannot be read; a link is given instead", error)
            return None

    def read(
        self, connection: sqlite3.Connection, ref: TaskRef, history: int | None, artifacts: bool
    ) -> TaskSnapshot | None:
        snapshot = reads.read(connection, ref, history, artifacts)
        if snapshot is None or self._marker not in snapshot.task:
            return snapshot
        return replace(snapshot, task=self._restore(snapshot.task, TASK_TREE, BlobBudget(self._limit)))

    def get(
        self,
        connection: sqlite3.Connection,
        owner: Owner,
        agent: str,
        task_id: str,
        joined: bool,
        history: int | None,
    ) -> TaskSnapshot | None:
        record = reads.find(connection, owner, agent, task_id, joined)
        return self.read(connection, record.ref, history, True) if record else None

    def events(self, connection: sqlite3.Connection, ref: TaskRef, after: int, limit: int) -> list[Event]:
        """At most `limit` events; fewer when their blobs alone fill one response."""
        events = reads.events(connection, ref, after, limit)
        for event, budget in self._events_to_restore(events):
            event.data = self._restore(event.data, EVENT_TREE, budget)
        return events

    def messages(self, connection: sqlite3.Connection, ref: TaskRef, after: int) -> TaskMessages | None:
        found = reads.read_messages(connection, ref, after)
        if found is None:
            return None
        messages = [
            replace(stored, message=self._restore(stored.message, MESSAGE_TREE, BlobBudget(UNLIMITED_BYTES)))
            for stored in found.messages
        ]
        return replace(found, messages=messages)

    def page(self, connection: sqlite3.Connection, query: TaskQuery) -> TaskPage:
        page, budget = reads.page(connection, query), BlobBudget(self._limit)
        return replace(page, tasks=[self._restore(task, TASK_TREE, budget) for task in page.tasks])


class SqliteBlobOffloader(BlobOffloader):
    """Writes large parts to blob files, and holds these files until their append is committed."""

    def __init__(
        self,
        blob_files: BlobFiles,
        blob_restorer: SqliteBlobRestorer,
        marker: bytes,
        submit: Callable[[Append], asyncio.Future[Appended]],
    ) -> None:
        super().__init__(blob_restorer, submit)
        self._blob_files = blob_files
        self._marker = marker
        self._threads = ThreadPoolExecutor(BLOB_WRITER_THREADS, "dragoman-blobs")

    async def close(self) -> None:
        await super().close()
        self._threads.shutdown(wait=False)

    async def _offload(self, change: Append) -> OffloadedChange:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._write, change)
        except (OSError, MemoryError, RuntimeError) as error:
            if (mapped := map_error(error)) is error:
                raise
            log_fault(log, "the file of a large part cannot be written", error)
            raise mapped from error

    def _release(self, contents: Mapping[bytes, bytes]) -> None:
        self._blob_files.release(contents.keys())

    def _write(self, change: Append) -> OffloadedChange:
        offloaded = blob_references.offload_parts(change, self._marker)
        self._blob_files.hold(offloaded.contents.keys())
        try:
            for digest, content in offloaded.contents.items():
                self._blob_files.write(digest, content)
        except BaseException:
            self._blob_files.release(offloaded.contents.keys())
            raise
        return offloaded
