"""What every store does about its size: less room, the same answers, and nothing lost that is still wanted."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.core import states
from dragoman.core.log import Appended, ArtifactChange, Cut, StatusChange
from dragoman.ports import Store, Tidied
from dragoman.testing.changes import artifact, by_runner, chunk, new_ref, running, status
from dragoman.testing.store_writes import Clock

WEEK = 7 * 24 * 3600 * 1000
MANY = 300
"""Appends after which every store has something to fold."""


class StoreSize:
    """Give a `store` fixture, opened with the `clock` fixture of this class, that folds and cuts within a week."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    async def grow(self, store: Store, claimed: Appended, *changes: ArtifactChange | StatusChange) -> Appended:
        """Appends each change by itself; gives the last."""
        return (await asyncio.gather(*(store.append(by_runner(claimed, change)) for change in changes)))[-1]

    async def task(self, store: Store, appended: Appended) -> bytes:
        snapshot = await store.read(appended.head.ref)
        assert snapshot is not None
        return snapshot.task

    async def long_one(self, store: Store) -> Appended:
        """A task of many events that has ended."""
        claimed = await running(store)
        await self.grow(store, claimed, *(chunk("out", f"{number}\n") for number in range(MANY)))
        return await store.append(by_runner(claimed, status(states.COMPLETED, "done"), end=True))

    # Joining ----------------------------------------------------------------------------------------------------

    async def test_tidying_changes_no_task(self, store: Store) -> None:
        claimed = await running(store)
        changes: list[ArtifactChange | StatusChange] = [chunk("a", "begins ", append=False), artifact("b", "begins")]
        for number in range(MANY):
            changes.append(chunk("a", f"{number} "))
            changes.append(artifact("b", f"{number}", append=True))
            if number % 7 == 0:
                changes += [artifact("a", "of another kind", append=True), status(states.WORKING, f"{number}")]
        last = await self.grow(store, claimed, *changes)
        before = await self.task(store, last)
        assert (await store.tidy()).rows > 0
        assert await self.task(store, last) == before
        assert await store.tidy() == Tidied()

    async def test_a_task_grows_on_after_it_was_tidied(self, store: Store) -> None:
        claimed, said = await running(store), ""
        for round_ in range(4):
            texts = [f"{round_}.{number} " for number in range(MANY)]
            last = await self.grow(store, claimed, *(chunk("out", text) for text in texts))
            said += "".join(texts)
            await store.tidy()
            assert said.encode() in await self.task(store, last)

    async def test_an_artifact_that_is_replaced_after_it_was_tidied_is_the_new_one(self, store: Store) -> None:
        claimed = await running(store)
        await self.grow(store, claimed, *(chunk("out", "old ") for _ in range(MANY)))
        await store.tidy()
        last = await self.grow(store, claimed, chunk("out", "new ", append=False), *(chunk("out", "er ") for _ in "ab"))
        await store.tidy()
        task = await self.task(store, last)
        assert b"new er er " in task
        assert b"old" not in task

    async def test_events_of_a_task_that_has_not_ended_stay(self, store: Store, clock: Clock) -> None:
        claimed = await running(store)
        last = await self.grow(store, claimed, *(chunk("out", "x") for _ in range(MANY)))
        before = await store.events(last.head.ref, 0, 10_000)
        clock.now += WEEK
        assert (await store.tidy()).events == 0
        assert await store.events(last.head.ref, 0, 10_000) == before
        assert await store.oldest(last.head.ref) == 1

    # Cutting ----------------------------------------------------------------------------------------------------

    async def test_a_task_that_has_just_ended_keeps_its_events(self, store: Store) -> None:
        done = await self.long_one(store)
        assert (await store.tidy()).events == 0
        assert len(await store.events(done.head.ref, 0, 10_000)) == MANY + 2

    async def test_a_finished_task_keeps_its_last_events_and_its_answer(self, store: Store, clock: Clock) -> None:
        done = await self.long_one(store)
        ref, before = done.head.ref, await self.task(store, done)
        events = await store.events(ref, 0, 10_000)
        clock.now += WEEK
        dropped = (await store.tidy()).events
        oldest = await store.oldest(ref)
        assert oldest == dropped + 1 > 1
        assert await store.events(ref, oldest - 1, 10_000) == events[dropped:]
        assert await self.task(store, done) == before
        assert (await store.versions([ref]))[ref.key] == done.head.last
        assert await store.tidy() == Tidied()

    async def test_a_cursor_older_than_the_log_is_told_where_the_log_begins(self, store: Store, clock: Clock) -> None:
        ref = (await self.long_one(store)).head.ref
        clock.now += WEEK
        await store.tidy()
        oldest = await store.oldest(ref)
        for after in (0, 1, oldest - 2):
            with pytest.raises(Cut) as cut:
                await store.events(ref, after)
            assert cut.value.oldest == oldest

    async def test_a_log_that_was_never_cut_begins_with_one_and_no_task_has_none(self, store: Store) -> None:
        assert await store.oldest((await running(store)).head.ref) == 1
        assert await store.oldest(new_ref()) == 0
        assert await store.events(new_ref(), 0) == []
