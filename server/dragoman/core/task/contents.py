"""Contents of a task's parts in a response: the content itself, or a link.

Contents have a budget for each response. Which of them fit is decided by their lengths, before they are read, and in
the order of the parts, so that compaction, which joins rows, changes no response. A link names a definite content: its
task, the row in which it begins, where in the rows from there, and its length. It stays the same while an artifact
grows, and leads nowhere once the artifact was replaced.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Final

from dragoman.core.task import frames
from dragoman.core.task.blob_references import (
    FILENAME_FIELD,
    LARGE_PART_BYTES,
    MEDIA_TYPE_FIELD,
    PARTS_TREE,
    RAW_FIELD,
    TEXT_FIELD,
    TEXT_MEDIA_TYPE,
    URL_FIELD,
    FieldTree,
    rewrite_parts,
    text_type,
)

HISTORY_TREE: Final[FieldTree] = {5: {5: {}}}  # the fields that lead to the parts of a row of `messages`

MIN_SMALL_BYTES: Final = 16 * 1024 * 1024
"""Contents up to LARGE_PART_BYTES are inline until a response has this many bytes of them, or as many as of large
ones if that is more."""

UNLIMITED_BYTES: Final = 1 << 62  # no limit: agents receive the parts of messages as they were sent
MIN_LINKED_BYTES: Final = 1024  # shorter contents are always inline: a link has some hundred bytes

READ_BYTES: Final = 256 * 1024
"""Bytes that are read at a time, and a row more: a short transaction, and a short step of the loop that sends them."""

MakeLink = Callable[[str, str, str], str]  # makes a signed link to a content, from its name, file name and media type

# Links ------------------------------------------------------------------------------------------------------------

_NAME: Final = re.compile(
    r"([0-9]{1,18})-([0-9a-f]{32})-([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,18})(?:-([\w-]*))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class StoredContent:
    """Names a content of a part: `size` bytes from `offset` in the rows from `row` on.

    `row` is a sequence of an artifact's rows, or without an artifact the number of a message. `owner` is the store's
    number of the task's owner.
    """

    owner: int
    task: bytes
    row: int
    offset: int = 0
    size: int = 0
    artifact: str | None = None

    @property
    def name(self) -> str:
        suffix = ""
        if self.artifact is not None:
            suffix = "-" + urlsafe_b64encode(self.artifact.encode()).decode().rstrip("=")
        return f"{self.owner}-{self.task.hex()}-{self.row}-{self.offset}-{self.size}{suffix}"

    @classmethod
    def parse(cls, name: str) -> StoredContent | None:
        """The content with a name; None for any other text."""
        if (match := _NAME.fullmatch(name)) is None:
            return None
        owner, task, row, offset, size, artifact = match.groups()
        try:
            if artifact is not None:
                artifact = urlsafe_b64decode(artifact + "=" * (-len(artifact) % 4)).decode()
        except ValueError:
            return None
        return cls(int(owner), bytes.fromhex(task), int(row), int(offset), int(size), artifact)


# Budgets ----------------------------------------------------------------------------------------------------------


class ResponseBudget:
    """Bytes of contents that still fit into a response."""

    __slots__ = ("link", "remaining_bytes", "small_bytes")

    def __init__(self, limit: int, link: MakeLink) -> None:
        """limit: bytes of contents above LARGE_PART_BYTES."""
        self.link = link
        self.remaining_bytes = limit
        self.small_bytes = max(limit, MIN_SMALL_BYTES)

    def take(self, size: int) -> bool:
        """Whether a content of this size is inline; if so, it counts."""
        if size > LARGE_PART_BYTES:
            if size > self.remaining_bytes:
                return False
            self.remaining_bytes -= size
            return True
        if size > self.small_bytes and size > MIN_LINKED_BYTES:
            return False
        self.small_bytes -= size
        return True

    def take_rows(self, size: int) -> bool:
        """Whether rows of this size are inline whatever they hold; if so, they count."""
        if size > LARGE_PART_BYTES or size > self.small_bytes:
            return False
        self.small_bytes -= size
        return True

    def parts(self, data: bytes, tree: FieldTree, place: StoredContent) -> bytes:
        """These framed parts within the budget. `place`: where in the store `data` begins."""
        return rewrite_parts(data, tree, lambda *_: True, partial(self._part, place), place.offset)

    def _part(self, place: StoredContent, data: bytes, at: int) -> bytes:
        content: Sequence[int] = ()
        filename = media_type = ""
        for number, start, begin, end in frames.fields(data):
            if number in (TEXT_FIELD, RAW_FIELD):
                content = number, start, begin, end
            elif number == FILENAME_FIELD:
                filename = data[begin:end].decode()
            elif number == MEDIA_TYPE_FIELD:
                media_type = data[begin:end].decode()
        if not content:  # a link, data, or a reference to a blob, which has its own turn
            self.small_bytes -= len(data)
            return data
        number, start, begin, end = content
        if self.take(end - begin):
            return data
        added = b""
        link_type = media_type
        if number == TEXT_FIELD:
            link_type = text_type(media_type)
            added = b"" if media_type else frames.text(MEDIA_TYPE_FIELD, TEXT_MEDIA_TYPE)
        stored = replace(place, offset=at + begin, size=end - begin)
        link = self.link(stored.name, filename, link_type)
        return data[:start] + frames.text(URL_FIELD, link) + data[end:] + added


def _no_link(name: str, filename: str, media_type: str) -> str:
    raise AssertionError("a content does not fit into an unlimited budget")


def unlimited_budget() -> ResponseBudget:
    """The budget of a reader that receives all contents."""
    return ResponseBudget(UNLIMITED_BYTES, _no_link)


def limit_message(row: bytes, number: int, owner: int, task: bytes, budget: ResponseBudget) -> bytes:
    """A row of `messages` within the budget."""
    if budget.take_rows(len(row)):
        return row
    return budget.parts(row, HISTORY_TREE, StoredContent(owner, task, number))


# Artifacts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowSize:
    """The size of a row of an artifact, and whether it is text of chunks; otherwise it holds framed parts."""

    sequence: int
    text: bool
    size: int


@dataclass(frozen=True, slots=True)
class ArtifactSize:
    """An artifact without its contents: its rows, or None for `size` bytes of text from `first`."""

    artifact: str
    head: bytes
    first: int
    size: int
    rows: Sequence[RowSize] | None = None


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Asks for the data of the rows of an artifact between two sequences, in order."""

    artifact: str
    first: int
    last: int


