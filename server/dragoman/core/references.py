"""Parts whose bytes are kept elsewhere: a row holds a reference in their place, an answer holds the bytes again.

A reference is a field of Part that the protocol does not have, in the place of `raw`. Everything around it is framed
bytes, so putting one in or taking one out means to write the lengths around it anew, and nothing else: what is taken
out is, to the byte, what was put in. A marker that only the store knows stands in each reference, so that nobody
can send one, and so that bytes without any are known by one search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

from dragoman.core import frames
from dragoman.core.log import Append, ArtifactChange, Blob, StatusChange

LARGE: Final = 256 * 1024
"""Bytes of a part up to which they stay where they are."""

MARKER: Final = 16
"""Bytes of a marker."""

RAW: Final = 2
URL: Final = 3
FILENAME: Final = 6
MEDIA_TYPE: Final = 7
REFERENCE: Final = 8191
"""Fields of Part; the last is ours."""

Tree = Mapping[int, Any]
"""Where the parts of a message are: fields to follow, by number. An empty one is a Part."""

PART: Final[Tree] = {}
PARTS: Final[Tree] = {4: PART}
MESSAGE: Final[Tree] = {5: PART}
TASK: Final[Tree] = {3: {2: MESSAGE}, 4: PARTS, 5: MESSAGE}
EVENT: Final[Tree] = {1: TASK, 3: {3: {2: MESSAGE}}, 4: {3: PARTS}}
"""Of `parts` alone, Message, Task and StreamResponse."""


def rewrite(
    data: bytes, tree: Tree, concerns: Callable[[bytes, int, int], bool], part: Callable[[bytes], bytes]
) -> bytes:
    """`data` with `part` applied to each serialized Part that `concerns` does not rule out by its bytes from-to."""
    if not tree:
        return part(data)
    pieces: list[bytes] = []
    kept = 0
    for number, start, begin, end in frames.fields(data):
        branch = tree.get(number)
        if branch is not None and concerns(data, begin, end):
            inner = rewrite(data[begin:end], branch, concerns, part)
            pieces += (data[kept:start], frames.frame(number, inner))
            kept = end
    return b"".join((*pieces, data[kept:])) if pieces else data


# Putting in ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spilled:
    """A change with references in it, and the bytes they stand for."""

    change: Append
    contents: dict[bytes, bytes]


def is_large(change: Append) -> bool:
    """Whether a change may hold a large part: a quick look at its sizes."""
    if change.message is not None and len(change.message.message) > LARGE:
        return True
    return any(
        len(event.message if isinstance(event, StatusChange) else event.parts) > LARGE for event in change.events
    )


def spill(change: Append, marker: bytes) -> Spilled:
    """The change with its large parts taken out."""
    contents: dict[bytes, bytes] = {}

    def part(data: bytes) -> bytes:
        for number, start, begin, end in frames.fields(data):
            if number == RAW and end - begin > LARGE:
                digest = sha256(data[begin:end]).digest()
                contents[digest] = data[begin:end]
                reference = marker + digest + frames.varint(end - begin)
                return data[:start] + frames.frame(REFERENCE, reference) + data[end:]
        return data

    def without(data: bytes, tree: Tree) -> bytes:
        return rewrite(data, tree, _is_large, part) if len(data) > LARGE else data

    message = change.message
    if message is not None:
        message = replace(message, message=without(message.message, MESSAGE))
    events: list[StatusChange | ArtifactChange] = [
        replace(event, message=without(event.message, MESSAGE))
        if isinstance(event, StatusChange)
        else replace(event, parts=without(event.parts, PARTS))
        for event in change.events
    ]
    if not contents:
        return Spilled(change, contents)
    blobs = tuple(Blob(digest, len(content)) for digest, content in contents.items())
    return Spilled(replace(change, message=message, events=events, blobs=blobs), contents)


def _is_large(_: bytes, begin: int, end: int) -> bool:
    return end - begin > LARGE


# Taking out ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reference:
    """What a part says of bytes that are elsewhere."""

    blob: Blob
    filename: str
    media_type: str


Resolve = Callable[[Reference], tuple[int, bytes]]
"""The field that takes a reference's place: RAW and the bytes, or URL and where they are."""


def restore(data: bytes, tree: Tree, marker: bytes, resolve: Resolve) -> bytes:
    """`data` with something in the place of each reference."""
    if marker not in data:
        return data

    def concerns(data: bytes, begin: int, end: int) -> bool:
        return data.find(marker, begin, end) >= 0

    def part(data: bytes) -> bytes:
        found: Sequence[int] = ()
        about = {FILENAME: b"", MEDIA_TYPE: b""}
        for number, start, begin, end in frames.fields(data):
            if number == REFERENCE and data.startswith(marker, begin):
                found = start, begin, end
            elif number in about:
                about[number] = data[begin:end]
        if not found:
            return data
        start, begin, end = found
        digest = begin + MARKER
        size, _ = frames.read_varint(data, digest + 32)
        blob = Blob(data[digest : digest + 32], size)
        reference = Reference(blob, about[FILENAME].decode(), about[MEDIA_TYPE].decode())
        return data[:start] + frames.frame(*resolve(reference)) + data[end:]

    return rewrite(data, tree, concerns, part)
