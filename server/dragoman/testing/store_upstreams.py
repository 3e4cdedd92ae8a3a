"""The store's contract: agents upstream that were added while a server ran.

A third-party store subclasses `StoreUpstreams` in its own tests, as it does `StoreWrites` and the others.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from dragoman.ports import Added, Store

DESK = Added("desk", b'{"url": "https://desk.example"}', since=1_000)


class StoreUpstreams:
    """Give a `store` fixture."""

    async def test_one_is_kept_as_it_was_given(self, store: Store) -> None:
        assert await store.upstreams.add(DESK)
        assert await store.upstreams.list() == [DESK]

    async def test_another_of_its_id_changes_nothing(self, store: Store) -> None:
        await store.upstreams.add(DESK)
        assert not await store.upstreams.add(replace(DESK, entry=b"{}", since=2_000))
        assert await store.upstreams.list() == [DESK]

    async def test_of_several_at_once_one_is_kept(self, store: Store) -> None:
        theirs = [replace(DESK, since=number) for number in range(5)]
        assert sum(await asyncio.gather(*map(store.upstreams.add, theirs))) == 1

    async def test_the_eldest_is_listed_first(self, store: Store) -> None:
        for since, agent in enumerate(("b", "c", "a")):
            await store.upstreams.add(replace(DESK, agent=agent, since=since))
        assert [one.agent for one in await store.upstreams.list()] == ["b", "c", "a"]

    async def test_an_id_that_was_removed_is_free(self, store: Store) -> None:
        await store.upstreams.add(DESK)
        assert await store.upstreams.remove("desk")
        assert not await store.upstreams.remove("desk")
        assert await store.upstreams.list() == []
        assert await store.upstreams.add(DESK)
