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

from dragoman.core import links, references
from dragoman.core.log import Event, TaskRef
from dragoman.core.names import Owner
from dragoman.core.pages import Page, Query
from dragoman.core.references import EVENT, MESSAGE, RAW, TASK, URL, Reference, Tree
from dragoman.ports import Conversation, Snapshot
from dragoman.stores.sqlite import reads
from dragoman.stores.sqlite.blobs import Files

log = logging.getLogger("dragoman.store")

WHOLE: Final = 1 << 62
"""No limit: agents are given what was sent."""


@dataclass(slots=True)
class Room:
    """Bytes of blobs that still go into an answer."""

    left: int


class Inline:
    """Puts bytes, or links, where rows hold references."""

    def __init__(self, files: Files, secret: bytes, marker: bytes, limit: int, clock: Callable[[], int]) -> None:
        self._files = files
        self._secret = secret
        self._marker = marker
        self._limit = limit
        self._clock = clock
        self._base: Callable[[], str] = str

    # dragoman.ports.Blobs ---------------------------------------------------------------------------------------

    def served_at(self, base: Callable[[], str]) -> None:
        """Says what links begin with: the public address of HTTP."""
        self._base = base

    def find(self, digest: str, query: Mapping[str, str]) -> Path | None:
        """The file that a link gives away, None when it is gone. Raises PermissionError for a link that is not good."""
        if not links.is_signed(self._secret, digest, query, self._clock() / 1000):
            raise PermissionError("this link is not signed by this server, or it has expired; read the task again")
        path = self._files.path(bytes.fromhex(digest))
        return path if path.exists() else None

    # Reading ----------------------------------------------------------------------------------------------------

    def read(
        self, connection: sqlite3.Connection, ref: TaskRef, history: int | None, artifacts: bool
    ) -> Snapshot | None:
        found = reads.read(connection, ref, history, artifacts)
        if found is None or self._marker not in found.task:
            return found
        return replace(found, task=self._restore(found.task, TASK, Room(self._limit)))

    def get(
        self,
        connection: sqlite3.Connection,
        owner: Owner,
        agent: str,
        task_id: str,
        joined: bool,
        history: int | None,
    ) -> Snapshot | None:
        head = reads.find(connection, owner, agent, task_id, joined)
        return self.read(connection, head.ref, history, True) if head else None

    def events(self, connection: sqlite3.Connection, ref: TaskRef, after: int, limit: int) -> list[Event]:
        """Fewer than `limit` when their blobs alone would be more than one answer holds."""
        found, taken = reads.events(connection, ref, after, limit), 0
        for number, event in enumerate(found, 1):
            room = Room(self._limit)
            event.data = self._restore(event.data, EVENT, room)
            taken += self._limit - room.left
            if taken >= self._limit > 0:
                return found[:number]
        return found

    def conversation(self, connection: sqlite3.Connection, ref: TaskRef, after: int) -> Conversation | None:
        found = reads.conversation(connection, ref, after)
        if found is None:
            return None
        messages = [replace(one, message=self._restore(one.message, MESSAGE, Room(WHOLE))) for one in found.messages]
        return replace(found, messages=messages)

    def page(self, connection: sqlite3.Connection, query: Query) -> Page:
        found, room = reads.page(connection, query), Room(self._limit)
        return replace(found, tasks=[self._restore(task, TASK, room) for task in found.tasks])

    def restore(self, data: bytes, tree: Tree, contents: Mapping[bytes, bytes]) -> bytes:
        """What a reader would be given, from bytes that are at hand."""
        return self._restore(data, tree, Room(self._limit), contents)

    def _restore(self, data: bytes, tree: Tree, room: Room, contents: Mapping[bytes, bytes] | None = None) -> bytes:
        def resolve(reference: Reference) -> tuple[int, bytes]:
            blob = reference.blob
            if blob.size > room.left:
                return URL, self._link(reference).encode()
            content = contents.get(blob.digest) if contents else None
            try:
                content = content or self._files.path(blob.digest).read_bytes()
            except OSError:
                log.exception("the file of a large part cannot be read; a link is given instead")
                return URL, self._link(reference).encode()
            room.left -= blob.size
            return RAW, content

        return references.restore(data, tree, self._marker, resolve)

    def _link(self, reference: Reference) -> str:
        digest, expires = reference.blob.digest.hex(), self._clock() // 1000 + links.LASTS
        query = links.query(self._secret, digest, expires, reference.filename, reference.media_type)
        return f"{self._base()}/blobs/{digest}?{query}"
