"""Operator operations: erasure of running and followed tasks, exports, and selection by id."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.runtime.harness import open_harness

from dragoman.agents.functions.turn import Turn
from dragoman.core.errors import InvalidParams, TaskNotFound
from dragoman.core.names import Owner
from dragoman.core.task.log import Append, IncomingMessage, New, NewTask, TaskRef
from dragoman.core.task.maintenance import StorageOptions, TaskSelection
from dragoman.runtime import AuditOptions
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.testing.fixtures import Clock, created, message, new_ref
from dragoman.types import file
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def test_the_run_of_an_erased_task_is_stopped_and_cannot_write(tmp_path: Path) -> None:
    stopped = asyncio.Event()

    async def slow(turn: Turn) -> str:
        turn.status("at it")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async with open_harness(tmp_path, slow) as here:
        task = await here.start()
        receipt = await here.runtime.maintenance.purge(TaskSelection(task=task.id))
        assert receipt.counts.tasks == 1
        await stopped.wait()
        await here.idle()
        with pytest.raises(TaskNotFound):
            await here.get(task.id)
        assert (await here.list()).total_size == 0


async def test_writes_of_an_agent_that_ignores_an_erasure_are_rejected(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def stubborn(turn: Turn) -> str:
        turn.status("at it")
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        turn.chunk("late")
        return "late"

    async with open_harness(tmp_path, stubborn) as here:
        task = await here.start()
        await here.runtime.maintenance.purge(TaskSelection(task=task.id))
        go.set()
        await here.idle()
        with pytest.raises(TaskNotFound):
            await here.get(task.id)


async def test_an_erasure_that_a_crash_interrupted_is_recorded_when_it_is_completed(tmp_path: Path) -> None:
    async def done(turn: Turn) -> str:
        return "done"

    async with open_harness(tmp_path, done, audit=AuditOptions(lambda: 1)) as here:
        await here.send()
        store, maintenance, selection = here.store, here.runtime.maintenance, TaskSelection(principal="anonymous")
        assert isinstance(store, SqliteStore)
        records = [record async for page in store.erasures.select(selection) for record in page]
        await store.erasures._delete_task_records(0, selection, records, 1, "purge")
        await maintenance.purge(TaskSelection(principal="nobody"))
        entries = [record.entry for record in await store.audit.read(0)]
        (erased,) = [entry for entry in entries if entry.action == "tasks.erased"]
        assert (erased.about["receipt"], erased.about["reason"], erased.about["tasks"]) == ("1", "purge", "1")


@pytest.mark.parametrize("how", ["subscription", "blocking send"])
async def test_subscribers_of_an_erased_task_are_notified(tmp_path: Path, how: str) -> None:
    async def asleep(turn: Turn) -> None:
        turn.status("at it")
        here.at("working").set()
        await asyncio.Event().wait()

    async with open_harness(tmp_path, asleep) as here:
        if how == "subscription":
            task_id = (await here.start()).id
            following = asyncio.create_task(_drain(here.follow(task_id)))
        else:
            following = asyncio.create_task(_drain(here.stream()))
        await here.at("working").wait()
        await asyncio.sleep(0)
        await here.runtime.maintenance.purge(TaskSelection(principal="anonymous"))
        with pytest.raises(TaskNotFound):
            await following


async def _drain(events: object) -> None:
    async for _ in events:  # type: ignore[attr-defined]
        pass


async def test_subscribers_of_a_task_erased_by_another_process_are_notified_by_the_next_poll(tmp_path: Path) -> None:
    async def asks(turn: Turn) -> None:
        turn.ask("which?")

    async with open_harness(tmp_path, asks) as here:
        task = await here.send()
        following = asyncio.create_task(_drain(here.follow(task.id)))
        followers = here.runtime.feeds
        await eventually(lambda: any(one.waiting for one in followers.by_task.values()))
        await here.store.erasures.erase(TaskSelection(task=task.id))  # past the runtime, as another process would
        await followers.poll()
        with pytest.raises(TaskNotFound):
            await following


async def test_an_id_or_context_of_several_owners_needs_a_choice_of_owner(tmp_path: Path) -> None:
    async def echo(turn: Turn) -> str:
        return turn.text

    store = open_store(tmp_path / "t.db")
    for principal in ("alice", "bob"):
        ref = TaskRef(Owner("default", principal), new_ref().key)
        new = NewTask("echo", "mine", "c", alias=True)
        await store.append(
            Append(task=ref, guard=New(), create=new, message=IncomingMessage(message("hi")), claim_session=1)
        )
    async with open_harness(tmp_path, echo, store=store) as here:
        maintenance = here.runtime.maintenance
        for selection in (TaskSelection(task="mine"), TaskSelection(context="c")):
            with pytest.raises(
                InvalidParams, match=r"belongs to several owners; .* echo of alice in default; echo of bob"
            ):
                await maintenance.purge(selection)
            with pytest.raises(InvalidParams, match="belongs to several"):
                await maintenance.measure(selection)
        with pytest.raises(InvalidParams, match="belongs to several"):
            [piece async for piece in maintenance.export(TaskSelection(task="mine"))]
        assert (await maintenance.purge(TaskSelection(task="mine", principal="alice"))).counts.tasks == 1
        assert (await maintenance.purge(TaskSelection(context="c"))).counts.tasks == 1


async def test_an_export_is_a_consistent_snapshot(tmp_path: Path) -> None:
    async def echo(turn: Turn) -> str:
        return turn.text

    store = open_store(tmp_path / "t.db")
    appended = await store.append(created(new_ref(), claim=1))
    async with open_harness(tmp_path, echo, store=store) as here:
        pieces = [piece async for piece in here.runtime.maintenance.export(TaskSelection(task=appended.record.id))]
    head = pieces[0].record
    assert [piece.event.sequence for piece in pieces if piece.event] == list(range(1, head.last_sequence + 1))
    assert [piece.message.number for piece in pieces if piece.message] == list(range(1, head.message_count + 1))


async def test_an_export_of_a_truncated_task_begins_with_its_oldest_event(tmp_path: Path) -> None:
    async def long(turn: Turn) -> None:
        for number in range(300):
            turn.chunk(f"{number} ")
            await turn.flush()

    clock = Clock()
    store = open_store(tmp_path / "t.db", clock=clock)
    async with open_harness(tmp_path, long, store=store) as here:
        task = await here.send()
        clock.now += 7 * 24 * 3600 * 1000
        assert (await store.compact()).events > 0
        pieces = [piece async for piece in here.runtime.maintenance.export(TaskSelection(task=task.id))]
        head = pieces[0].record
        kept = range(await store.oldest_sequence(head.ref), head.last_sequence + 1)
    assert kept.start > 1
    assert [piece.event.sequence for piece in pieces if piece.event] == list(kept)


async def test_an_export_has_the_contents_of_links_also_when_no_event_has_them(tmp_path: Path) -> None:
    text, raw = "ä" * 600_000, bytes(range(256)) * 2048

    async def long(turn: Turn) -> None:
        for at in range(0, len(text), 4000):
            turn.chunk(text[at : at + 4000])
            await turn.flush()
        turn.artifact(file(raw, name="a.bin"), id="file")
        turn.artifact(pb.Part(url=f"https://example.com/blobs/{'0' * 64}?expires=1"), id="foreign")

    clock = Clock()
    store = open_store(tmp_path / "t.db", clock=clock, sizes=StorageOptions(inline_bytes=0))
    async with open_harness(tmp_path, long, store=store) as here:
        task = await here.send()
        clock.now += 7 * 24 * 3600 * 1000
        assert (await store.compact()).events > 0
        entries = [entry async for entry in here.runtime.maintenance.export(TaskSelection(task=task.id))]
    shown = pb.Task.FromString(entries[0].task)
    pieces = [entry.piece for entry in entries if entry.piece]
    contents = dict[str, bytes]()
    for piece in pieces:
        assert piece.offset == len(contents.get(piece.url, b""))
        contents[piece.url] = contents.get(piece.url, b"") + piece.data
    urls = {one.artifact_id: one.parts[0].url for one in shown.artifacts}
    assert contents == {urls["output"]: text.encode(), urls["file"]: raw}
    assert len(pieces) >= 6
