"""The store's contract: agents that workers dial in with.

A third-party store subclasses `StoreRoster` in its own tests, as it does `StoreWrites` and the others.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from dragoman.ports import Enrolled, Store

DESK = Enrolled("desk", "workers@example.com", b"\x0a\x04desk", since=1_000, seen=1_000)


class StoreRoster:
    """Give a `store` fixture."""

    async def test_an_agent_is_kept_as_it_was_given(self, store: Store) -> None:
        assert await store.roster.enrol(DESK) == DESK
        assert await store.roster.list() == [DESK]

    async def test_a_later_worker_says_anew_what_the_agent_is(self, store: Store) -> None:
        await store.roster.enrol(DESK)
        later = replace(DESK, registration=b"\x0a\x05other", since=2_000, seen=2_000)
        assert await store.roster.enrol(later) == replace(later, since=1_000)
        assert await store.roster.list() == [replace(later, since=1_000)]

    async def test_another_principal_changes_nothing(self, store: Store) -> None:
        await store.roster.enrol(DESK)
        assert await store.roster.enrol(replace(DESK, principal="mallory", registration=b"", seen=2_000)) == DESK
        assert await store.roster.list() == [DESK]

    async def test_of_two_who_come_at_once_one_has_the_agent(self, store: Store) -> None:
        theirs = [replace(DESK, principal=f"p{number}") for number in range(5)]
        kept = await asyncio.gather(*map(store.roster.enrol, theirs))
        assert len({one.principal for one in kept}) == 1

    async def test_agents_are_listed_by_id(self, store: Store) -> None:
        for agent in ("b", "c", "a"):
            await store.roster.enrol(replace(DESK, agent=agent))
        assert [one.agent for one in await store.roster.list()] == ["a", "b", "c"]

    async def test_an_id_that_was_struck_out_is_free(self, store: Store) -> None:
        await store.roster.enrol(DESK)
        assert await store.roster.strike("desk")
        assert not await store.roster.strike("desk")
        assert await store.roster.list() == []
        assert (await store.roster.enrol(replace(DESK, principal="other"))).principal == "other"
