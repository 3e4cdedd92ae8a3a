"""The store's contract: what is too much is refused inside of the transaction that would have accepted it.

A third-party store subclasses `StoreAdmission` in its own tests, as it does `StoreWrites` and `StoreReads`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import pytest

from dragoman.core import states
from dragoman.core.admission import LATER, Overrun
from dragoman.core.erasing import Selection
from dragoman.core.log import Append, Appended, Inbound, Key, NotTerminal, Ready, Repeated, Runner
from dragoman.core.names import Owner
from dragoman.core.quotas import Quota
from dragoman.ports import Store
from dragoman.testing.changes import AGENT, OWNER, by_runner, cancel, created, file_message, message, new_ref, status
from dragoman.testing.store_writes import Clock

ELSEWHERE = Owner("projects/p", OWNER.principal)
OTHER = Owner("default", "somebody else")
BIG = "x" * 5_000
"""Makes a message of ten thousand bytes and some: its id is the text, too."""


def asked(quota: Quota, owner: Owner = OWNER, **details: Any) -> Append:
    """A new task, if there is room for it."""
    return replace(created(new_ref(owner), **details), quota=quota)


def more(head: Appended, quota: Quota, text: str = "more", *, claim: int = 0, sender: str = "") -> Append:
    """A message to a task, if there is room for it."""
    said = Inbound(message(text), sender=sender)
    return Append(task=head.head.ref, guard=NotTerminal(), message=said, claim=claim, quota=quota)


async def over(limit: str, change: Awaitable[Appended]) -> Overrun:
    """The refusal of a change, which names this limit."""
    with pytest.raises(Overrun) as caught:
        await change
    assert caught.value.limit == limit
    return caught.value


class StoreAdmission:
    """Give a `store` fixture, opened with the `clock` fixture of this class."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    # Live tasks -------------------------------------------------------------------------------------------------

    async def test_tasks_are_taken_up_to_the_limit_and_again_when_one_has_ended(self, store: Store) -> None:
        quota = Quota(live_tasks=2)
        first = await store.append(asked(quota, claim=7))
        await store.append(asked(quota))
        refused = asked(quota)
        error = await over("live_tasks", store.append(refused))
        assert (error.most, error.has, error.retry_after) == (2, 2, LATER)
        assert await store.read(refused.task) is None
        await store.append(by_runner(first, status(states.INPUT_REQUIRED), end=True))
        await over("live_tasks", store.append(asked(quota)))
        await store.append(cancel(first.head.ref))
        await store.append(asked(quota))
        await over("live_tasks", store.append(asked(quota)))

    async def test_of_many_at_once_so_many_are_taken_as_there_is_room_for(self, store: Store) -> None:
        changes = [asked(Quota(live_tasks=20)) for _ in range(50)]
        results = await asyncio.gather(*map(store.append, changes), return_exceptions=True)
        assert [isinstance(result, Overrun) for result in results] == [False] * 20 + [True] * 30

    async def test_a_principal_is_the_same_in_every_scope(self, store: Store) -> None:
        quota = Quota(live_tasks=2)
        await store.append(asked(quota))
        await store.append(asked(quota, ELSEWHERE))
        await over("live_tasks", store.append(asked(quota, ELSEWHERE)))
        await store.append(asked(quota, OTHER))

    async def test_one_agent_may_have_a_limit_of_its_own(self, store: Store) -> None:
        quota = Quota(live_tasks_per_agent=1)
        await store.append(asked(quota))
        await over("live_tasks_per_agent", store.append(asked(quota)))
        await store.append(asked(quota, agent="other"))

    async def test_who_is_counted_late_has_what_it_had(self, store: Store) -> None:
        hidden = await store.append(created(new_ref(), claim=7, visible=False))
        for _ in range(2):
            await store.append(created(new_ref()))
        quota = Quota(live_tasks=4)
        await store.append(asked(quota))
        await over("live_tasks", store.append(asked(quota)))
        await store.append(replace(by_runner(hidden), discard=True))
        await store.append(asked(quota))

    async def test_tasks_that_are_erased_give_room(self, store: Store) -> None:
        quota = Quota(live_tasks=2, queued_bytes=15_000)
        gone = (await store.append(asked(quota, text=BIG))).head
        await store.append(asked(quota))
        await over("live_tasks", store.append(asked(quota)))
        await store.erase(Selection(task=gone.id))
        await store.append(asked(quota, text=BIG))

    async def test_a_task_counts_for_who_made_it(self, store: Store) -> None:
        everyone = Owner("default", "shared:scope")
        quota = Quota(live_tasks=1)

        def by(sender: str) -> Append:
            return replace(asked(quota, everyone), message=Inbound(message("hello"), sender=sender))

        await store.append(replace(by("alice"), quota=None))
        await over("live_tasks", store.append(by("alice")))
        bobs = await store.append(by("bob"))
        await over("live_tasks", store.append(by("bob")))
        await store.append(cancel(bobs.head.ref))
        await store.append(by("bob"))
        await over("live_tasks", store.append(by("alice")))

    # Queued bytes -----------------------------------------------------------------------------------------------

    async def test_messages_wait_up_to_the_limit_and_one_alone_however_large(self, store: Store) -> None:
        quota = Quota(queued_bytes=15_000)
        first = await store.append(asked(quota, text=BIG + BIG))
        error = await over("queued_bytes", store.append(asked(quota)))
        assert error.has > 20_000
        claimed = await store.append(Append(task=first.head.ref, guard=Ready(), claim=7))
        await store.append(by_runner(claimed, status(states.WORKING)))
        await store.append(asked(quota, text=BIG))
        await over("queued_bytes", store.append(more(claimed, quota, BIG)))
        await store.append(more(claimed, quota, "small"))

    async def test_messages_of_a_task_that_ended_wait_no_more(self, store: Store) -> None:
        quota = Quota(queued_bytes=15_000)
        claimed = await store.append(asked(quota, claim=7))
        await store.append(by_runner(claimed, status(states.WORKING)))
        await store.append(more(claimed, quota, BIG))
        await over("queued_bytes", store.append(asked(quota, text=BIG)))
        await store.append(cancel(claimed.head.ref))
        await store.append(asked(quota, text=BIG))

    async def test_a_turn_that_is_begun_again_has_its_message_again(self, store: Store) -> None:
        quota = Quota(queued_bytes=15_000)
        claimed = await store.append(asked(quota, text=BIG, claim=7))
        await store.append(by_runner(claimed, status(states.WORKING)))
        again = Append(task=claimed.head.ref, guard=Runner(7, claimed.head.token), retry=True)
        await store.append(again)
        await over("queued_bytes", store.append(asked(quota, text=BIG)))

    async def test_a_file_weighs_what_it_holds(self, store: Store) -> None:
        quota = Quota(queued_bytes=600_000)
        large = Inbound(file_message("f", b"0" * 400_000))
        first = await store.append(replace(asked(quota), message=large))
        await over("queued_bytes", store.append(replace(asked(quota), message=large)))
        await store.append(cancel(first.head.ref))
        await store.append(replace(asked(quota), message=large))

    async def test_bytes_are_those_of_who_sent_them(self, store: Store) -> None:
        quota = Quota(queued_bytes=15_000)
        claimed = await store.append(asked(quota, claim=7))
        await store.append(by_runner(claimed, status(states.WORKING)))
        await store.append(more(claimed, quota, BIG, sender="guest"))
        await over("queued_bytes", store.append(more(claimed, quota, BIG, sender="guest")))
        await store.append(more(claimed, quota, BIG))

    # Starts -----------------------------------------------------------------------------------------------------

    async def test_so_many_turns_begin_at_once_and_then_one_after_the_other(self, store: Store, clock: Clock) -> None:
        quota = Quota(starts_per_minute=3)
        for _ in range(3):
            await store.append(asked(quota))
        error = await over("starts_per_minute", store.append(asked(quota)))
        assert error.retry_after == pytest.approx(20)
        clock.now += 20_000
        await store.append(asked(quota))
        await over("starts_per_minute", store.append(asked(quota)))
        await store.append(asked(quota, agent="other"))
        await store.append(asked(quota, OTHER))

    async def test_only_what_begins_a_turn_is_a_start(self, store: Store) -> None:
        quota = Quota(starts_per_minute=2)
        claimed = await store.append(asked(quota, claim=7))
        for _ in range(3):
            await store.append(more(claimed, quota))
        await store.append(by_runner(claimed, status(states.INPUT_REQUIRED), taken=4, end=True))
        await store.append(more(claimed, quota))
        await store.append(more(claimed, quota))  # it waits already
        await over("starts_per_minute", store.append(asked(quota)))

    # Whatever the limit -----------------------------------------------------------------------------------------

    async def test_what_was_accepted_before_is_never_refused(self, store: Store) -> None:
        quota = Quota(live_tasks=1, queued_bytes=1, starts_per_minute=1)
        key = Key(AGENT, "k", b"digest")
        first = (await store.append(replace(asked(quota), key=key))).head.ref
        with pytest.raises(Repeated) as caught:
            await store.append(replace(asked(quota), key=key))
        assert caught.value.earlier.task == first
        other = Key(AGENT, "other", b"digest")
        await over("live_tasks", store.append(replace(asked(quota), key=other)))
        await store.append(cancel(first))
        await over("starts_per_minute", store.append(replace(asked(quota), key=other)))
        await store.append(replace(created(new_ref()), key=other))  # a refusal used no key

    async def test_a_follow_up_needs_no_room_for_a_task(self, store: Store) -> None:
        quota = Quota(live_tasks=1, live_tasks_per_agent=1)
        task = await store.append(asked(quota))
        await store.append(more(task, quota))
