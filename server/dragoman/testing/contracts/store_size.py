"""Contract of compaction and large parts: less space, the same responses, and nothing lost that is needed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest

from dragoman.core.task import states
from dragoman.core.task.cursors import TaskQuery
from dragoman.core.task.log import Appended, AppendRejected, ArtifactChange, ClaimHeld, LogTruncated, StatusChange
from dragoman.core.task.projection import fold
from dragoman.ports import CompactionResult, Store
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
    file_message,
    finished,
    new_ref,
    running,
    status,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

WEEK_MS = 7 * 24 * 3600 * 1000
MANY_APPENDS = 300
"""Appends after which every store has something to compact."""

LARGE_BYTES = 300 * 1024
"""More bytes than any store keeps in a row."""


class StoreSize:
    """Provide a `store` fixture, opened with the `clock` fixture of this class, that compacts and truncates in a week.

    Its responses hold 16 MiB of large parts.
    """

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    async def grow(self, store: Store, claimed: Appended, *changes: ArtifactChange | StatusChange) -> Appended:
        """Appends each change alone. Returns the last result."""
        return (await asyncio.gather(*(store.append(by_runner(claimed, change)) for change in changes)))[-1]

    async def task(self, store: Store, appended: Appended) -> bytes:
        snapshot = await store.read(appended.record.ref)
        assert snapshot is not None
        return snapshot.task

    async def long_task(self, store: Store) -> Appended:
        """A finished task with many events."""
        claimed = await running(store)
        await self.grow(store, claimed, *(chunk("out", f"{number}\n") for number in range(MANY_APPENDS)))
        return await store.append(by_runner(claimed, status(states.COMPLETED, "done"), end=True))

    # Merging ----------------------------------------------------------------------------------------------------

    async def test_compaction_changes_no_task(self, store: Store) -> None:
        claimed = await running(store)
        changes: list[ArtifactChange | StatusChange] = [chunk("a", "begins ", append=False), artifact("b", "begins")]
        for number in range(MANY_APPENDS):
            changes.append(chunk("a", f"{number} "))
            changes.append(artifact("b", f"{number}", append=True))
            if number % 7 == 0:
                changes += [artifact("a", "of another kind", append=True), status(states.WORKING, f"{number}")]
        last = await self.grow(store, claimed, *changes)
        before = await self.task(store, last)
        assert (await store.compact()).rows > 0
        assert await self.task(store, last) == before
        assert await store.compact() == CompactionResult()

    async def test_a_task_accepts_events_after_compaction(self, store: Store) -> None:
        claimed, text = await running(store), ""
        for round_ in range(4):
            texts = [f"{round_}.{number} " for number in range(MANY_APPENDS)]
            last = await self.grow(store, claimed, *(chunk("out", text) for text in texts))
            text += "".join(texts)
            await store.compact()
            assert text.encode() in await self.task(store, last)

    async def test_an_artifact_can_be_replaced_after_compaction(self, store: Store) -> None:
        claimed = await running(store)
        await self.grow(store, claimed, *(chunk("out", "old ") for _ in range(MANY_APPENDS)))
        await store.compact()
        last = await self.grow(store, claimed, chunk("out", "new ", append=False), *(chunk("out", "er ") for _ in "ab"))
        await store.compact()
        task = await self.task(store, last)
        assert b"new er er " in task
        assert b"old" not in task

    async def test_events_of_a_running_task_are_not_truncated(self, store: Store, clock: Clock) -> None:
        claimed = await running(store)
        last = await self.grow(store, claimed, *(chunk("out", "x") for _ in range(MANY_APPENDS)))
        before = await store.events(last.record.ref, 0, 10_000)
        clock.now += WEEK_MS
        assert (await store.compact()).events == 0
        assert await store.events(last.record.ref, 0, 10_000) == before
        assert await store.oldest_sequence(last.record.ref) == 1

    # Truncating -------------------------------------------------------------------------------------------------

    async def test_a_task_that_has_just_ended_keeps_its_events(self, store: Store) -> None:
        done = await self.long_task(store)
        assert (await store.compact()).events == 0
        assert len(await store.events(done.record.ref, 0, 10_000)) == MANY_APPENDS + 2

    async def test_a_finished_task_keeps_its_last_events_and_its_result(self, store: Store, clock: Clock) -> None:
        done = await self.long_task(store)
        ref, before = done.record.ref, await self.task(store, done)
        events = await store.events(ref, 0, 10_000)
        clock.now += WEEK_MS
        dropped = (await store.compact()).events
        oldest = await store.oldest_sequence(ref)
        assert oldest == dropped + 1 > 1
        assert await store.events(ref, oldest - 1, 10_000) == events[dropped:]
        assert await self.task(store, done) == before
        assert (await store.last_sequences([ref]))[ref.key] == done.record.last_sequence
        assert await store.compact() == CompactionResult()

    async def test_a_cursor_older_than_the_log_gets_the_first_sequence(self, store: Store, clock: Clock) -> None:
        ref = (await self.long_task(store)).record.ref
        clock.now += WEEK_MS
        await store.compact()
        oldest = await store.oldest_sequence(ref)
        for after in (0, 1, oldest - 2):
            with pytest.raises(LogTruncated) as cut:
                await store.events(ref, after)
            assert cut.value.oldest_sequence == oldest

    async def test_an_untruncated_log_begins_with_one_and_a_missing_task_has_none(self, store: Store) -> None:
        assert await store.oldest_sequence((await running(store)).record.ref) == 1
        assert await store.oldest_sequence(new_ref()) == 0
        assert await store.events(new_ref(), 0) == []

    # Large parts ------------------------------------------------------------------------------------------------

    async def test_large_parts_are_read_as_they_were_written(self, store: Store) -> None:
        input_bytes, artifact_bytes, status_bytes = b"a" * LARGE_BYTES, b"b" * LARGE_BYTES, b"c" * LARGE_BYTES
        first = created(new_ref(), claim=SESSION)
        assert first.message is not None
        claimed = await store.append(
            replace(first, message=replace(first.message, message=file_message("ask", input_bytes)))
        )
        put = await store.append(by_runner(claimed, file("out", artifact_bytes), file("out", b"small", append=True)))
        end = StatusChange(states.COMPLETED, file_message("end", status_bytes, pb.ROLE_AGENT))
        done = await store.append(by_runner(claimed, end, end=True))
        task = pb.Task.FromString(await self.task(store, done))
        assert [part.raw for part in task.history[0].parts] == [input_bytes]
        assert [part.raw for part in task.artifacts[0].parts] == [artifact_bytes, b"small"]
        assert [part.raw for part in task.status.message.parts] == [status_bytes]
        returned = [*claimed.events, *put.events, *done.events]
        kept = await store.events(done.record.ref, 0)
        assert [(one.sequence, one.data) for one in kept] == [(one.sequence, one.data) for one in returned]
        folded_again = pb.Task()
        for event in kept:
            fold(folded_again, pb.StreamResponse.FromString(event.data))
        assert folded_again == task
        page = await store.page(TaskQuery(OWNER, AGENT, artifacts=True))
        assert [pb.Task.FromString(one) for one in page.tasks] == [task]

    async def test_an_agent_receives_messages_of_any_size(self, store: Store) -> None:
        first = created(new_ref(), claim=SESSION)
        assert first.message is not None
        sent = file_message("ask", b"x" * (17 * 1024 * 1024))
        claimed = await store.append(replace(first, message=replace(first.message, message=sent)))
        kept = await store.messages(claimed.record.ref)
        assert kept is not None
        assert [one.message for one in kept.messages] == [sent]

    async def test_parts_too_large_for_a_response_are_returned_as_links(self, store: Store, clock: Clock) -> None:
        store.blobs.set_base_url(lambda: "https://example.com/base")
        contents = [bytes([number]) * (6 * 1024 * 1024) for number in (1, 2, 3)]
        done = await finished(store, *(file(f"a{number}", content) for number, content in enumerate(contents)))
        task = pb.Task.FromString(await self.task(store, done))
        parts = [artifact.parts[0] for artifact in task.artifacts]
        assert [part.raw for part in parts[:2]] == contents[:2]
        assert (parts[2].WhichOneof("content"), parts[2].filename, parts[2].media_type) == ("url", "f", "text/x-test")
        link = urlsplit(parts[2].url)
        base, _, digest = link.path.rpartition("/")
        assert (link.scheme, link.netloc, base) == ("https", "example.com", "/base/blobs")
        query = dict(parse_qsl(link.query))
        found = store.blobs.find(digest, query)
        assert found is not None
        assert await asyncio.to_thread(found.read_bytes) == contents[2]
        for name in query:
            for wrong in ({**query, name: query[name] + "0"}, {key: query[key] for key in query if key != name}):
                with pytest.raises(PermissionError):
                    store.blobs.find(digest, wrong)
        with pytest.raises(PermissionError):
            store.blobs.find("0" * 64, query)
        clock.now += WEEK_MS
        with pytest.raises(PermissionError, match="expired"):
            store.blobs.find(digest, query)

    async def test_changes_of_a_task_stay_in_order_for_any_size(self, store: Store) -> None:
        claimed = await running(store)
        changes = [file("out", (b"%d" % n) * (LARGE_BYTES if n % 3 == 0 else 1), append=n > 0) for n in range(9)]
        futures = [store.append(by_runner(claimed, change)) for change in changes]
        assert [(await future).events[0].sequence for future in futures] == list(range(2, 11))
        task = pb.Task.FromString(await self.task(store, claimed))
        assert [part.raw[:1] for part in task.artifacts[0].parts] == [b"%d" % n for n in range(9)]

    async def test_a_rejected_change_with_a_large_part_stores_nothing(self, store: Store) -> None:
        claimed = await running(store)
        late = replace(by_runner(claimed, file("out", b"x" * LARGE_BYTES)), guard=ClaimHeld(SESSION, 99))
        with pytest.raises(AppendRejected):
            await store.append(late)
        assert not pb.Task.FromString(await self.task(store, claimed)).artifacts