MAX_SEQUENCE: Final = (1 << 63) - 1

ArtifactFold = Generator[ReadRows, Sequence[bytes], list[bytes]]
"""Yields what it has to read, is sent the rows, and returns the framed artifacts of a Task."""


def fold_artifacts(artifacts: Iterable[ArtifactSize], owner: int, task: bytes, budget: ResponseBudget) -> ArtifactFold:
    """The artifacts within a budget. Reads no text that becomes a link, and parts only some rows at a time."""
    framed = []
    for artifact in artifacts:
        place = StoredContent(owner, task, 0, artifact=artifact.artifact)
        body = [artifact.head]
        if artifact.rows is None:
            body.append((yield from _fold_text(place, artifact.first, MAX_SEQUENCE, artifact.size, budget)))
        else:
            for text, run in groupby(artifact.rows, key=lambda row: row.text):
                rows = list(run)
                if text:
                    size = sum(row.size for row in rows)
                    body.append((yield from _fold_text(place, rows[0].sequence, rows[-1].sequence, size, budget)))
                else:
                    body += yield from _fold_parts(place, rows, budget)
        framed.append(frames.frame(4, b"".join(body)))
    return framed


def _fold_text(
    place: StoredContent, first: int, last: int, size: int, budget: ResponseBudget
) -> Generator[ReadRows, Sequence[bytes], bytes]:
    assert place.artifact is not None
    if budget.take(size):
        return frames.frame(4, frames.frame(TEXT_FIELD, b"".join((yield ReadRows(place.artifact, first, last)))))
    link = budget.link(replace(place, row=first, size=size).name, "", text_type(TEXT_MEDIA_TYPE))
    return frames.frame(4, frames.text(URL_FIELD, link) + frames.text(MEDIA_TYPE_FIELD, TEXT_MEDIA_TYPE))


