"""Events are handed on as many at a time as are there: the same events, in the same order, to the same end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.world import kinds, world

from dragoman.agents.turn import Turn
from dragoman.bus.local import LocalBus
from dragoman.core import states
from dragoman.core.errors import TaskNotFound
from dragoman.core.log import Event, TaskRef
from dragoman.core.names import Owner
from dragoman.runtime.flow import Flow, Lots, ends, terminal, up_to
from dragoman.runtime.follow import LOT_BYTES, LOT_EVENTS, WINDOW_EVENTS, Followers
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

REF = TaskRef(Owner("default", "anonymous"), bytes(16))


class Stored:
    """A store that has events and nothing else."""

    epoch = "00000000"

    def __init__(self, events: list[Event]) -> None:
        self.all = events
        self.asked = 0

    async def events(self, task: TaskRef, after: int, limit: int = 256) -> list[Event]:
        self.asked += 1
        return [Event(one.sequence, one.data) for one in self.all[after : after + limit]]


def events(count: int, size: int = 10) -> list[Event]:
    return [Event(number, b"x" * size) for number in range(1, count + 1)]


def followers(store: Stored) -> tuple[Followers, LocalBus]:
    bus = LocalBus()
    return Followers(store, bus), bus  # type: ignore[arg-type]  # all that is asked of it


async def test_a_lot_is_what_is_there_and_no_more_than_its_limits() -> None:
    many = events(LOT_EVENTS + 10)
    following, bus = followers(Stored(many))
    async with following.subscribe(REF) as subscriber:
        bus.publish(REF, many)
        assert await subscriber.lot() == many[:LOT_EVENTS]
        assert await subscriber.lot() == many[LOT_EVENTS:]
        large = [Event(len(many) + 1 + number, b"x" * (LOT_BYTES // 2)) for number in range(3)]
        bus.publish(REF, large)
        assert await subscriber.lot() == large[:2]
        assert await subscriber.lot() == large[2:]
        alone = Event(large[-1].sequence + 1, b"x" * 2 * LOT_BYTES)
        bus.publish(REF, [alone])
        assert await subscriber.lot() == [alone]


async def test_who_stands_at_the_same_place_is_given_the_same_lot() -> None:
    many = events(30)
    following, bus = followers(Stored(many))
    async with following.subscribe(REF) as one, following.subscribe(REF) as other:
        bus.publish(REF, many[:20])
        assert await one.lot() is await other.lot()
        bus.publish(REF, many[20:])
        assert await one.lot() == await other.lot() == many[20:]
        assert {event.cursor.rpartition(".")[2] for event in many} == {str(event.sequence) for event in many}


@given(
    steps=st.lists(st.tuples(st.integers(1, 700), st.booleans()), max_size=12),
    asks=st.lists(st.booleans(), max_size=60),
)
async def test_lots_and_single_events_leave_no_gap_wherever_they_come_from(
    steps: list[tuple[int, bool]], asks: list[bool]
) -> None:
    many = events(sum(count for count, _ in steps))
    store = Stored(many)
    following, bus = followers(store)
    seen: list[int] = []
    at = 0
    async with asyncio.timeout(60), following.subscribe(REF) as subscriber:
        for count, told in steps:
            some, at = many[at : at + count], at + count
            if told:
                bus.publish(REF, some)
            else:  # the bus lost them, and the store tells how far the task is
                following._live[REF].heard(at)
            for single in asks[: len(asks) // max(len(steps), 1)]:
                if subscriber.at < at:
                    seen += [one.sequence for one in ([await subscriber.next()] if single else await subscriber.lot())]
        while subscriber.at < at:
            seen += [one.sequence for one in await subscriber.lot()]
    assert seen == list(range(1, at + 1))


async def test_who_waits_is_given_what_comes() -> None:
    many = events(WINDOW_EVENTS)
    following, bus = followers(Stored(many))
    async with asyncio.timeout(60), following.subscribe(REF) as subscriber:
        subscriber.at = 5
        waiting = asyncio.ensure_future(subscriber.lot())
        await asyncio.sleep(0)
        bus.publish(REF, many[5:9])
        assert await waiting == many[5:9]
        waiting = asyncio.ensure_future(subscriber.lot())
        await asyncio.sleep(0)
        following.gone(REF)
        with pytest.raises(TaskNotFound):
            await waiting


# Flow --------------------------------------------------------------------------------------------------------------


async def test_a_flow_is_read_either_way_and_ends() -> None:
    closed = False

    async def lots() -> Lots:
        nonlocal closed
        try:
            yield events(3)
            yield events(2)
        finally:
            closed = True

    flow = Flow(lots())
    assert (await anext(flow)).sequence == 1
    assert [event.sequence for event in await flow.lot()] == [2, 3]
    assert [event.sequence async for event in flow] == [1, 2]
    assert closed
    assert not await flow.lot()
    assert await anext(flow, None) is None
    await flow.aclose()
    await flow.aclose()


async def test_a_flow_raises_what_its_operation_raises() -> None:
    async def lots() -> Lots:
        yield events(1)
        raise TaskNotFound

    flow = Flow(lots())
    assert len(await flow.lot()) == 1
    with pytest.raises(TaskNotFound):
        await flow.lot()


# The service -------------------------------------------------------------------------------------------------------


async def quick(turn: Turn) -> str:
    """Says everything before anybody could have read it, then asks, and ends when it is answered."""
    for number in range(5):
        turn.chunk(f"{number} ")
    if turn.asked is None:
        turn.ask("and?")
    return "done"


async def test_a_stream_stops_in_the_middle_of_what_is_there(tmp_path: Path) -> None:
    async with world(tmp_path, quick) as here:
        task = await here.send()
        assert task.status.state == states.INPUT_REQUIRED
        await here.send("more", task_id=task.id)
        asked = pb.SubscribeToTaskRequest(id=task.id)
        flow = here.runtime.service.subscribe_to_task(replace(here.call, after="1"), asked)
        lot = await flow.lot()
        assert kinds(list(lot))[-1] == "COMPLETED"
        assert not await flow.lot()
    asking = next(number for number, event in enumerate(lot, 1) if event.ends)
    assert asking < len(lot)
    assert up_to(lot, ends) == (lot[:asking], True)
    assert up_to(lot, terminal) == (lot, True)
    assert up_to(lot[: asking - 1], ends) == (lot[: asking - 1], False)
