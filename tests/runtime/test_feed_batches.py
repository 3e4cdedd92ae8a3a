"""Batches of events: the same events in the same order as one by one, up to the same end."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.bus.local import LocalBus
from dragoman.core.errors import TaskNotFound
from dragoman.core.names import Owner
from dragoman.core.task.log import Event, TaskRef
from dragoman.runtime.feeds import (
    FEED_BATCH_BYTES,
    FEED_BATCH_EVENTS,
    FEED_WINDOW_EVENTS,
    TaskFeeds,
)

REF = TaskRef(Owner("default", "anonymous"), bytes(16))


class Stored:
    """A store that has events and nothing else."""

    epoch = "00000000"

    def __init__(self, events: list[Event]) -> None:
        self.all = events
        self.requested = 0

    async def events(self, task: TaskRef, after: int, limit: int = 256) -> list[Event]:
        self.requested += 1
        return [Event(one.sequence, one.data) for one in self.all[after : after + limit]]


def events(count: int, size: int = 10) -> list[Event]:
    return [Event(number, b"x" * size) for number in range(1, count + 1)]


def followers(store: Stored) -> tuple[TaskFeeds, LocalBus]:
    bus = LocalBus()
    return TaskFeeds(store, bus), bus  # type: ignore[arg-type]  # implements all methods that feeds use


async def test_a_batch_has_all_available_events_up_to_its_limits() -> None:
    many = events(FEED_BATCH_EVENTS + 10)
    following, bus = followers(Stored(many))
    async with following.subscribe(REF) as subscriber:
        bus.publish(REF, many)
        assert await subscriber.next_batch() == many[:FEED_BATCH_EVENTS]
        assert await subscriber.next_batch() == many[FEED_BATCH_EVENTS:]
        large = [Event(len(many) + 1 + number, b"x" * (FEED_BATCH_BYTES // 2)) for number in range(3)]
        bus.publish(REF, large)
        assert await subscriber.next_batch() == large[:2]
        assert await subscriber.next_batch() == large[2:]
        alone = Event(large[-1].sequence + 1, b"x" * 2 * FEED_BATCH_BYTES)
        bus.publish(REF, [alone])
        assert await subscriber.next_batch() == [alone]


async def test_subscribers_at_the_same_position_share_a_batch() -> None:
    many = events(30)
    following, bus = followers(Stored(many))
    async with following.subscribe(REF) as one, following.subscribe(REF) as other:
        bus.publish(REF, many[:20])
        assert await one.next_batch() is await other.next_batch()
        bus.publish(REF, many[20:])
        assert await one.next_batch() == await other.next_batch() == many[20:]
        assert {event.cursor.rpartition(".")[2] for event in many} == {str(event.sequence) for event in many}


@given(
    steps=st.lists(st.tuples(st.integers(1, 700), st.booleans()), max_size=12),
    asks=st.lists(st.booleans(), max_size=60),
)
async def test_batches_and_single_events_leave_no_gap_from_any_source(
    steps: list[tuple[int, bool]], asks: list[bool]
) -> None:
    many = events(sum(count for count, _ in steps))
    store = Stored(many)
    following, bus = followers(store)
    seen: list[int] = []
    at = 0
    async with asyncio.timeout(60), following.subscribe(REF) as subscriber:
        for count, delivered in steps:
            some, at = many[at : at + count], at + count
            if delivered:
                bus.publish(REF, some)
            else:  # the bus loses them, and the store has the version
                following.by_task[REF].observe_version(at)
            for single in asks[: len(asks) // max(len(steps), 1)]:
                if subscriber.position < at:
                    seen += [
                        one.sequence for one in ([await subscriber.next()] if single else await subscriber.next_batch())
                    ]
        while subscriber.position < at:
            seen += [one.sequence for one in await subscriber.next_batch()]
    assert seen == list(range(1, at + 1))


async def test_a_waiting_subscriber_gets_new_events() -> None:
    many = events(FEED_WINDOW_EVENTS)
    following, bus = followers(Stored(many))
    async with asyncio.timeout(60), following.subscribe(REF) as subscriber:
        subscriber.position = 5
        waiting = asyncio.ensure_future(subscriber.next_batch())
        await asyncio.sleep(0)
        bus.publish(REF, many[5:9])
        assert await waiting == many[5:9]
        waiting = asyncio.ensure_future(subscriber.next_batch())
        await asyncio.sleep(0)
        following.mark_deleted(REF)
        with pytest.raises(TaskNotFound):
            await waiting
