"""What every bus does: it may lose and repeat, but it tells the right ones, and it tells no lies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from dragoman.core import states
from dragoman.core.log import Event, TaskRef
from dragoman.ports import Bus, Job, News, Signal, Store
from dragoman.runtime.follow import Followers
from dragoman.stores.sqlite import open_store
from dragoman.testing.changes import AGENT, by_runner, chunk, new_ref, running, status


def event(sequence: int) -> Event:
    return Event(sequence, b"%d" % sequence)


class BusContract:
    """Give a `bus` fixture. The store is SQLite's, unless there is a `store` fixture too."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        store = open_store(tmp_path / "tasks.db")
        yield store
        await store.close()

    async def told(self) -> None:
        """Returns when what was said has arrived; override where that takes more than a turn of the loop."""
        for _ in range(3):
            await asyncio.sleep(0)

    async def test_a_follower_hears_its_task_from_then_on(self, bus: Bus) -> None:
        mine, other, heard = new_ref(), new_ref(), list[int]()

        def deliver(events: Sequence[Event]) -> None:
            heard.extend(one.sequence for one in events)

        bus.publish(mine, [event(1)])
        await self.told()
        stop = await bus.follow(mine, deliver)
        bus.publish(mine, [event(2), event(3)])
        bus.publish(other, [event(4)])
        await self.told()
        assert heard == [2, 3]
        await stop()
        await stop()
        bus.publish(mine, [event(5)])
        await self.told()
        assert heard == [2, 3]

    async def test_all_followers_of_a_task_hear_it(self, bus: Bus) -> None:
        ref, heard = new_ref(), list[str]()
        stops = [
            await bus.follow(ref, lambda events: heard.append("first")),
            await bus.follow(ref, lambda events: heard.append("second")),
        ]
        bus.publish(ref, [event(1)])
        await self.told()
        assert sorted(heard) == ["first", "second"]
        await stops[0]()
        bus.publish(ref, [event(2)])
        await self.told()
        assert sorted(heard) == ["first", "second", "second"]

    async def test_a_job_is_told_to_one_worker_of_its_agent(self, bus: Bus) -> None:
        heard: list[tuple[str, Job]] = []
        await bus.work([AGENT], lambda job: heard.append(("a", job)))
        stop = await bus.work([AGENT, "other"], lambda job: heard.append(("b", job)))
        jobs = [Job(AGENT, new_ref()) for _ in range(64)]  # so many that chance gives each worker some
        for job in jobs:
            bus.offer(job)
        bus.offer(Job("nobody's", new_ref()))
        await self.told()
        assert sorted(job.task.key for _, job in heard) == sorted(job.task.key for job in jobs)
        assert {name for name, _ in heard} == {"a", "b"}
        await stop()
        await self.told()
        heard.clear()
        bus.offer(jobs[0])
        bus.offer(Job("other", new_ref()))
        await self.told()
        assert heard == [("a", jobs[0])]

    async def test_a_signal_reaches_whoever_obeys(self, bus: Bus) -> None:
        heard: list[tuple[TaskRef, Signal]] = []
        stop = await bus.obey(lambda task, signal: heard.append((task, signal)))
        ref = new_ref()
        bus.signal(ref, Signal.CANCEL)
        bus.signal(ref, Signal.MESSAGE)
        await self.told()
        assert heard == [(ref, Signal.CANCEL), (ref, Signal.MESSAGE)]
        await stop()
        await stop()
        bus.signal(ref, Signal.CANCEL)
        await self.told()
        assert len(heard) == 2

    async def test_news_reach_whoever_attends_and_nobody_who_obeys(self, bus: Bus) -> None:
        heard: list[News] = []
        signals: list[tuple[TaskRef, Signal]] = []
        stop = await bus.attend(heard.append)
        await bus.obey(lambda task, signal: signals.append((task, signal)))
        ref = new_ref()
        bus.announce(News.WORKERS)
        bus.signal(ref, Signal.CANCEL)
        bus.announce(News.UPSTREAMS)
        await self.told()
        assert heard == [News.WORKERS, News.UPSTREAMS]
        assert signals == [(ref, Signal.CANCEL)]
        await stop()
        await stop()
        bus.announce(News.WORKERS)
        await self.told()
        assert len(heard) == 2

    async def test_closing_twice_is_fine(self, bus: Bus) -> None:
        await bus.close()
        await bus.close()

    async def test_a_follower_that_starts_between_two_events_misses_and_repeats_none(
        self, bus: Bus, store: Store
    ) -> None:
        followers, claimed = Followers(store, bus), await running(store)
        begun: list[int] = []

        async def say(text: str) -> None:
            change = by_runner(claimed, chunk("out", text))
            bus.publish(claimed.head.ref, (await store.append(change)).events)

        async def follow() -> list[int]:
            async with followers.subscribe(claimed.head.ref) as subscriber:
                snapshot = await store.read(claimed.head.ref)
                assert snapshot is not None
                subscriber.at = first = snapshot.head.last
                seen = [first]
                begun.append(first)
                while True:
                    one = await subscriber.next()
                    seen.append(one.sequence)
                    if one.state in states.TERMINAL:
                        return seen

        following = []
        for number in range(20):
            following.append(asyncio.create_task(follow()))
            await say(str(number))
        while len(begun) < 20:  # a bus may take its time until it listens
            await say("more")
        end = by_runner(claimed, status(states.COMPLETED), end=True)
        last = await store.append(end)
        bus.publish(claimed.head.ref, last.events)
        for seen in await asyncio.gather(*following):
            assert seen == list(range(seen[0], last.head.last + 1))
