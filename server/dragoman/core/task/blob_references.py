"""Replaces the bytes of large parts by references to blobs, and restores them.

A reference is a field of Part that the protocol does not have, in the place of `raw`. Everything around it is framed
bytes, so only the enclosing lengths are rewritten, and restored bytes are identical to the original. Each reference
holds a marker that only the store knows: clients cannot send references, and one search finds all rows with one.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlencode

from dragoman.core.task import frames
from dragoman.core.task.log import Append, ArtifactChange, Blob, StatusChange

LARGE_PART_BYTES: Final = 256 * 1024  # a part with more bytes is offloaded to a blob
MARKER_BYTES: Final = 16  # the length of a marker

TEXT_FIELD: Final = 1
RAW_FIELD: Final = 2
URL_FIELD: Final = 3
FILENAME_FIELD: Final = 6
MEDIA_TYPE_FIELD: Final = 7
REFERENCE_FIELD: Final = 8191
"""Field numbers of Part; the last is ours."""

TEXT_MEDIA_TYPE: Final = "text/plain"  # of a text without a media type, when it becomes a link

FieldTree = Mapping[int, Any]
"""The fields that lead to the parts of a message, by number. An empty tree is a Part."""

PART_TREE: Final[FieldTree] = {}
PARTS_TREE: Final[FieldTree] = {4: PART_TREE}
MESSAGE_TREE: Final[FieldTree] = {5: PART_TREE}
TASK_TREE: Final[FieldTree] = {3: {2: MESSAGE_TREE}, 4: PARTS_TREE, 5: MESSAGE_TREE}
EVENT_TREE: Final[FieldTree] = {1: TASK_TREE, 3: {3: {2: MESSAGE_TREE}}, 4: {3: PARTS_TREE}}
"""The trees of a list of parts, Message, Task and StreamResponse."""


def rewrite_parts(
    data: bytes,
    tree: FieldTree,
    may_match: Callable[[bytes, int, int], bool],
    rewrite_part: Callable[[bytes, int], bytes],
    at: int = 0,
) -> bytes:
    """Applies `rewrite_part` to each serialized Part in `data` with its position.

    `may_match` skips fields by their start and end. `at` is the position of `data`.
    """
    if not tree:
        return rewrite_part(data, at)
    pieces: list[bytes] = []
    copied = 0
    for number, start, begin, end in frames.fields(data):
        branch = tree.get(number)
        if branch is not None and may_match(data, begin, end):
            field = data[begin:end]
            inner = rewrite_parts(field, branch, may_match, rewrite_part, at + begin)
            if inner is not field:
                pieces += (data[copied:start], frames.frame(number, inner))
                copied = end
    return b"".join((*pieces, data[copied:])) if pieces else data


# Offload ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffloadedChange:
    """A change that holds references, and the referenced contents by digest."""

    change: Append
    contents: dict[bytes, bytes]


def offload_parts(change: Append, marker: bytes) -> OffloadedChange:
    """Replaces the large parts of a change by references."""
    contents: dict[bytes, bytes] = {}

    def part(data: bytes, at: int) -> bytes:
        for number, start, begin, end in frames.fields(data):
            if number in (RAW_FIELD, TEXT_FIELD) and end - begin > LARGE_PART_BYTES:
                digest = sha256(data[begin:end]).digest()
                contents[digest] = data[begin:end]
                reference = marker + digest + frames.varint(end - begin) + frames.varint(number)
                return data[:start] + frames.frame(REFERENCE_FIELD, reference) + data[end:]
        return data

    def part_of_message(data: bytes, at: int) -> bytes:
        # Its text stays: the store keeps the beginning of it beside the task.
        return data if any(number == TEXT_FIELD for number, *_ in frames.fields(data)) else part(data, at)

    def rewritten(data: bytes, tree: FieldTree) -> bytes:
        rewrite_part = part_of_message if tree is MESSAGE_TREE else part
        if len(data) <= LARGE_PART_BYTES:
            return data
        return rewrite_parts(data, tree, lambda _, begin, end: end - begin > LARGE_PART_BYTES, rewrite_part)

    message = change.message
    if message is not None:
        message = replace(message, message=rewritten(message.message, MESSAGE_TREE))
    events: list[StatusChange | ArtifactChange] = [
        replace(event, message=rewritten(event.message, MESSAGE_TREE))
        if isinstance(event, StatusChange)
        else replace(event, parts=rewritten(event.parts, PARTS_TREE))
        for event in change.events
    ]
    steps = [replace(step, result=rewritten(step.result, PART_TREE)) for step in change.steps]
    if not contents:
        return OffloadedChange(change, contents)
    blobs = tuple(Blob(digest, len(content)) for digest, content in contents.items())
    return OffloadedChange(replace(change, message=message, events=events, steps=steps, blobs=blobs), contents)


# Restore ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlobReference:
    """A reference in a part, with the part's file name and media type, and the field that it replaces."""

    blob: Blob
    filename: str
    media_type: str
    field: int = RAW_FIELD

    @property
    def link_type(self) -> str:
        return text_type(self.media_type) if self.field == TEXT_FIELD else self.media_type


