"""Names of contents, budgets of responses, and contents that are read in pieces."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.task import frames
from dragoman.core.task.blob_references import LARGE_PART_BYTES, PARTS_TREE
from dragoman.core.task.contents import (
    MIN_LINKED_BYTES,
    READ_BYTES,
    ArtifactSize,
    ContentMissing,
    ContentReader,
    ReadRows,
    ResponseBudget,
    RowData,
    RowSize,
    StoredContent,
    fold_artifacts,
    run_fold,
    unlimited_budget,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

TASK = bytes(range(16))
NUMBERS = st.integers(0, 10**18 - 1)


def link(name: str, filename: str, media_type: str) -> str:
    return f"link:{name}|{filename}|{media_type}"


def linked(part: pb.Part) -> StoredContent:
    """The content that a link of `link` names."""
    content = StoredContent.parse(part.url.removeprefix("link:").partition("|")[0])
    assert content is not None
    return content


@given(NUMBERS, st.binary(min_size=16, max_size=16), NUMBERS, NUMBERS, NUMBERS, st.none() | st.text())
def test_a_content_is_named_and_found_by_its_name(
    owner: int, task: bytes, row: int, offset: int, size: int, artifact: str | None
) -> None:
    try:
        content = StoredContent(owner, task, row, offset, size, artifact)
        name = content.name
    except UnicodeEncodeError:  # no artifact has such an id
        return
    assert StoredContent.parse(name) == content
    assert "/" not in name


@pytest.mark.parametrize(
    "name", ["", "0" * 64, "1-2-t3-4-5", f"1-{'0' * 32}-t3-4-5", f"1-{'0' * 32}-3-4-5-_w", "1-²-t3-4-5"]
)
def test_other_texts_name_no_content(name: str) -> None:
    assert StoredContent.parse(name) is None


def test_large_and_small_contents_have_budgets_of_their_own() -> None:
    budget = ResponseBudget(LARGE_PART_BYTES + 1, link)
    assert budget.take(LARGE_PART_BYTES + 1)
    assert not budget.take(LARGE_PART_BYTES + 1)
    small = budget.small_bytes
    while budget.small_bytes >= LARGE_PART_BYTES:
        assert budget.take(LARGE_PART_BYTES)
    assert small > LARGE_PART_BYTES
    assert budget.take(budget.small_bytes)
    assert not budget.take(MIN_LINKED_BYTES + 1)
    assert budget.take(MIN_LINKED_BYTES)


def test_a_part_that_does_not_fit_becomes_a_link_with_its_other_fields() -> None:
    large = LARGE_PART_BYTES + 1
    parts = [
        pb.Part(text="a" * large, filename="notes.md", media_type="text/markdown"),
        pb.Part(text="b" * large),
        pb.Part(raw=b"c" * large, filename="c.bin"),
        pb.Part(text="small"),
        pb.Part(url="https://example.com/x"),
    ]
    parts[0].metadata["key"] = "value"
    row = b"".join(frames.frame(4, part.SerializeToString()) for part in parts)
    place = StoredContent(7, TASK, 3, artifact="out")
    limited = pb.Artifact.FromString(ResponseBudget(0, link).parts(row, PARTS_TREE, place)).parts
    assert [part.WhichOneof("content") for part in limited] == ["url", "url", "url", "text", "url"]
    assert [part.media_type for part in limited[:3]] == ["text/markdown", "text/plain", ""]
    types = [part.url.rpartition("|")[2] for part in limited[:3]]
    assert types == ["text/markdown; charset=utf-8", "text/plain; charset=utf-8", ""]
    assert [part.filename for part in limited[:3]] == ["notes.md", "", "c.bin"]
    assert limited[0].metadata["key"] == "value"
    for part, one in zip(parts[:3], limited[:3], strict=True):
        content = linked(one)
        assert (content.owner, content.task, content.row, content.artifact) == (7, TASK, 3, "out")
        assert row[content.offset : content.offset + content.size] == (part.raw or part.text.encode())
    assert pb.Artifact.FromString(unlimited_budget().parts(row, PARTS_TREE, place)).parts == parts


def test_a_text_that_does_not_fit_is_not_read() -> None:
    sizes = [ArtifactSize("large", frames.text(1, "large"), 2, 1 << 40), ArtifactSize("small", b"", 3, 5)]
    wanted: list[ReadRows] = []

    def read(rows: ReadRows) -> Sequence[bytes]:
        wanted.append(rows)
        return [b"he", b"llo"]

    task = pb.Task.FromString(b"".join(run_fold(fold_artifacts(sizes, 1, TASK, ResponseBudget(100, link)), read)))
    assert [rows.artifact for rows in wanted] == ["small"]
    large, small = task.artifacts
    assert (large.artifact_id, linked(large.parts[0]).size) == ("large", 1 << 40)
    assert small.parts[0].text == "hello"


def test_parts_are_read_some_rows_at_a_time() -> None:
    row = frames.frame(4, pb.Part(raw=b"x" * 100_000).SerializeToString())
    sizes = [RowSize(number, False, len(row)) for number in range(10)]
    most = 0

    def read(rows: ReadRows) -> Sequence[bytes]:
        nonlocal most
        most = max(most, rows.last - rows.first + 1)
        return [row] * (rows.last - rows.first + 1)

    fold = fold_artifacts([ArtifactSize("out", b"", 0, 10 * len(row), sizes)], 1, TASK, unlimited_budget())
    (framed,) = run_fold(fold, read)
    assert len(pb.Task.FromString(framed).artifacts[0].parts) == 10
    assert most == READ_BYTES // len(row)


class Rows:
    """Rows of a content, as a store has them."""

    def __init__(self, *rows: tuple[int, bytes]) -> None:
        self.rows = dict(rows)
        self.size_reads = 0

    def reader(self, offset: int, size: int) -> ContentReader:
        return ContentReader(StoredContent(1, TASK, 1, offset, size, "out"), self.read, self.sizes)

    async def read(self, content: StoredContent, first: int, limit: int) -> Sequence[RowData]:
        found = []
        for sequence, data in sorted(self.rows.items()):
            if sequence >= first and limit > 0:
                found.append(RowData(sequence, True, data))
                limit -= len(data)
        return found

    async def sizes(self, content: StoredContent) -> Sequence[RowSize]:
        self.size_reads += 1
        return [RowSize(sequence, True, len(data)) for sequence, data in sorted(self.rows.items())]


CONTENT = bytes(range(256)) * (READ_BYTES // 64)
"""Four times what is read at once."""


def rows_of(size: int) -> Rows:
    """CONTENT in rows of this size, with sequences that have gaps."""
    return Rows(*((1 + 3 * n, CONTENT[at : at + size]) for n, at in enumerate(range(0, len(CONTENT), size))))


@pytest.mark.parametrize("row_size", [1000, 64 * 1024, READ_BYTES, len(CONTENT)])
@pytest.mark.parametrize(("offset", "size"), [(0, len(CONTENT)), (5, 1), (70_000, 600_000), (len(CONTENT) - 1, 1)])
async def test_a_content_is_read_from_rows_of_any_size(row_size: int, offset: int, size: int) -> None:
    pieces = [piece async for piece in rows_of(row_size).reader(offset, size).pieces()]
    assert b"".join(pieces) == CONTENT[offset : offset + size]
    assert max(map(len, pieces)) <= READ_BYTES + row_size


async def test_a_row_that_was_joined_to_an_earlier_one_is_found_again() -> None:
    rows = rows_of(64 * 1024)
    pieces = rows.reader(0, len(CONTENT)).pieces()
    read = await anext(pieces)
    rows.rows = {1: CONTENT}
    read += b"".join([piece async for piece in pieces])
    assert read == CONTENT
    assert rows.size_reads == 1


async def test_what_is_not_there_is_an_error_and_never_an_early_end() -> None:
    rows = rows_of(64 * 1024)
    with pytest.raises(ContentMissing):
        _ = [piece async for piece in rows.reader(0, len(CONTENT) + 1).pieces()]
    pieces = rows.reader(0, len(CONTENT)).pieces()
    await anext(pieces)
    rows.rows = {5000: b"another artifact"}
    with pytest.raises(ContentMissing):
        await anext(pieces)
    with pytest.raises(ContentMissing):
        await anext(rows.reader(0, 1).pieces())
