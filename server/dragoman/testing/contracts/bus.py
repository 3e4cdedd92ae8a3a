"""Contract of a bus: items may be lost or repeated, but reach only the right subscribers, unmodified."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from dragoman.core.task import states
from dragoman.core.task.log import Event, TaskRef
from dragoman.ports import Bus, Job, RegistryChange, Store, TaskSignal
from dragoman.runtime.feeds import TaskFeeds
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import AGENT, by_runner, chunk, new_ref, running, status


def event(sequence: int) -> Event:
    return Event(sequence, b"%d" % sequence)


class BusContract:
    """Provide a `bus` fixture. The default `store` fixture is a SQLite store."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        store = open_store(tmp_path / "tasks.db")
        yield store
        await store.close()

    async def wait_delivered(self) -> None:
        """Returns when published items have arrived. Override it for a bus that needs more than a loop iteration."""
        for _ in range(3):
            await asyncio.sleep(0)

    async def test_a_subscriber_gets_the_later_events_of_its_task(self, bus: Bus) -> None:
        mine, other, received = new_ref(), new_ref(), list[int]()

        def deliver(events: Sequence[Event]) -> None:
            received.extend(one.sequence for one in events)

        bus.publish(mine, [event(1)])
        await self.wait_delivered()
        stop = await bus.subscribe(mine, deliver)
        bus.publish(mine, [event(2), event(3)])
        bus.publish(other, [event(4)])
        await self.wait_delivered()
        assert received == [2, 3]
        await stop()
        await stop()
        bus.publish(mine, [event(5)])
        await self.wait_delivered()
        assert received == [2, 3]

    async def test_all_subscribers_of_a_task_get_its_events(self, bus: Bus) -> None:
        ref, received = new_ref(), list[str]()
        stops = [
            await bus.subscribe(ref, lambda events: received.append("first")),
            await bus.subscribe(ref, lambda events: received.append("second")),
        ]
        bus.publish(ref, [event(1)])
        await self.wait_delivered()
        assert sorted(received) == ["first", "second"]
        await stops[0]()
        bus.publish(ref, [event(2)])
        await self.wait_delivered()
        assert sorted(received) == ["first", "second", "second"]

    async def test_a_job_is_delivered_to_one_worker_of_its_agent(self, bus: Bus) -> None:
        received: list[tuple[str, Job]] = []
        await bus.subscribe_jobs([AGENT], lambda job: received.append(("a", job)))
        stop = await bus.subscribe_jobs([AGENT, "other"], lambda job: received.append(("b", job)))
        jobs = [Job(AGENT, new_ref()) for _ in range(64)]  # enough for each worker to receive some
        for job in jobs:
            bus.publish_job(job)
        bus.publish_job(Job("nobody's", new_ref()))
        await self.wait_delivered()
        assert sorted(job.task.key for _, job in received) == sorted(job.task.key for job in jobs)
        assert {name for name, _ in received} == {"a", "b"}
        await stop()
        await self.wait_delivered()
        received.clear()
        bus.publish_job(jobs[0])
        bus.publish_job(Job("other", new_ref()))
        await self.wait_delivered()
        assert received == [("a", jobs[0])]

    async def test_a_signal_reaches_its_subscribers(self, bus: Bus) -> None:
        received: list[tuple[TaskRef, TaskSignal]] = []
        stop = await bus.subscribe_signals(lambda task, signal: received.append((task, signal)))
        ref = new_ref()
        bus.publish_signal(ref, TaskSignal.CANCEL)
        bus.publish_signal(ref, TaskSignal.MESSAGE)
        await self.wait_delivered()
        assert received == [(ref, TaskSignal.CANCEL), (ref, TaskSignal.MESSAGE)]
        await stop()
        await stop()
        bus.publish_signal(ref, TaskSignal.CANCEL)
        await self.wait_delivered()
        assert len(received) == 2

    async def test_registry_changes_reach_their_subscribers_and_no_signal_subscriber(self, bus: Bus) -> None:
        received: list[RegistryChange] = []
        signals: list[tuple[TaskRef, TaskSignal]] = []
        stop = await bus.subscribe_changes(received.append)
        await bus.subscribe_signals(lambda task, signal: signals.append((task, signal)))
        ref = new_ref()
        bus.publish_change(RegistryChange.WORKERS)
        bus.publish_signal(ref, TaskSignal.CANCEL)
        bus.publish_change(RegistryChange.UPSTREAMS)
        await self.wait_delivered()
        assert received == [RegistryChange.WORKERS, RegistryChange.UPSTREAMS]
        assert signals == [(ref, TaskSignal.CANCEL)]
        await stop()
        await stop()
        bus.publish_change(RegistryChange.WORKERS)
        await self.wait_delivered()
        assert len(received) == 2

    async def test_close_is_idempotent(self, bus: Bus) -> None:
        await bus.close()
        await bus.close()

    async def test_a_feed_that_starts_between_two_events_misses_and_repeats_none(self, bus: Bus, store: Store) -> None:
        task_feeds, claimed = TaskFeeds(store, bus), await running(store)
        positions: list[int] = []

        async def append_chunk(text: str) -> None:
            change = by_runner(claimed, chunk("out", text))
            bus.publish(claimed.record.ref, (await store.append(change)).events)

        async def follow() -> list[int]:
            async with task_feeds.subscribe(claimed.record.ref) as subscriber:
                snapshot = await store.read(claimed.record.ref)
                assert snapshot is not None
                subscriber.position = first = snapshot.record.last_sequence
                seen = [first]
                positions.append(first)
                while True:
                    one = await subscriber.next()
                    seen.append(one.sequence)
                    if one.state in states.TERMINAL:
                        return seen

        feeds = []
        for number in range(20):
            feeds.append(asyncio.create_task(follow()))
            await append_chunk(str(number))
        while len(positions) < 20:  # a bus may start listening late
            await append_chunk("more")
        end = by_runner(claimed, status(states.COMPLETED), end=True)
        last = await store.append(end)
        bus.publish(claimed.record.ref, last.events)
        for seen in await asyncio.gather(*feeds):
            assert seen == list(range(seen[0], last.record.last_sequence + 1))