def text_type(media_type: str) -> str:
    """The media type of a text, as it is served: with its encoding."""
    return media_type if "charset" in media_type.lower() else f"{media_type or TEXT_MEDIA_TYPE}; charset=utf-8"


BlobResolver = Callable[[BlobReference], tuple[int, bytes]]
"""Returns the field that replaces a reference: its own and the bytes, or URL_FIELD and a link."""


def restore_parts(data: bytes, tree: FieldTree, marker: bytes, resolve: BlobResolver) -> bytes:
    """Replaces each reference in `data` by the field that `resolve` returns."""
    if marker not in data:
        return data

    def part(data: bytes, at: int) -> bytes:
        found: Sequence[int] = ()
        labels = {FILENAME_FIELD: b"", MEDIA_TYPE_FIELD: b""}
        for number, start, begin, end in frames.fields(data):
            if number == REFERENCE_FIELD and data.startswith(marker, begin):
                found = start, begin, end
            elif number in labels:
                labels[number] = data[begin:end]
        if not found:
            return data
        start, begin, end = found
        digest = begin + MARKER_BYTES
        size, size_end = frames.read_varint(data, digest + 32)
        replaced = frames.read_varint(data, size_end)[0] if size_end < end else RAW_FIELD
        blob = Blob(data[digest : digest + 32], size)
        reference = BlobReference(blob, labels[FILENAME_FIELD].decode(), labels[MEDIA_TYPE_FIELD].decode(), replaced)
        number, content = resolve(reference)
        added = b""
        if number == URL_FIELD and replaced == TEXT_FIELD and not reference.media_type:
            added = frames.text(MEDIA_TYPE_FIELD, TEXT_MEDIA_TYPE)
        return data[:start] + frames.frame(number, content) + data[end:] + added

    return rewrite_parts(data, tree, lambda data, begin, end: data.find(marker, begin, end) >= 0, part)


BLOB_NAME: Final = re.compile(r"[0-9a-f]{64}")  # the name of a blob in links: its digest
BLOB_LINK_LIFETIME: Final = 3600  # seconds until a blob link expires


def blob_link_query(secret: bytes, name: str, expires: int, filename: str, media_type: str) -> str:
    """The query of a link, valid until `expires` (seconds since the epoch).

    `name`: the digest of a blob (hex), or the name of a stored content.
    """
    query = {"expires": str(expires), "filename": filename, "type": media_type}
    query = {name: value for name, value in query.items() if value}
    return urlencode({**query, "signature": _sign(secret, name, query)})


def is_valid_blob_link(secret: bytes, name: str, values: Mapping[str, str], now: float) -> bool:
    """Whether a link query is signed by us and valid at `now` (seconds since the epoch)."""
    expires = values.get("expires", "")
    if not hmac.compare_digest(_sign(secret, name, values).encode(), values.get("signature", "").encode()):
        return False
    return expires.isascii() and expires.isdigit() and now < int(expires)


def _sign(secret: bytes, name: str, values: Mapping[str, str]) -> str:
    signed = (name, *(values.get(key, "") for key in ("expires", "filename", "type")))
    return hmac.digest(secret, frames.delimited([value.encode() for value in signed]), "sha256").hex()
