"""Reads of tasks: filters, pages, dialects; and subscriptions: where they begin, what they follow, where they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from google.protobuf import json_format
from tests.runtime.harness import by_event, collect, kinds, open_harness, request, texts
from tests.runtime.test_sessions import Shifted

from dragoman import Turn
from dragoman.bus.local import LocalBus
from dragoman.core.cards.agent_spec import RESUME_EXTENSION
from dragoman.core.errors import InvalidParams, TaskNotFound, UnsupportedOperation
from dragoman.core.task import states
from dragoman.core.task.log import Event
from dragoman.runtime.access import Admission
from dragoman.runtime.feeds import TaskFeeds
from dragoman.runtime.read import NEVER, ReadOperations, ends_stream, split_at_end
from dragoman.stores.sqlite import open_store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def echo(turn: Turn) -> str:
    return turn.text


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"page_size": 0}, "pageSize"),
        ({"page_size": 101}, "pageSize"),
        ({"page_token": "garbage"}, "pageToken"),
        ({"history_length": -1}, "historyLength"),
        ({"status": 99}, "status"),
    ],
)
async def test_an_invalid_filter_is_rejected_by_name(tmp_path: Path, filters: dict[str, int | str], field: str) -> None:
    async with open_harness(tmp_path, echo) as here:
        with pytest.raises(InvalidParams, match=field):
            await here.list(**filters)


async def test_pages_follow_one_another_and_belong_to_their_filters(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        task_ids = [(await here.send(str(number))).id for number in range(5)]
        first = await here.list(page_size=2)
        second = await here.list(page_size=2, page_token=first.next_page_token)
        third = await here.list(page_size=2, page_token=second.next_page_token)
        assert [task.id for page in (first, second, third) for task in page.tasks] == task_ids[::-1]
        assert (first.total_size, first.page_size, third.next_page_token) == (5, 2, "")
        with pytest.raises(InvalidParams, match="other filters"):
            await here.list(page_size=2, page_token=first.next_page_token, status=pb.TASK_STATE_FAILED)


async def test_a_time_filter_includes_its_own_instant(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        task = await here.send()
        assert (await here.list(status_timestamp_after=task.status.timestamp.ToDatetime())).total_size == 1


async def test_a_task_is_read_by_its_id_alone(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        with pytest.raises(InvalidParams, match="id"):
            await here.get("")
        with pytest.raises(TaskNotFound):
            await here.get("none")


async def test_the_dialect_of_a_task_is_read_once_unless_a_client_chose_the_id(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as here:
        call = replace(here.call, dialect="0.1", names_tasks=True)
        for task_id, reads in (("", 1), ("mine", 2)):
            sent = await here.runtime.operations.send.send_message(call, request(task_id=task_id))
            task = pb.SendMessageResponse.FromString(sent).task
            with patch.object(here.store, "find", wraps=here.store.find) as find:
                for _ in range(2):
                    assert await here.runtime.operations.read.dialect_of(call.caller, task.id) == "0.1"
            assert find.call_count == reads
        assert await here.runtime.operations.read.dialect_of(call.caller, "none") == ""


async def three(turn: Turn) -> AsyncIterator[str]:
    for number in (1, 2, 3):
        yield f"{number} "


async def test_a_subscription_looks_its_task_up_once(tmp_path: Path) -> None:
    async with open_harness(tmp_path, three) as here:
        task = await here.send()
        with patch.multiple(here.store, find=None, read=None):  # neither is called
            events = await collect(here.follow(task.id, shows_finished=True))
        assert kinds(events) == ["task COMPLETED"]


@pytest.mark.parametrize("task_id", ["mine", "0192a0b1-c2d3-7e4f-8a5b-6c7d8e9f0a1b"])
async def test_a_task_is_followed_by_the_id_that_its_client_chose(tmp_path: Path, task_id: str) -> None:
    """The second id has the form of the server's own ids."""

    async def waits(turn: Turn) -> str:
        turn.chunk("one")
        await here.at("go").wait()
        return "two"

    async with open_harness(tmp_path, waits) as here, asyncio.timeout(60):
        named, chosen = replace(here.call, names_tasks=True), request(task_id=task_id)
        chosen.configuration.return_immediately = True
        await here.runtime.operations.send.send_message(named, chosen)
        stream = here.follow(task_id)
        assert kinds([await anext(stream)])[0].startswith("task ")
        here.at("go").set()
        assert kinds(await collect(stream))[-1] == "COMPLETED"
        assert not here.runtime.feeds.by_task


