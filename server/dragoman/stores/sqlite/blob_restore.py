"""Reads for a store with blobs: the functions of `reads`, with large parts restored.

They run on the reader threads.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from dragoman.core.names import Owner
from dragoman.core.task.blob_references import EVENT_TREE, MESSAGE_TREE, TASK_TREE
from dragoman.core.task.cursors import TaskPage, TaskQuery
from dragoman.core.task.log import Event, TaskRef
from dragoman.ports import TaskMessages, TaskSnapshot
from dragoman.stores.shared.blob_restore import UNLIMITED_BYTES, BlobBudget, BlobRestorer
from dragoman.stores.sqlite import reads
from dragoman.stores.sqlite.blobs import BlobFiles

log = logging.getLogger("dragoman.store")


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
        except OSError:
            log.exception("the file of a large part cannot be read; a link is given instead")
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
