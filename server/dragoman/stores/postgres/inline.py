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

from dragoman.core import links, references
from dragoman.core.log import Event
from dragoman.core.pages import Page
from dragoman.core.references import EVENT, MESSAGE, RAW, TASK, URL, Reference, Tree
from dragoman.ports import Conversation, Snapshot
from dragoman.stores.postgres.aside import Aside

WHOLE: Final = 1 << 62
"""No limit: agents are given what was sent."""

_CONTENT: Final = "SELECT content FROM blobs WHERE hash = $1"

Fetch = Callable[[Collection[bytes]], Awaitable[Mapping[bytes, bytes]]]
"""Reads the bytes of blobs."""


@dataclass(slots=True)
class Room:
    """Bytes of blobs that still go into an answer."""

    left: int


class Inline:
    """Puts bytes, or links, where rows hold references. Implements `dragoman.ports.Blobs`."""

    def __init__(
        self, fetch: Fetch, aside: Aside, secret: bytes, marker: bytes, limit: int, clock: Callable[[], int]
    ) -> None:
        """`clock` gives milliseconds: when links expire."""
        self._fetch = fetch
        self._aside = aside
        self._secret = secret
        self._marker = marker
        self._limit = limit
        self._clock = clock
        self._base: Callable[[], str] = str
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    # dragoman.ports.Blobs ---------------------------------------------------------------------------------------

    def served_at(self, base: Callable[[], str]) -> None:
        """Says what links begin with: the public address of HTTP."""
        self._base = base

    def find(self, digest: str, query: Mapping[str, str]) -> Path | None:
        """A copy of the bytes that a link gives away, None when they are gone. Blocks.

        Raises PermissionError for a link that is not good, Unavailable when the server is away.
        """
        if not links.is_signed(self._secret, digest, query, self._clock() / 1000):
            raise PermissionError("this link is not signed by this server, or it has expired; read the task again")

        async def read(connection: Connection) -> bytes | None:
            content: bytes | None = await connection.fetchval(_CONTENT, bytes.fromhex(digest))
            return content

        content = self._aside.run(read)
        if content is None:
            return None
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="dragoman-blobs-")
        path = Path(self._folder.name) / digest
        if not path.exists():
            draft = path.with_suffix(".part")
            draft.write_bytes(content)
            draft.replace(path)
        return path

    def close(self) -> None:
        """Removes the copies."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    # Reading ----------------------------------------------------------------------------------------------------

    async def snapshot(self, found: Snapshot | None) -> Snapshot | None:
        if found is None or self._marker not in found.task:
            return found
        (task,) = await self._restored([found.task], TASK, self._limit)
        return replace(found, task=task)

    async def events(self, found: list[Event]) -> list[Event]:
        """Fewer of them when their blobs alone would be more than one answer holds."""
        taken = 0
        for number, event in enumerate(found, 1):
            if self._marker not in event.data:
                continue
            room = Room(self._limit)
            (event.data,) = await self._restored([event.data], EVENT, self._limit, room)
            taken += self._limit - room.left
            if taken >= self._limit > 0:
                return found[:number]
        return found

    async def conversation(self, found: Conversation | None) -> Conversation | None:
        if found is None or not any(self._marker in one.message for one in found.messages):
            return found
        whole = await self._restored([one.message for one in found.messages], MESSAGE, WHOLE)
        messages = [replace(one, message=data) for one, data in zip(found.messages, whole, strict=True)]
        return replace(found, messages=messages)

    async def page(self, found: Page) -> Page:
        if not any(self._marker in task for task in found.tasks):
            return found
        return replace(found, tasks=await self._restored(found.tasks, TASK, self._limit))

    def restore(self, data: bytes, tree: Tree, contents: Mapping[bytes, bytes]) -> bytes:
        """What a reader would be given, from bytes that are at hand."""
        return self._restore(data, tree, Room(self._limit), contents)

    async def _restored(
        self, answers: Sequence[bytes], tree: Tree, limit: int, room: Room | None = None
    ) -> list[bytes]:
        """The parts of one answer, which share its room."""
        wanted: set[bytes] = set()
        left = limit

        def note(reference: Reference) -> tuple[int, bytes]:
            nonlocal left
            if reference.blob.size <= left:
                left -= reference.blob.size
                wanted.add(reference.blob.digest)
            return URL, b""

        for data in answers:
            references.restore(data, tree, self._marker, note)
        contents = await self._fetch(wanted) if wanted else {}
        room = room or Room(limit)
        return [await asyncio.to_thread(self._restore, data, tree, room, contents) for data in answers]

    def _restore(self, data: bytes, tree: Tree, room: Room, contents: Mapping[bytes, bytes]) -> bytes:
        def resolve(reference: Reference) -> tuple[int, bytes]:
            blob = reference.blob
            content = contents.get(blob.digest)
            if blob.size > room.left or content is None:
                return URL, self._link(reference).encode()
            room.left -= blob.size
            return RAW, content

        return references.restore(data, tree, self._marker, resolve)

    def _link(self, reference: Reference) -> str:
        digest, expires = reference.blob.digest.hex(), self._clock() // 1000 + links.LASTS
        query = links.query(self._secret, digest, expires, reference.filename, reference.media_type)
        return f"{self._base()}/blobs/{digest}?{query}"
