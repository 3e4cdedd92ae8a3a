"""Contract of what a response holds: contents up to a limit, and links that return exactly what a part had."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest

from dragoman.core.task import states
from dragoman.core.task.blob_references import BLOB_NAME
from dragoman.core.task.contents import ContentMissing, ContentReader
from dragoman.core.task.cursors import TaskQuery, TaskSearch
from dragoman.core.task.log import (
    MAX_READ_EVENT_BYTES,
    Appended,
    ArtifactChange,
    StatusChange,
)
from dragoman.core.task.maintenance import TaskSelection
from dragoman.ports import Store
from dragoman.testing.fixtures import (
    AGENT,
    OWNER,
    SESSION,
    Clock,
    artifact,
    by_runner,
    chunk,
    created,
    file,
    message,
    new_ref,
    running,
    status,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

WEEK_MS = 7 * 24 * 3600 * 1000
MIB = 1024 * 1024


def chunks(name: str, mib: int, first: int = 0) -> list[ArtifactChange | StatusChange]:
    """Text chunks of 64 KiB, each of its own."""
    return [chunk(name, f"{number:08d}" * 8192, append=number > 0) for number in range(first, first + 16 * mib)]


def text_of(*changes: ArtifactChange | StatusChange) -> bytes:
    """The joined text of chunks."""
    return "".join(change.text or "" for change in changes if isinstance(change, ArtifactChange)).encode()


def link_of(part: pb.Part) -> tuple[str, dict[str, str]]:
    """The name and the query of the link in a part."""
    link = urlsplit(part.url)
    return link.path.rpartition("/")[2], dict(parse_qsl(link.query))


def content_of(store: Store, part: pb.Part) -> ContentReader:
    """The content of rows behind the link in a part."""
    content = store.blobs.content(*link_of(part))
    assert content is not None
    return content


async def downloaded(store: Store, part: pb.Part) -> bytes:
    """The response to the link in a part."""
    name, query = link_of(part)
    if BLOB_NAME.fullmatch(name):
        path = await asyncio.to_thread(store.blobs.find, name, query)
        assert path is not None
        return await asyncio.to_thread(path.read_bytes)
    return b"".join([piece async for piece in content_of(store, part).pieces()])


class StoreContents:
    """Provide a `store` fixture, opened with the `clock` fixture of this class.

    Its responses hold 16 MiB of large parts.
    """

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    async def append(self, store: Store, claimed: Appended, *changes: ArtifactChange | StatusChange) -> None:
        """Appends each change alone."""
        await asyncio.gather(*(store.append(by_runner(claimed, change)) for change in changes))

    async def task(self, store: Store, appended: Appended) -> pb.Task:
        snapshot = await store.read(appended.record.ref)
        assert snapshot is not None
        return pb.Task.FromString(snapshot.task)

    async def parts(self, store: Store, appended: Appended) -> list[pb.Part]:
        """The parts of the first artifact."""
        return list((await self.task(store, appended)).artifacts[0].parts)

    async def test_a_text_within_the_limit_is_inline(self, store: Store) -> None:
        claimed, changes = await running(store), chunks("out", 16)
        await self.append(store, claimed, *changes)
        assert await self.parts(store, claimed) == [pb.Part(text=text_of(*changes).decode())]

    async def test_a_longer_text_is_a_link_that_compaction_does_not_change(self, store: Store) -> None:
        store.blobs.set_base_url(lambda: "https://example.com/base")
        claimed, changes = await running(store), chunks("out", 17)
        await self.append(store, claimed, *changes)
        (part,) = await self.parts(store, claimed)
        assert part.url.startswith("https://example.com/base/blobs/")
        assert (part.media_type, part.filename, part.text) == ("text/plain", "", "")
        assert content_of(store, part).size == 17 * MIB
        assert await downloaded(store, part) == text_of(*changes)
        await store.compact()
        assert await self.parts(store, claimed) == [part]
        assert await downloaded(store, part) == text_of(*changes)

    async def test_get_lists_and_searches_show_what_read_shows(self, store: Store) -> None:
        claimed = await running(store)
        await self.append(store, claimed, *chunks("out", 17))
        read = await self.task(store, claimed)
        got = await store.get(OWNER, AGENT, claimed.record.id)
        assert got is not None
        (listed,) = (await store.page(TaskQuery(OWNER, AGENT, artifacts=True))).tasks
        (found,) = (await store.search(TaskSearch(artifacts=True))).tasks
        assert [pb.Task.FromString(one).artifacts for one in (got.task, listed, found.task)] == [read.artifacts] * 3

    async def test_the_tasks_of_a_list_share_the_limit(self, store: Store) -> None:
        for _ in range(3):
            claimed = await running(store)
            await self.append(store, claimed, *chunks("out", 6))
        page = await store.page(TaskQuery(OWNER, AGENT, artifacts=True))
        kinds = [pb.Task.FromString(task).artifacts[0].parts[0].WhichOneof("content") for task in page.tasks]
        assert sorted(str(kind) for kind in kinds) == ["text", "text", "url"]

    async def test_a_link_returns_the_text_of_its_time_while_the_artifact_grows(self, store: Store) -> None:
        claimed, early, late = await running(store), chunks("out", 17), chunks("out", 1, 17 * 16)
        await self.append(store, claimed, *early)
        (part,) = await self.parts(store, claimed)
        await self.append(store, claimed, *late)
        await store.compact()
        assert await downloaded(store, part) == text_of(*early)
        (longer,) = await self.parts(store, claimed)
        assert await downloaded(store, longer) == text_of(*early, *late)

    async def test_rows_may_be_merged_while_they_are_read(self, store: Store) -> None:
        claimed = await running(store)
        changes = [chunk("out", f"{number:08d}" * 1024, append=number > 0) for number in range(17 * 128)]
        await self.append(store, claimed, *changes)
        (part,) = await self.parts(store, claimed)
        pieces = list[bytes]()
        async for piece in content_of(store, part).pieces():
            if len(pieces) == 3:
                await store.compact()
            pieces.append(piece)
        assert b"".join(pieces) == text_of(*changes)

    async def test_a_range_of_a_text_is_read_from_its_middle(self, store: Store) -> None:
        claimed, changes = await running(store), chunks("out", 17)
        await self.append(store, claimed, *changes)
        (part,) = await self.parts(store, claimed)
        start, end = 5 * MIB - 7, 6 * MIB + 11
        pieces = [piece async for piece in content_of(store, part).pieces(start, end)]
        assert b"".join(pieces) == text_of(*changes)[start:end]

    async def test_a_link_leads_nowhere_once_the_artifact_was_replaced_or_the_task_erased(self, store: Store) -> None:
        claimed = await running(store)
        await self.append(store, claimed, *chunks("out", 17))
        (part,) = await self.parts(store, claimed)
        await self.append(store, claimed, *chunks("out", 18))
        with pytest.raises(ContentMissing):
            await downloaded(store, part)
        (part,) = await self.parts(store, claimed)
        assert len(await downloaded(store, part)) == 18 * MIB
        await store.erasures.erase(TaskSelection(task=claimed.record.id))
        with pytest.raises(ContentMissing):
            await downloaded(store, part)

    async def test_a_read_that_the_artifact_outlives_ends_with_an_error(self, store: Store) -> None:
        claimed = await running(store)
        await self.append(store, claimed, *chunks("out", 17))
        (part,) = await self.parts(store, claimed)
        pieces = content_of(store, part).pieces()
        await anext(pieces)
        await self.append(store, claimed, chunk("out", "new", append=False))
        with pytest.raises(ContentMissing):
            async for _ in pieces:
                pass

    async def test_links_are_signed_and_expire(self, store: Store, clock: Clock) -> None:
        claimed = await running(store)
        await self.append(store, claimed, *chunks("out", 17))
        (part,) = await self.parts(store, claimed)
        name, query = link_of(part)
        other = name.replace(f"-{17 * MIB}-", f"-{17 * MIB - 1}-")
        assert other != name
        with pytest.raises(PermissionError):
            store.blobs.content(other, query)
        for key in query:
            with pytest.raises(PermissionError):
                store.blobs.content(name, {**query, key: query[key] + "0"})
        assert store.blobs.content("name", query) is None
        clock.now += WEEK_MS
        with pytest.raises(PermissionError, match="expired"):
            store.blobs.content(name, query)

    async def test_large_texts_of_an_agent_are_links_and_keep_their_other_fields(self, store: Store) -> None:
        claimed, texts = await running(store), [f"{number}" * (9 * MIB) for number in range(2)]
        await self.append(store, claimed, *(artifact("out", text, append=text[0] > "0") for text in texts))
        first, second = await self.parts(store, claimed)
        assert first == pb.Part(text=texts[0])
        assert (second.WhichOneof("content"), second.media_type) == ("url", "text/plain")
        assert await downloaded(store, second) == texts[1].encode()
        kept = [one for one in await store.events(claimed.record.ref, 1) if one.sequence == 2]
        assert pb.StreamResponse.FromString(kept[0].data).artifact_update.artifact.parts[0].text == texts[0]
        await store.compact()
        assert await self.parts(store, claimed) == [first, second]

    async def test_many_small_parts_become_links_beyond_the_limit(self, store: Store) -> None:
        claimed = await running(store)
        contents = [bytes([number % 251]) * 200 * 1024 for number in range(100)]
        # Text of chunks before and after them: parts are found in the run of rows between.
        await self.append(store, claimed, chunk("out", "begin", append=False))
        await self.append(store, claimed, *(file("out", content, append=True) for content in contents))
        await self.append(store, claimed, chunk("out", "end"))
        before, *parts, after = await self.parts(store, claimed)
        assert (before.text, after.text) == ("begin", "end")
        inline = [part for part in parts if part.raw]
        assert [part.raw for part in inline] == contents[: len(inline)]
        assert 16 * MIB - 200 * 1024 < sum(len(part.raw) for part in inline) <= 16 * MIB
        linked = parts[len(inline) :]
        assert {(part.filename, part.media_type) for part in linked} == {("f", "text/x-test")}
        assert [await downloaded(store, part) for part in linked] == contents[len(inline) :]
        await store.compact()
        assert await self.parts(store, claimed) == [before, *parts, after]

    async def test_large_messages_are_links_from_the_newest_on(self, store: Store) -> None:
        texts = [f"{number}" * (9 * MIB) for number in range(3)]
        first = created(new_ref(), claim=SESSION)
        assert first.message is not None
        claimed = await store.append(replace(first, message=replace(first.message, message=message(texts[0]))))
        await self.append(store, claimed, status(states.WORKING, texts[1]), status(states.WORKING, texts[2]))
        task = await self.task(store, claimed)
        assert task.status.message.parts[0].text == texts[2]
        assert [part.WhichOneof("content") for one in task.history for part in one.parts] == ["url", "url"]
        links = [one.parts[0] for one in task.history]
        assert [await downloaded(store, part) for part in links] == [text.encode() for text in texts[:2]]

    async def test_events_are_read_within_a_limit_of_bytes(self, store: Store) -> None:
        claimed = await running(store)
        await self.append(store, claimed, *(chunk("out", "x" * MIB, append=number > 0) for number in range(12)))
        sequence, reads = 0, 0
        while found := await store.events(claimed.record.ref, sequence):
            assert [event.sequence for event in found] == list(range(sequence + 1, sequence + 1 + len(found)))
            assert sum(len(event.data) for event in found) < MAX_READ_EVENT_BYTES + 2 * MIB
            sequence, reads = found[-1].sequence, reads + 1
        assert sequence == 13
        assert reads >= 3
