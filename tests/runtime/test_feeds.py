"""Feeds: every subscriber sees the same events in the same order, for any bus and any reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.conftest import timings
from tests.runtime.harness import Harness, collect, disconnect, kinds, open_harness, state

from dragoman import Turn
from dragoman.bus.local import LocalBus
from dragoman.core.errors import TaskNotFound, UnsupportedOperation
from dragoman.core.names import Owner
from dragoman.core.task.log import Event, TaskRef
from dragoman.ports import Unsubscribe
from dragoman.runtime import feeds
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def three(turn: Turn) -> AsyncIterator[str]:
    for number in (1, 2, 3):
        yield f"{number} "


def chunks(count: int) -> Callable[[Turn], AsyncIterator[str]]:
    async def agent(turn: Turn) -> AsyncIterator[str]:
        for number in range(count):
            yield f"{number} "

    return agent


def numbers(events: Sequence[Event]) -> list[int]:
    return [event.sequence for event in events]


async def test_a_stream_is_the_task_and_then_every_event(tmp_path: Path) -> None:
    async with open_harness(tmp_path, three) as here:
        events = await collect(here.stream())
        assert kinds(events) == ["task SUBMITTED", "WORKING", "1 ", "2 ", "3 ", "COMPLETED"]
        assert numbers(events) == [1, 2, 3, 4, 5, 6]
        assert [event.ends for event in events] == [False] * 5 + [True]


async def test_a_follow_up_streams_from_the_task_as_it_is(tmp_path: Path) -> None:
    async def asks(turn: Turn) -> str:
        if turn.question is None:
            turn.ask("which?")
        return turn.text

    async with open_harness(tmp_path, asks) as here:
        first = await collect(here.stream())
        assert kinds(first) == ["task SUBMITTED", "INPUT_REQUIRED"]
        task = pb.StreamResponse.FromString(first[0].data).task
        second = await collect(here.stream("blue", task_id=task.id))
        assert kinds(second) == ["task WORKING", "blue", "COMPLETED"]
        assert numbers(second) == [3, 4, 5]


async def test_authentication_required_during_a_turn_keeps_the_stream_open(tmp_path: Path) -> None:
    async def asks(turn: Turn) -> str:
        turn.status("log in there", pb.TASK_STATE_AUTH_REQUIRED)
        await turn.flush()
        return "thanks"

    async with open_harness(tmp_path, asks) as here:
        assert kinds(await collect(here.stream()))[-3:] == ["AUTH_REQUIRED", "thanks", "COMPLETED"]


async def test_authentication_required_for_the_next_turn_ends_the_stream(tmp_path: Path) -> None:
    async def asks(turn: Turn) -> None:
        turn.need_auth("log in first")

    async with open_harness(tmp_path, asks) as here:
        assert kinds(await collect(here.stream()))[-1] == "AUTH_REQUIRED"


async def test_a_subscription_stays_open_while_the_task_waits(tmp_path: Path) -> None:
    async def asks(turn: Turn) -> str:
        if turn.question is None:
            turn.ask("which?")
        return turn.text

    async with open_harness(tmp_path, asks) as here:
        task = await here.send()
        following = here.follow(task.id)
        first = await anext(following)
        assert kinds([first]) == ["task INPUT_REQUIRED"]
        await here.send("blue", task_id=task.id)
        assert kinds(await collect(following)) == ["WORKING", "blue", "COMPLETED"]


async def test_subscribing_to_a_finished_task_is_rejected_or_returns_it(tmp_path: Path) -> None:
    async with open_harness(tmp_path, three) as here:
        task = await here.send()
        with pytest.raises(UnsupportedOperation):
            await collect(here.follow(task.id))
        assert kinds(await collect(here.follow(task.id, shows_finished=True))) == ["task COMPLETED"]
        with pytest.raises(TaskNotFound):
            await collect(here.follow("no such task"))


async def held(here: Harness, subscribers: int) -> tuple[pb.Task, list[AsyncGenerator[Event, None]]]:
    """A task held at its gate, and followers that have its snapshot."""
    task = await here.start()
    following = [here.follow(task.id) for _ in range(subscribers)]
    for one in following:
        await anext(one)
    return task, following


def gated(count: int, open_: Callable[[], asyncio.Event]) -> Callable[[Turn], AsyncIterator[str]]:
    async def agent(turn: Turn) -> AsyncIterator[str]:
        await open_().wait()
        for number in range(count):
            yield f"{number} "

    return agent


async def test_one_subscriber_that_never_reads_delays_none_of_a_hundred(tmp_path: Path) -> None:
    async with open_harness(tmp_path, gated(200, lambda: here.at("go"))) as here:
        task, (lazy, *others) = await held(here, 100)
        here.at("go").set()
        streams = await asyncio.gather(*map(collect, others))
        assert {tuple(kinds(stream))[-201:] for stream in streams} == {(*(f"{n} " for n in range(200)), "COMPLETED")}
        assert state(await here.get(task.id)) == "COMPLETED"
        assert kinds(await collect(lazy))[-201:] == kinds(streams[0])[-201:]


async def test_a_reader_far_behind_reads_from_the_store(tmp_path: Path) -> None:
    async with open_harness(tmp_path, gated(3000, lambda: here.at("go"))) as here:
        _, (slow, fast) = await held(here, 2)
        here.at("go").set()
        expected = await collect(fast)
        assert len(expected) > feeds.FEED_WINDOW_EVENTS
        with patch.object(here.store, "events", wraps=here.store.events) as reads:
            assert numbers(await collect(slow)) == numbers(expected)
        assert reads.call_count
        assert not here.runtime.feeds.by_task


class HostileBus(LocalBus):
    """Loses every third batch, repeats every second, and reverses the order of the rest."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[tuple[TaskRef, Sequence[Event]]] = []
        self._count = 0

    def publish(self, task: TaskRef, events: Sequence[Event]) -> None:
        self._count += 1
        if self._count % 3 == 0:
            return
        self._held.append((task, events))
        if self._count % 2:
            for held_task, held_events in reversed(self._held):
                super().publish(held_task, held_events)
                super().publish(held_task, held_events)
            self._held.clear()