def _fold_parts(
    place: StoredContent, rows: Sequence[RowSize], budget: ResponseBudget
) -> Generator[ReadRows, Sequence[bytes], list[bytes]]:
    assert place.artifact is not None
    parts, offset = [], 0
    for some in slices(rows):
        data = b"".join((yield ReadRows(place.artifact, some[0].sequence, some[-1].sequence)))
        parts.append(budget.parts(data, PARTS_TREE, replace(place, row=rows[0].sequence, offset=offset)))
        offset += len(data)
    return parts


def slices(rows: Sequence[RowSize]) -> Iterator[Sequence[RowSize]]:
    """The rows in groups of about READ_BYTES."""
    first = size = 0
    for number, row in enumerate(rows):
        if number > first and size + row.size > READ_BYTES:
            yield rows[first:number]
            first, size = number, 0
        size += row.size
    yield rows[first:]


def run_fold(fold: ArtifactFold, read: Callable[[ReadRows], Sequence[bytes]]) -> list[bytes]:
    """Runs a fold with a function that reads at once."""
    try:
        wanted = next(fold)
        while True:
            wanted = fold.send(read(wanted))
    except StopIteration as end:
        artifacts: list[bytes] = end.value
        return artifacts


async def run_fold_async(fold: ArtifactFold, read: Callable[[ReadRows], Awaitable[Sequence[bytes]]]) -> list[bytes]:
    """Runs a fold with a function that has to wait."""
    try:
        wanted = next(fold)
        while True:
            wanted = fold.send(await read(wanted))
    except StopIteration as end:
        artifacts: list[bytes] = end.value
        return artifacts


# Reading a content ------------------------------------------------------------------------------------------------


class ContentMissing(Exception):
    """The artifact was replaced, or the task erased."""


@dataclass(frozen=True, slots=True)
class RowData:
    """A row of an artifact, or a message."""

    sequence: int
    text: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class ContentReader:
    """Reads a content in pieces, each in a transaction of its own; the rows may be joined in between.

    A row keeps its first sequence when others are joined to it. So each piece begins again at the last row of the one
    before: if that row is gone, it was joined to an earlier one, which is found by the sizes.
    """

    content: StoredContent
    read: Callable[[StoredContent, int, int], Awaitable[Sequence[RowData]]]
    """The rows from a sequence on, up to a number of bytes and at least one."""
    sizes: Callable[[StoredContent], Awaitable[Sequence[RowSize]]]  # of all rows from `content.row` on

    @property
    def size(self) -> int:
        return self.content.size

    async def pieces(self, start: int = 0, end: int | None = None) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` to `end`. Raises ContentMissing when they cannot be read, also later on."""
        position = self.content.offset + start
        stop = self.content.offset + (self.size if end is None else end)
        row, row_start = (await self._find(position)) if position else (self.content.row, 0)
        while position < stop:
            rows = await self.read(self.content, row, position - row_start + READ_BYTES)
            if not rows or rows[0].sequence != row:
                row, row_start = await self._find(position)
                continue
            pieces, at = [], row_start
            for one in rows:
                if one.text != rows[0].text or position >= stop:
                    break
                piece = one.data[position - at : stop - at]
                position += len(piece)
                pieces.append(piece)
                row, row_start = one.sequence, at
                at += len(one.data)
            if not any(pieces):
                raise ContentMissing
            yield b"".join(pieces)

    async def _find(self, position: int) -> tuple[int, int]:
        """The row that has this position, and where it begins. Raises ContentMissing."""
        at = 0
        sizes = await self.sizes(self.content)
        if not sizes or sizes[0].sequence != self.content.row:
            raise ContentMissing
        for one in sizes:
            if one.text != sizes[0].text:
                break
            if position < at + one.size:
                return one.sequence, at
            at += one.size
        raise ContentMissing
