"""Answers with their large parts: the bytes up to a limit for each answer, past it a link that expires.

Rows hold references; the blobs of an answer are read after it, all at once. One that is gone by then became a link
that leads nowhere, as its task did.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from asyncpg import Connection

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
from dragoman.core.task.cursors import TaskPage
from dragoman.core.task.log import Event
from dragoman.ports import TaskMessages, TaskSnapshot
from dragoman.stores.postgres.database import SideConnection

UNLIMITED_BYTES: Final = 1 << 62
"""No limit: agents are given what was sent."""

_SELECT_BLOB: Final = "SELECT content FROM blobs WHERE hash = $1"

ReadBlobs = Callable[[Collection[bytes]], Awaitable[Mapping[bytes, bytes]]]
"""Reads the bytes of blobs."""


@dataclass(slots=True)
class PostgresBlobBudget:
    """Bytes of blobs that still go into an answer."""

    remaining_bytes: int


class PostgresBlobRestorer:
    """Puts bytes, or links, where rows hold references. Implements `dragoman.ports.Blobs`."""

    def __init__(
        self,
        read_blobs: ReadBlobs,
        side_connection: SideConnection,
        secret: bytes,
        marker: bytes,
        limit: int,
        clock: Callable[[], int],
    ) -> None:
        """`clock` gives milliseconds: when links expire."""
        self._read_blobs = read_blobs
        self._side_connection = side_connection
        self._secret = secret
        self._marker = marker
        self._limit = limit
        self._clock = clock
        self._base_url: Callable[[], str] = str
        self._copies_folder: tempfile.TemporaryDirectory[str] | None = None

    # dragoman.ports.Blobs ---------------------------------------------------------------------------------------

    def set_base_url(self, base: Callable[[], str]) -> None:
        """Says what links begin with: the public address of HTTP."""
        self._base_url = base

    def find(self, digest: str, query: Mapping[str, str]) -> Path | None:
        """A copy of the bytes that a link gives away, None when they are gone. Blocks.

        Raises PermissionError for a link that is not good, Unavailable when the server is away.
        """
        if not blob_references.is_valid_blob_link(self._secret, digest, query, self._clock() / 1000):
            raise PermissionError("this link is not signed by this server, or it has expired; read the task again")

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

    # Reading ----------------------------------------------------------------------------------------------------

    async def snapshot(self, found: TaskSnapshot | None) -> TaskSnapshot | None:
        if found is None or self._marker not in found.task:
            return found
        (task,) = await self._restore_all([found.task], TASK_TREE, self._limit)
        return replace(found, task=task)

    async def events(self, found: list[Event]) -> list[Event]:
        """Fewer of them when their blobs alone would be more than one answer holds."""
        taken = 0
        for number, event in enumerate(found, 1):
            if self._marker not in event.data:
                continue
            room = PostgresBlobBudget(self._limit)
            (event.data,) = await self._restore_all([event.data], EVENT_TREE, self._limit, room)
            taken += self._limit - room.remaining_bytes
            if taken >= self._limit > 0:
                return found[:number]
        return found

    async def conversation(self, found: TaskMessages | None) -> TaskMessages | None:
        if found is None or not any(self._marker in one.message for one in found.messages):
            return found
        whole = await self._restore_all([one.message for one in found.messages], MESSAGE_TREE, UNLIMITED_BYTES)
        messages = [replace(one, message=data) for one, data in zip(found.messages, whole, strict=True)]
        return replace(found, messages=messages)

    async def page(self, found: TaskPage) -> TaskPage:
        if not any(self._marker in task for task in found.tasks):
            return found
        return replace(found, tasks=await self._restore_all(found.tasks, TASK_TREE, self._limit))

    def restore(self, data: bytes, tree: FieldTree, contents: Mapping[bytes, bytes]) -> bytes:
        """What a reader would be given, from bytes that are at hand."""
        return self._restore(data, tree, PostgresBlobBudget(self._limit), contents)

    async def _restore_all(
        self, messages: Sequence[bytes], tree: FieldTree, limit: int, budget: PostgresBlobBudget | None = None
    ) -> list[bytes]:
        """The parts of one answer, which share its room."""
        wanted: set[bytes] = set()
        left = limit

        def note(reference: BlobReference) -> tuple[int, bytes]:
            nonlocal left
            if reference.blob.size <= left:
                left -= reference.blob.size
                wanted.add(reference.blob.digest)
            return URL_FIELD, b""

        for data in messages:
            blob_references.restore_parts(data, tree, self._marker, note)
        contents = await self._read_blobs(wanted) if wanted else {}
        budget = budget or PostgresBlobBudget(limit)
        return [await asyncio.to_thread(self._restore, data, tree, budget, contents) for data in messages]

    def _restore(
        self, data: bytes, tree: FieldTree, budget: PostgresBlobBudget, contents: Mapping[bytes, bytes]
    ) -> bytes:
        def resolve(reference: BlobReference) -> tuple[int, bytes]:
            blob = reference.blob
            content = contents.get(blob.digest)
            if blob.size > budget.remaining_bytes or content is None:
                return URL_FIELD, self._link(reference).encode()
            budget.remaining_bytes -= blob.size
            return RAW_FIELD, content

        return blob_references.restore_parts(data, tree, self._marker, resolve)

    def _link(self, reference: BlobReference) -> str:
        digest, expires = reference.blob.digest.hex(), self._clock() // 1000 + blob_references.BLOB_LINK_LIFETIME
        query = blob_references.blob_link_query(self._secret, digest, expires, reference.filename, reference.media_type)
        return f"{self._base_url()}/blobs/{digest}?{query}"
