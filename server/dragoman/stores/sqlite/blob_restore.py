"""Answers with their large parts: the bytes up to a limit for each answer, past it a link that expires.

The functions of `reads`, for a store that has blobs. They run on the readers' threads.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dragoman.core.names import Owner
from dragoman.core.task import blob_references
from dragoman.core.task.blob_references import (
    EVENT_TREE,
    MESSAGE_TREE,
    RAW_FIELD,
    TASK_TREE,
    URL_FIELD,
    BlobReference,
    FieldTree,
)
from dragoman.core.task.cursors import TaskPage, TaskQuery
from dragoman.core.task.log import Event, TaskRef
from dragoman.ports import TaskMessages, TaskSnapshot
from dragoman.stores.sqlite import reads
from dragoman.stores.sqlite.blobs import BlobFiles

log = logging.getLogger("dragoman.store")

UNLIMITED_BYTES: Final = 1 << 62
"""No limit: agents are given what was sent."""


@dataclass(slots=True)
class SqliteBlobBudget:
    """Bytes of blobs that still go into an answer."""

    remaining_bytes: int


class SqliteBlobRestorer:
    """Puts bytes, or links, where rows hold references."""

    def __init__(
        self, blob_files: BlobFiles, secret: bytes, marker: bytes, limit: int, clock: Callable[[], int]
    ) -> None:
        self._blob_files = blob_files
        self._secret = secret
        self._marker = marker
        self._limit = limit
        self._clock = clock
        self._base_url: Callable[[], str] = str

    # dragoman.ports.Blobs ---------------------------------------------------------------------------------------

    def set_base_url(self, base: Callable[[], str]) -> None:
        """Says what links begin with: the public address of HTTP."""
        self._base_url = base

    def find(self, digest: str, query: Mapping[str, str]) -> Path | None:
        """The file that a link gives away, None when it is gone. Raises PermissionError for a link that is not good."""
        if not blob_references.is_valid_blob_link(self._secret, digest, query, self._clock() / 1000):
            raise PermissionError("this link is not signed by this server, or it has expired; read the task again")
        path = self._blob_files.path(bytes.fromhex(digest))
        return path if path.exists() else None

    # Reading ----------------------------------------------------------------------------------------------------

    def read(
        self, connection: sqlite3.Connection, ref: TaskRef, history: int | None, artifacts: bool
    ) -> TaskSnapshot | None:
        found = reads.read(connection, ref, history, artifacts)
        if found is None or self._marker not in found.task:
            return found
        return replace(found, task=self._restore(found.task, TASK_TREE, SqliteBlobBudget(self._limit)))

    def get(
        self,
        connection: sqlite3.Connection,
        owner: Owner,
        agent: str,
        task_id: str,
        joined: bool,
        history: int | None,
    ) -> TaskSnapshot | None:
        head = reads.find(connection, owner, agent, task_id, joined)
        return self.read(connection, head.ref, history, True) if head else None

    def events(self, connection: sqlite3.Connection, ref: TaskRef, after: int, limit: int) -> list[Event]:
        """Fewer than `limit` when their blobs alone would be more than one answer holds."""
        found, taken = reads.events(connection, ref, after, limit), 0
        for number, event in enumerate(found, 1):
            room = SqliteBlobBudget(self._limit)
            event.data = self._restore(event.data, EVENT_TREE, room)
            taken += self._limit - room.remaining_bytes
            if taken >= self._limit > 0:
                return found[:number]
        return found

    def conversation(self, connection: sqlite3.Connection, ref: TaskRef, after: int) -> TaskMessages | None:
        found = reads.conversation(connection, ref, after)
        if found is None:
            return None
        messages = [
            replace(one, message=self._restore(one.message, MESSAGE_TREE, SqliteBlobBudget(UNLIMITED_BYTES)))
            for one in found.messages
        ]
        return replace(found, messages=messages)

    def page(self, connection: sqlite3.Connection, query: TaskQuery) -> TaskPage:
        found, room = reads.page(connection, query), SqliteBlobBudget(self._limit)
        return replace(found, tasks=[self._restore(task, TASK_TREE, room) for task in found.tasks])

    def restore(self, data: bytes, tree: FieldTree, contents: Mapping[bytes, bytes]) -> bytes:
        """What a reader would be given, from bytes that are at hand."""
        return self._restore(data, tree, SqliteBlobBudget(self._limit), contents)

    def _restore(
        self, data: bytes, tree: FieldTree, budget: SqliteBlobBudget, contents: Mapping[bytes, bytes] | None = None
    ) -> bytes:
        def resolve(reference: BlobReference) -> tuple[int, bytes]:
            blob = reference.blob
            if blob.size > budget.remaining_bytes:
                return URL_FIELD, self._link(reference).encode()
            content = contents.get(blob.digest) if contents else None
            try:
                content = content or self._blob_files.path(blob.digest).read_bytes()
            except OSError:
                log.exception("the file of a large part cannot be read; a link is given instead")
                return URL_FIELD, self._link(reference).encode()
            budget.remaining_bytes -= blob.size
            return RAW_FIELD, content

        return blob_references.restore_parts(data, tree, self._marker, resolve)

    def _link(self, reference: BlobReference) -> str:
        digest, expires = reference.blob.digest.hex(), self._clock() // 1000 + blob_references.BLOB_LINK_LIFETIME
        query = blob_references.blob_link_query(self._secret, digest, expires, reference.filename, reference.media_type)
        return f"{self._base_url()}/blobs/{digest}?{query}"