async def test_a_bus_that_loses_repeats_and_reorders_changes_no_stream(tmp_path: Path) -> None:
    async def flushing(turn: Turn) -> None:
        await here.at("go").wait()
        for number in range(50):
            turn.chunk(f"{number} ")
            await turn.flush()

    async with open_harness(tmp_path, flushing, bus=HostileBus(), timings=timings(version_poll_interval=0.02)) as here:
        _, following = await held(here, 3)
        here.at("go").set()
        for stream in await asyncio.gather(*map(collect, following)):
            assert [kind for kind in kinds(stream) if kind[0].isdigit()] == [f"{n} " for n in range(50)]
            assert numbers(stream) == list(range(stream[0].sequence, stream[0].sequence + len(stream)))


async def test_with_a_bus_that_loses_everything_events_arrive_at_the_next_poll(tmp_path: Path) -> None:
    class Deaf(LocalBus):
        def publish(self, task: TaskRef, events: Sequence[Event]) -> None:
            pass

        async def subscribe(self, task: TaskRef, deliver: Callable[[Sequence[Event]], None]) -> Unsubscribe:
            return await super().subscribe(task, deliver)

    async with open_harness(tmp_path, three, bus=Deaf(), timings=timings(version_poll_interval=0.02)) as here:
        assert kinds(await collect(here.stream()))[-1] == "COMPLETED"
        assert state(await here.send()) == "COMPLETED"


async def test_a_caller_that_disconnects_changes_nothing(tmp_path: Path) -> None:
    async with open_harness(tmp_path, three) as here:
        for wait in range(12):
            sending = asyncio.ensure_future(here.send(context_id="gone"))
            for _ in range(wait):
                await asyncio.sleep(0)
            await disconnect(sending)
        await here.send("the writer has done what came before")
        tasks_of_context = (await here.list(context_id="gone")).tasks
        assert tasks_of_context
        assert {state(await here.ended(task.id)) for task in tasks_of_context} == {"COMPLETED"}


async def test_closing_a_stream_leaves_the_task_running(tmp_path: Path) -> None:
    async with open_harness(tmp_path, gated(3, lambda: here.at("go"))) as here:
        stream = here.stream()
        task = pb.StreamResponse.FromString((await anext(stream)).data).task
        await stream.aclose()
        here.at("go").set()
        assert state(await here.ended(task.id)) == "COMPLETED"


@pytest.mark.parametrize("news_first", [False, True])
async def test_a_subscriber_cancelled_as_events_arrive_ends_without_error(news_first: bool) -> None:
    follower = feeds.TaskFeed(TaskRef(Owner("default", "anonymous"), bytes(16)), "")
    reader = asyncio.create_task(follower.wait_for_change())
    await asyncio.sleep(0)
    if news_first:
        follower.observe_version(1)
    reader.cancel()
    follower.observe_version(2)
    with pytest.raises(asyncio.CancelledError):
        await reader
