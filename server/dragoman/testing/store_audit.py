"""The store's contract: the audit log.

A third-party store subclasses `StoreAudit` in its own tests, as it does `StoreWrites` and the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from dragoman.core.audit import Chain, Entry, Kept
from dragoman.core.erasing import Selection
from dragoman.ports import Store


def entry(at: int, principal: str = "alice", **about: str) -> Entry:
    return Entry(at, "task.created", "ok", {"agent": "echo", **about}, {"principal": principal, "task": f"t{at}"})


def check(kept: Iterable[Kept]) -> Chain:
    """Raises core.audit.Broken."""
    chain = Chain()
    for one in kept:
        chain.take(one)
    return chain


class StoreAudit:
    """Give a `store` fixture."""

    async def test_entries_come_back_as_they_were_given_each_bound_to_the_one_before(self, store: Store) -> None:
        odd = Entry(2, "operator.Purge", "ok", {"selection": 'é "\n\x00'}, {"principal": "ż\ud800", "peer": ""})
        await store.audit.add([entry(1), odd])
        await store.audit.add([entry(3)])
        found = await store.audit.read(0)
        assert [one.entry for one in found] == [entry(1), odd, entry(3)]
        assert [one.number for one in found] == [1, 2, 3]
        assert check(found).number == 3
        assert len({one.salt for one in found}) == 3

    async def test_an_export_goes_on_where_it_stopped(self, store: Store) -> None:
        await store.audit.add([entry(at) for at in range(1, 8)])
        assert [one.number for one in await store.audit.read(2, 3)] == [3, 4, 5]
        assert await store.audit.read(7) == []

    async def test_what_several_add_at_the_same_time_is_one_chain(self, store: Store) -> None:
        await asyncio.gather(*(store.audit.add([entry(at), entry(at)]) for at in range(1, 21)))
        assert check(await store.audit.read(0)).number == 40

    async def test_the_log_is_cut_at_its_beginning_and_never_empty(self, store: Store) -> None:
        await store.audit.add([entry(at) for at in (10, 20, 30, 25, 40)])
        assert await store.audit.cut(5) == 0
        assert await store.audit.cut(26) == 2
        found = await store.audit.read(0)
        assert [one.number for one in found] == [3, 4, 5]  # 4 is older, and behind one that is not
        assert await store.audit.cut(1000, limit=1) == 1
        assert await store.audit.cut(1000) == 1
        assert await store.audit.cut(1000) == 0
        await store.audit.add([entry(50)])
        found = await store.audit.read(0)
        assert [one.number for one in found] == [5, 6]
        check(found)

    async def test_an_empty_log_can_be_cut(self, store: Store) -> None:
        assert await store.audit.cut(1000) == 0
        assert await store.audit.read(0) == []

    async def test_who_is_erased_leaves_what_was_done_and_an_unbroken_chain(self, store: Store) -> None:
        await store.audit.add([entry(1), entry(2, "bob"), entry(3)])
        await store.erase(Selection(principal="alice", scope="default"))
        found = await store.audit.read(0)
        assert [one.erased for one in found] == [True, False, True]
        assert [dict(one.entry.who) for one in found] == [{}, {"principal": "bob", "task": "t2"}, {}]
        assert [one.entry.about for one in found] == [{"agent": "echo"}] * 3
        assert check(found).erased == 2

    async def test_who_is_erased_in_part_is_still_named(self, store: Store) -> None:
        await store.audit.add([entry(1)])
        await store.erase(Selection(principal="alice", scope="default", agent="echo"))
        assert not (await store.audit.read(0))[0].erased