async def test_a_task_that_does_not_exist_is_not_found_and_leaves_no_feed(tmp_path: Path) -> None:
    async with open_harness(tmp_path, three) as here:
        for task_id in ("none", "0192a0b1-c2d3-7e4f-8a5b-6c7d8e9f0a1b"):
            with pytest.raises(TaskNotFound):
                await collect(here.follow(task_id))
        with pytest.raises(InvalidParams, match="id"):
            await collect(here.follow(""))
        assert not here.runtime.feeds.by_task


async def test_a_cursor_older_than_the_log_gets_the_task_marked_as_a_gap(tmp_path: Path) -> None:
    async def talks(turn: Turn) -> None:
        for number in range(200):
            turn.chunk(f"{number} ")
            await turn.flush()

    clock = Shifted()
    store = open_store(tmp_path / "tasks.db", clock=clock)
    async with open_harness(tmp_path, talks, store=store) as here:
        task = await here.send()
        clock.ahead += 7 * 86_400_000
        await store.compact()
        assert await store.oldest_sequence(next(iter(await store.locate(task.id))).ref) > 3
        events = await collect(here.follow(task.id, cursor="2"))
    (event,) = [pb.StreamResponse.FromString(event.data) for event in events]
    gap = json_format.MessageToDict(event.task.metadata)[RESUME_EXTENSION.uri]
    assert gap == {"gap": True, "from": 2, "sequence": events[0].sequence}
    assert texts(event.task) == texts(task)


async def test_the_remaining_events_of_a_finished_task_wait_for_no_poll(tmp_path: Path) -> None:
    async with open_harness(tmp_path, three) as here, asyncio.timeout(60):
        feeds = TaskFeeds(here.store, LocalBus())  # which nobody polls
        task = await here.send()
        unpolled = ReadOperations(here.store, feeds, here.runtime.operations.access.agents, Admission())
        after = replace(here.call, cursor="1")
        events = await collect(by_event(unpolled.subscribe_to_task(after, pb.SubscribeToTaskRequest(id=task.id))))
    assert [event.sequence for event in events] == list(range(2, 2 + len(events)))
    assert events


async def test_a_resumed_stream_reads_the_events_that_it_misses_and_not_the_task(tmp_path: Path) -> None:
    async with open_harness(tmp_path, three) as here:
        task = await here.send()
        with patch.object(here.store, "get", wraps=here.store.get) as get:
            resumed = await collect(here.follow(task.id, cursor="1"))
            with pytest.raises(TaskNotFound):
                await collect(here.follow("00000000-0000-7000-8000-000000000000", cursor="1"))
        assert not get.called
    assert [event.sequence for event in resumed] == list(range(2, 2 + len(resumed)))


async def test_an_agent_without_streaming_rejects_only_streams(tmp_path: Path) -> None:
    async def plain(turn: Turn) -> str:
        return turn.text

    async with open_harness(tmp_path, plain, streaming=False) as here:
        task = await here.send()
        for stream in (here.stream(), here.follow(task.id)):
            with pytest.raises(UnsupportedOperation, match="does not stream"):
                await collect(stream)
        assert (await here.list()).total_size == 1


async def quick(turn: Turn) -> str:
    """Writes everything before a reader can read it, then asks, and ends with the answer."""
    for number in range(5):
        turn.chunk(f"{number} ")
    if turn.question is None:
        turn.ask("and?")
    return "done"


async def test_a_stream_ends_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    async with open_harness(tmp_path, quick) as here:
        task = await here.send()
        assert task.status.state == states.INPUT_REQUIRED
        await here.send("more", task_id=task.id)
        requested = pb.SubscribeToTaskRequest(id=task.id)
        flow = here.runtime.operations.read.subscribe_to_task(replace(here.call, cursor="1"), requested)
        (lot,) = [batch async for batch in flow]
        assert kinds(list(lot))[-1] == "COMPLETED"
    asking = next(number for number, event in enumerate(lot, 1) if event.ends)
    assert asking < len(lot)
    assert split_at_end(here.call, lot, 0) == (lot[:asking], True)
    assert split_at_end(here.call, lot, NEVER) == (lot, True)
    assert split_at_end(here.call, lot[: asking - 1], 0) == (lot[: asking - 1], False)


async def test_only_googles_form_follows_a_task_beyond_auth_required(tmp_path: Path) -> None:
    async with open_harness(tmp_path, quick) as here:
        google = replace(here.call, waits_for_auth=True)
        for call, expected in ((here.call, True), (google, False)):
            assert ends_stream(call, states.AUTH_REQUIRED, True) is expected
            asking = Event(2, b"", states.AUTH_REQUIRED, ends=True)
            assert split_at_end(call, [asking], 0) == ([asking], expected)
            assert ends_stream(call, states.INPUT_REQUIRED, True)
            assert ends_stream(call, states.CANCELED, False)
            assert not ends_stream(call, states.WORKING, False)
