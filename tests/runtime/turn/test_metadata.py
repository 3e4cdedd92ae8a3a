"""`Task.metadata` that agents set: merged by key, stored with events, and shown with the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from tests.runtime.harness import collect, open_harness, state

from dragoman import Turn, retry
from dragoman.agents.values import struct_to_json
from dragoman.core.task.maintenance import TaskSelection
from dragoman.stores.sqlite import open_store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def metadata_of(task: pb.Task) -> dict[str, Any]:
    return struct_to_json(task.metadata)


async def test_metadata_is_in_the_answer_in_gettask_and_in_listtasks(tmp_path: Path) -> None:
    async def works(turn: Turn) -> str:
        turn.metadata["model"] = "small"
        turn.metadata["pages"] = [1, 2]
        return "done"

    async with open_harness(tmp_path, works) as here:
        task = await here.send()
        expected = {"model": "small", "pages": [1, 2]}
        assert metadata_of(task) == expected
        assert metadata_of(await here.get(task.id)) == expected
        (listed,) = (await here.list()).tasks
        assert metadata_of(listed) == expected
        exported = [entry async for entry in here.runtime.maintenance.export(TaskSelection(task=task.id))]
        assert metadata_of(pb.Task.FromString(exported[0].task)) == expected


async def test_metadata_is_visible_while_the_turn_runs(tmp_path: Path) -> None:
    async def works(turn: Turn) -> None:
        turn.metadata["phase"] = "reading"
        turn.chunk("x")
        await turn.flush()
        here.at("flushed").set()
        await here.at("go").wait()
        turn.metadata["phase"] = "writing"

    async with open_harness(tmp_path, works) as here:
        task = await here.start()
        await here.at("flushed").wait()
        assert metadata_of(await here.get(task.id)) == {"phase": "reading"}
        here.at("go").set()
        assert metadata_of(await here.ended(task.id)) == {"phase": "writing"}


async def test_the_next_turn_reads_and_merges_the_metadata(tmp_path: Path) -> None:
    async def asks(turn: Turn) -> None:
        if turn.question is None:
            turn.metadata.update(first={"a": 1}, both=1)
            turn.usage(tokens=5)
            turn.ask("which?")
        assert turn.metadata == {"first": {"a": 1}, "both": 1, "usage": {"tokens": 5}}
        turn.metadata["both"] = 2

    async with open_harness(tmp_path, asks) as here:
        waiting = await here.send()
        assert metadata_of(waiting) == {"first": {"a": 1}, "both": 1, "usage": {"tokens": 5}}
        ended = await here.send("blue", task_id=waiting.id)
        assert state(ended) == "COMPLETED"
        assert metadata_of(ended) == {"first": {"a": 1}, "both": 2, "usage": {"tokens": 5}}


async def test_the_event_that_ends_a_turn_repeats_what_the_turn_has_set(tmp_path: Path) -> None:
    async def works(turn: Turn) -> None:
        turn.metadata["early"] = 1
        turn.status("one", metadata={"event": True})
        turn.metadata["late"] = 2
        turn.usage(tokens=5)

    async with open_harness(tmp_path, works) as here:
        events = [MessageToDict(pb.StreamResponse.FromString(event.data)) for event in await collect(here.stream())]
        first, one, last = events
        assert "metadata" not in first["task"]
        assert one["statusUpdate"]["metadata"] == {"event": True}
        assert last["statusUpdate"]["metadata"] == {"early": 1, "late": 2, "usage": {"tokens": 5}}


async def test_metadata_of_an_attempt_that_died_stays(tmp_path: Path) -> None:
    async def works(turn: Turn) -> None:
        if turn.attempt == 1:
            turn.metadata["attempt one"] = True
            turn.status()
            await turn.flush()
            here.at("written").set()
            await here.at("never").wait()
        assert turn.metadata["attempt one"] is True
        turn.metadata["attempt two"] = True

    store = open_store(tmp_path / "tasks.db")
    async with open_harness(tmp_path, works, store=store, on_crash=retry(1)) as here:
        task = await here.start()
        await here.at("written").wait()
        await here.runtime.scheduler.drain(0)
        await here.runtime.scheduler.stop()
    async with open_harness(tmp_path, works, on_crash=retry(1)) as here:
        assert metadata_of(await here.ended(task.id)) == {"attempt one": True, "attempt two": True}


async def test_metadata_of_a_turn_that_loses_its_context_state_is_stored(tmp_path: Path) -> None:
    async def writes(turn: Turn) -> None:
        turn.context.state["n"] = turn.text
        if turn.text == "slow":
            turn.metadata["kept"] = True
            here.at("began").set()
            await here.at("go").wait()

    async with open_harness(tmp_path, writes) as here:
        slow = await here.start("slow", context_id="c")
        await here.at("began").wait()
        await here.send("quick", context_id="c")
        here.at("go").set()
        ended = await here.ended(slow.id)
        assert ended.status.message.metadata["reason"] == "CONTEXT_CHANGED"
        assert metadata_of(ended) == {"kept": True}


async def test_a_reply_after_output_keeps_what_was_set_with_that_output(tmp_path: Path) -> None:
    """A task that has output is not replaced by the Message, so its metadata and the conversation's state are kept."""
    seen: list[dict[str, Any]] = []

    async def talks(turn: Turn) -> None:
        seen.append(dict(turn.context.state))
        turn.context.state["turns"] = len(seen)
        turn.metadata["model"] = "small"
        turn.chunk("output")
        turn.reply("done")

    async with open_harness(tmp_path, talks, direct=True) as here:
        task = await here.send("one")
        assert metadata_of(task) == {"model": "small"}
        await here.send("two", context_id=task.context_id)
    assert seen == [{}, {"turns": 1}]
