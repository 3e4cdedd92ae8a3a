"""The store's contract: cancels that were asked for of tasks that somebody runs.

A third-party store subclasses `StoreCancels` in its own tests, as it does `StoreWrites` and the others.
"""

from __future__ import annotations

from dataclasses import replace

from dragoman.core import states
from dragoman.core.log import Append, Ready
from dragoman.ports import Store
from dragoman.testing.changes import SESSION, by_runner, finished, follow_up, new_ref, running, status


class StoreCancels:
    """Give a `store` fixture."""

    async def test_a_task_that_is_to_stop_is_told_to_the_session_that_runs_it(self, store: Store) -> None:
        asked, other = [(await running(store)).head.ref for _ in range(2)]
        await store.cancels.ask(asked)
        await store.cancels.ask(asked)
        assert await store.cancels.of(SESSION) == [asked]
        assert await store.cancels.of(SESSION + 1) == []
        assert await store.cancels.among([asked, other]) == {asked}
        assert await store.cancels.among([other]) == set()

    async def test_a_cancel_holds_when_the_turn_is_begun_again_elsewhere(self, store: Store) -> None:
        claimed = await running(store)
        ref = claimed.head.ref
        await store.cancels.ask(ref)
        await store.append(replace(by_runner(claimed), retry=True))
        assert await store.cancels.of(SESSION) == []
        assert await store.cancels.among([ref]) == {ref}
        await store.append(Append(task=ref, guard=Ready(), claim=SESSION + 1))
        assert await store.cancels.of(SESSION + 1) == [ref]

    async def test_a_cancel_is_over_when_the_turn_has_ended(self, store: Store) -> None:
        claimed = await running(store)
        ref = claimed.head.ref
        await store.cancels.ask(ref)
        await store.append(by_runner(claimed, status(states.INPUT_REQUIRED), end=True))
        assert await store.cancels.among([ref]) == set()
        assert (await store.append(follow_up(ref, "go on", claim=SESSION))).claimed
        assert await store.cancels.of(SESSION) == []

    async def test_a_message_that_came_later_is_not_canceled(self, store: Store) -> None:
        claimed = await running(store)
        ref = claimed.head.ref
        await store.cancels.ask(ref)
        await store.append(follow_up(ref, "and this"))
        assert await store.cancels.of(SESSION) == [ref]
        assert (await store.append(by_runner(claimed, status(states.COMPLETED), end=True))).again
        assert await store.cancels.of(SESSION) == []

    async def test_no_cancel_is_kept_of_what_nobody_runs(self, store: Store) -> None:
        ref = (await finished(store)).head.ref
        await store.cancels.ask(ref)
        await store.cancels.ask(new_ref())
        assert await store.cancels.among([ref]) == set()

    async def test_tidying_keeps_the_cancels_that_hold(self, store: Store) -> None:
        over, holds = [await running(store) for _ in range(2)]
        for one in (over, holds):
            await store.cancels.ask(one.head.ref)
        await store.append(by_runner(over, status(states.CANCELED), end=True))
        await store.tidy()
        assert await store.cancels.of(SESSION) == [holds.head.ref]
