"""Coalescing of chunks: the same text in the same order, and no needless delay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.harness import collect, kinds, open_harness

from dragoman import Turn
from dragoman.core.errors import Unavailable
from dragoman.core.task import states
from dragoman.core.task.log import Appended, ArtifactChange, StatusChange
from dragoman.core.task.plan import plan
from dragoman.core.task.projection import fold
from dragoman.ports import StateUpdate
from dragoman.runtime.turn.events import (
    MAX_COALESCED_BYTES,
    MAX_PENDING_EVENTS,
    NO_COALESCING,
    Change,
    Coalesce,
    EventBatch,
    coalesce_changes,
    may_wait,
)
from dragoman.testing.fixtures import SESSION, artifact, by_runner, chunk, created, new_ref, status
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

LONG = 3600.0
"""More seconds than any test may take: events with this delay are never sent."""

# Joining --------------------------------------------------------------------------------------------------------------


def chunks(draw: st.DrawFn) -> ArtifactChange:
    name = draw(st.sampled_from("ab"))
    return ArtifactChange(
        name,
        b"\x0a\x01" + name.encode(),
        text=draw(st.text(max_size=5)),
        append=draw(st.booleans()),
        last_chunk=draw(st.sampled_from([False, False, False, True])),
        tail=draw(st.sampled_from([b"", b"", b"", pb.Artifact(extensions=["x"]).SerializeToString()])),
        metadata=draw(st.sampled_from([b"", b"", b"", b"\x0a\x03\x0a\x01k"])),
    )


CHANGES = st.lists(
    st.one_of(
        st.composite(chunks)(),
        st.just(status(states.WORKING)),
        st.builds(lambda append: artifact("a", "other", append=append), st.booleans()),
    ),
    max_size=12,
)


def fold_changes(changes: list[Change]) -> tuple[pb.Task, list[str]]:
    """The task that a client folds from these changes, its text parts joined, and the order of the changes."""
    first = plan(None, created(new_ref(), claim=SESSION), 1)
    task, order = pb.Task(), list[str]()
    for event in plan(first.record, by_runner(first.outcome, *changes), 1).events:
        response = pb.StreamResponse.FromString(event.data)
        fold(task, response)
        name = response.artifact_update.artifact.artifact_id or "status"
        if order[-1:] != [name]:
            order.append(name)
    for one in task.artifacts:
        text = "".join(part.text for part in one.parts)
        del one.parts[:]
        one.parts.add(text=text)
    task.status.ClearField("timestamp")
    return task, order


@given(CHANGES, st.integers(1, 12))
def test_coalescing_changes_neither_the_task_nor_its_text(changes: list[Change], limit: int) -> None:
    found = coalesce_changes(changes, limit)
    assert len(found) <= len(changes)
    before, after = fold_changes(changes), fold_changes(found)
    before[0].history.clear()
    after[0].history.clear()
    assert str(before[0]) == str(after[0])
    assert before[1] == after[1]
    assert [one for one in found if isinstance(one, StatusChange)] == [
        one for one in changes if isinstance(one, StatusChange)
    ]


@given(CHANGES, st.integers(1, 12))
def test_a_coalesced_event_has_at_most_the_limit(changes: list[Change], limit: int) -> None:
    largest = max((len((one.text or "").encode()) for one in changes if isinstance(one, ArtifactChange)), default=0)
    for one in coalesce_changes(changes, limit):
        if isinstance(one, ArtifactChange) and one.text is not None:
            assert len(one.text.encode()) <= max(limit, largest)


@pytest.mark.parametrize(
    ("changes", "events"),
    [
        ([chunk("a", "1", append=False), chunk("a", "2"), chunk("a", "3")], 1),
        ([chunk("a", "1"), chunk("a", "2", append=False)], 2),
        ([chunk("a", "1"), chunk("b", "2"), chunk("a", "3")], 3),
        ([chunk("a", "1"), status(states.WORKING), chunk("a", "2")], 3),
        ([chunk("a", "1"), artifact("a", "part", append=True), chunk("a", "2")], 3),
        ([artifact("a", "1"), artifact("a", "2", append=True)], 2),
        ([], 0),
    ],
)
def test_only_neighboring_chunks_of_one_artifact_are_joined(changes: list[Change], events: int) -> None:
    assert len(coalesce_changes(changes, 1000)) == events


def test_coalescing_is_off_by_default_and_a_time_implies_a_byte_limit() -> None:
    assert (NO_COALESCING.limit, Coalesce(seconds=0.1).limit, Coalesce(bytes=7).limit) == (0, MAX_COALESCED_BYTES, 7)
    assert not may_wait(status(states.WORKING))
    assert not may_wait(artifact("a", "x"))
    assert may_wait(chunk("a", "x"))


# Sending --------------------------------------------------------------------------------------------------------------


class Sent:
    """What a batch sends; `done` lets the append in flight end."""

    def __init__(self, coalesce: Coalesce) -> None:
        self.texts: list[list[str]] = []
        self.flying: list[asyncio.Future[Any]] = []
        self._sent = asyncio.Event()
        self.batch = EventBatch(self._send, coalesce)

    def _send(self, changes: list[Change], notes: StateUpdate) -> asyncio.Future[Appended]:
        self.texts.append([(one.text or "") if isinstance(one, ArtifactChange) else "status" for one in changes])
        self._sent.set()
        future = asyncio.get_running_loop().create_future()
        self.flying.append(future)
        return future

    def put(self, *changes: Change) -> None:
        for change in changes:
            self.batch.put(change)

    async def something(self) -> None:
        """Waits until something is sent."""
        await asyncio.wait_for(self._sent.wait(), 60)

    async def turn(self, done: bool = True) -> None:
        """Runs loop iterations in which appends end."""
        for _ in range(4):
            while done and self.flying:
                self.flying.pop(0).set_result(None)
            await asyncio.sleep(0)


def words(*texts: str) -> list[Change]:
    return [chunk("out", text) for text in texts]


async def test_without_coalescing_every_chunk_is_an_event() -> None:
    sent = Sent(NO_COALESCING)
    sent.put(*words("a", "b"))
    await sent.turn()
    assert sent.texts == [["a", "b"]]


async def test_with_a_byte_limit_alone_chunks_wait_only_for_the_commit() -> None:
    sent = Sent(Coalesce(bytes=100))
    sent.put(*words("a", "b"))
    await sent.turn(done=False)
    sent.put(*words("c", "d", "e"))
    await sent.turn()
    assert sent.texts == [["ab"], ["cde"]]


async def test_chunks_wait_for_others_until_they_are_due() -> None:
    sent = Sent(Coalesce(seconds=0.01))
    sent.put(*words("a"))
    await sent.turn()
    sent.put(*words("b"))
    await sent.turn()
    assert sent.texts == []
    await sent.something()
    assert sent.texts == [["ab"]]


async def test_chunks_added_during_a_commit_wait_for_their_own_delay() -> None:
    sent = Sent(Coalesce(seconds=LONG))
    sent.put(*words("a"), status(states.WORKING))
    await sent.turn(done=False)
    sent.put(*words("b"))
    await sent.turn()
    sent.put(*words("c"))
    await sent.turn()
    assert sent.texts == [["a", "status"]]
    flushing = asyncio.create_task(sent.batch.flush())
    await sent.turn()
    await flushing
    assert sent.texts[1:] == [["bc"]]


@pytest.mark.parametrize(
    "change",
    [
        status(states.WORKING),
        artifact("other", "x"),
        ArtifactChange("out", b"", text="end", append=True, last_chunk=True),
    ],
    ids=["a status", "an artifact", "the last chunk"],
)
async def test_other_events_flush_waiting_chunks(change: Change) -> None:
    sent = Sent(Coalesce(seconds=LONG))
    sent.put(*words("a", "b"))
    await sent.turn()
    assert sent.texts == []
    sent.put(change)
    await sent.turn()
    assert sent.texts[0][0].startswith("ab")


async def test_enough_bytes_or_events_are_sent_at_once() -> None:
    sent = Sent(Coalesce(seconds=LONG, bytes=1000))
    sent.put(*words("x" * 600))
    await sent.turn()
    assert sent.texts == []
    sent.put(*words("y" * 600))
    await sent.turn()
    assert sent.texts == [["x" * 600, "y" * 600]]
    sent = Sent(Coalesce(seconds=LONG))
    sent.put(*words(*["z"] * MAX_PENDING_EVENTS))
    await sent.turn()
    assert sent.texts == [["z" * MAX_PENDING_EVENTS]]


async def test_a_flush_and_the_end_of_a_turn_send_chunks_at_once() -> None:
    sent = Sent(Coalesce(seconds=LONG))
    sent.put(*words("a", "b"))
    await sent.turn()
    flushing = asyncio.create_task(sent.batch.flush())
    await sent.turn()
    await flushing
    sent.put(*words("c", "d"))
    changes, _ = await sent.batch.take_pending()
    assert [one.text for one in changes if isinstance(one, ArtifactChange)] == ["cd"]
    assert sent.texts == [["ab"]]
    sent.put(*words("e"))
    sent.batch.close()
    await sent.turn()
    assert sent.texts == [["ab"]]


async def test_a_flush_waits_for_a_change_without_an_event() -> None:
    """Steps of workers are such changes: the server confirms them after a flush."""
    sent = Sent(NO_COALESCING)
    stored = sent.batch.store(StateUpdate(task_state=b"{}"))
    flushing = asyncio.create_task(sent.batch.flush())
    await sent.turn(done=False)
    assert (sent.texts, flushing.done(), stored.done()) == ([[]], False, False)
    await sent.turn()
    assert (flushing.done(), stored.done()) == (True, True)


async def test_a_change_put_while_a_commit_fails_gets_its_error() -> None:
    """The result of a step is such a change: its agent would wait for it for ever, and hold its place."""
    commit: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
    batch = EventBatch(lambda changes, state_update: commit)
    batch.put(status(states.WORKING))
    await asyncio.sleep(0)  # it is sent
    stored = batch.store(StateUpdate(task_state=b"{}"))
    await asyncio.sleep(0)
    commit.set_exception(Unavailable("the store does not respond"))
    with pytest.raises(Unavailable, match="does not respond"):
        await asyncio.wait_for(stored, 5)


async def test_a_thread_blocked_by_a_full_batch_continues_after_the_commit() -> None:
    sent = Sent(Coalesce(seconds=LONG))
    putting = asyncio.create_task(asyncio.to_thread(sent.put, *words(*["x"] * (3 * MAX_PENDING_EVENTS))))
    while not putting.done():
        await sent.turn()
    assert sum(len(text) for texts in sent.texts for text in texts) >= 2 * MAX_PENDING_EVENTS


# End to end -----------------------------------------------------------------------------------------------------------


async def by_word(turn: Turn) -> AsyncIterator[str]:
    for number in range(50):
        yield f"{number} "


@pytest.mark.parametrize(
    "coalesce", [NO_COALESCING, Coalesce(bytes=10_000), Coalesce(seconds=LONG)], ids=["off", "bytes", "both"]
)
async def test_a_stream_and_its_task_are_the_same_with_and_without_coalescing(
    tmp_path: Path, coalesce: Coalesce
) -> None:
    whole = "".join(f"{number} " for number in range(50))
    async with open_harness(tmp_path, by_word, coalesce=coalesce) as here:
        events = await collect(here.stream())
        chunk_texts = [kind for kind in kinds(events) if kind.endswith(" ")]
        assert "".join(chunk_texts) == whole
        assert len(chunk_texts) == 50 if coalesce is NO_COALESCING else len(chunk_texts) < 50
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        (task,) = (await here.list(include_artifacts=True)).tasks
        assert [part.text for part in task.artifacts[0].parts] == [whole]
