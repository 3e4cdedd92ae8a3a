"""Restores large parts in responses: their bytes up to a budget, beyond it an expiring link.

Rows hold references (`core.task.blob_references`). A store reads the bytes of a response's blobs in its own way: in
advance, or one at a time through `content_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dragoman.core.task import blob_references
from dragoman.core.task.blob_references import RAW_FIELD, URL_FIELD, BlobReference, FieldTree
from dragoman.core.task.log import Event

UNLIMITED_BYTES: Final = 1 << 62
"""No limit: agents receive the parts as they were sent."""

NO_CONTENTS: Final[Mapping[bytes, bytes]] = {}


@dataclass(slots=True)
class BlobBudget:
    """Bytes of blobs that still fit into a response."""

    remaining_bytes: int


class BlobRestorer:
    """Replaces references with bytes or links. The base of each store's `dragoman.ports.Blobs`."""

    def __init__(self, secret: bytes, marker: bytes, limit: int, clock: Callable[[], int]) -> None:
        """secret: signs links. marker: is in every reference. limit: bytes for each response. clock: milliseconds."""
        self._secret = secret
        self._marker = marker
        self._limit = limit
        self._clock = clock
        self._base_url: Callable[[], str] = str

    def set_base_url(self, base: Callable[[], str]) -> None:
        """Sets what links begin with: the public HTTP address."""
        self._base_url = base

    def content_of(self, digest: bytes) -> bytes | None:
        """The bytes of a blob that was not read in advance. None: the response gets a link instead."""
        return None

    def restore(self, data: bytes, tree: FieldTree, contents: Mapping[bytes, bytes]) -> bytes:
        """What a reader would receive, where `contents` (by digest) are in memory."""
        return self._restore(data, tree, BlobBudget(self._limit), contents)

    def _restore(
        self, data: bytes, tree: FieldTree, budget: BlobBudget, contents: Mapping[bytes, bytes] = NO_CONTENTS
    ) -> bytes:
        def resolve(reference: BlobReference) -> tuple[int, bytes]:
            blob, content = reference.blob, None
            if blob.size <= budget.remaining_bytes:
                content = contents.get(blob.digest) or self.content_of(blob.digest)
            if content is None:
                return URL_FIELD, self._link(reference).encode()
            budget.remaining_bytes -= blob.size
            return RAW_FIELD, content

        return blob_references.restore_parts(data, tree, self._marker, resolve)

    def _events_to_restore(self, events: list[Event]) -> Iterator[tuple[Event, BlobBudget]]:
        """Yields each event that has references, with its budget; the caller restores it before the next.

        Drops the remaining `events` as soon as the blobs alone fill one response.
        """
        used = 0
        for number, event in enumerate(events, 1):
            if self._marker not in event.data:
                continue
            budget = BlobBudget(self._limit)
            yield event, budget
            used += self._limit - budget.remaining_bytes
            if used >= self._limit > 0:
                del events[number:]
                return

    def _check_link(self, digest: str, query: Mapping[str, str]) -> None:
        """Raises PermissionError for a link that is not signed by this store or has expired."""
        if not blob_references.is_valid_blob_link(self._secret, digest, query, self._clock() / 1000):
            raise PermissionError("this link is not signed by this server, or it has expired; read the task again")

    def _link(self, reference: BlobReference) -> str:
        digest, expires = reference.blob.digest.hex(), self._clock() // 1000 + blob_references.BLOB_LINK_LIFETIME
        query = blob_references.blob_link_query(self._secret, digest, expires, reference.filename, reference.media_type)
        return f"{self._base_url()}/blobs/{digest}?{query}"
