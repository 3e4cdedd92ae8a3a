"""The store's contract: API keys.

A third-party store subclasses `StoreApiKeys` in its own tests, as it does `StoreWrites` and the others.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dragoman.core.apikeys import ApiKey
from dragoman.core.erasing import Selection
from dragoman.ports import Store

KEY = ApiKey(
    id="aaaaaaaaaaaa",
    name="nightly report",
    principal="alice@example.com",
    grants=frozenset(("operator", "agent:echo", "scope:projects/p/any thing")),
    digest=b"1" * 32,
    created=1_000,
    expires=9_000,
)


class StoreApiKeys:
    """Give a `store` fixture."""

    async def test_a_key_comes_back_as_it_was_given(self, store: Store) -> None:
        await store.api_keys.add(KEY)
        assert await store.api_keys.find(KEY.id) == KEY
        assert await store.api_keys.find("bbbbbbbbbbbb") is None

    async def test_an_id_is_given_once(self, store: Store) -> None:
        await store.api_keys.add(KEY)
        with pytest.raises(ValueError, match=KEY.id):
            await store.api_keys.add(replace(KEY, name="other"))
        assert await store.api_keys.list() == [KEY]

    async def test_keys_are_listed_the_newest_first(self, store: Store) -> None:
        keys = [replace(KEY, id=f"{letter * 12}", created=at) for letter, at in (("b", 2), ("c", 3), ("a", 1))]
        await asyncio.gather(*map(store.api_keys.add, keys))
        assert [key.id[0] for key in await store.api_keys.list()] == ["c", "b", "a"]

    async def test_a_rotation_keeps_the_secret_of_before_and_no_earlier_one(self, store: Store) -> None:
        await store.api_keys.add(KEY)
        await store.api_keys.rotate(KEY.id, b"2" * 32, now=2_000, until=3_000)
        last = await store.api_keys.rotate(KEY.id, b"3" * 32, now=2_500, until=3_500)
        assert last == replace(KEY, digest=b"3" * 32, former=b"2" * 32, former_until=3_500, rotated=2_500)
        assert await store.api_keys.find(KEY.id) == last

    async def test_a_rotation_may_set_the_end_anew(self, store: Store) -> None:
        await store.api_keys.add(KEY)
        for expires in (20_000, 0):
            rotated = await store.api_keys.rotate(KEY.id, b"2" * 32, now=2_000, until=2_000, expires=expires)
            assert rotated is not None
            assert rotated.expires == expires

    async def test_a_revoked_key_stays_revoked_as_it_was_first(self, store: Store) -> None:
        await store.api_keys.add(KEY)
        revoked = await store.api_keys.revoke(KEY.id, now=5_000)
        assert revoked == replace(KEY, revoked=5_000)
        assert await store.api_keys.revoke(KEY.id, now=6_000) == revoked
        assert await store.api_keys.rotate(KEY.id, b"2" * 32, now=6_000, until=6_000) is None
        assert await store.api_keys.find(KEY.id) == revoked

    async def test_what_is_not_there_is_neither_rotated_nor_revoked(self, store: Store) -> None:
        assert await store.api_keys.rotate(KEY.id, b"2" * 32, now=1, until=1) is None
        assert await store.api_keys.revoke(KEY.id, now=1) is None
        assert await store.api_keys.list() == []

    async def test_the_last_use_never_goes_back(self, store: Store) -> None:
        await store.api_keys.add(KEY)
        for now in (4_000, 3_000):
            await store.api_keys.touch(KEY.id, now=now)
        assert await store.api_keys.find(KEY.id) == replace(KEY, used=4_000)
        await store.api_keys.touch("bbbbbbbbbbbb", now=1)
        assert await store.api_keys.list() == [replace(KEY, used=4_000)]

    async def test_revoked_keys_go_when_nothing_of_their_principal_is_to_stay(self, store: Store) -> None:
        others = replace(KEY, id="cccccccccccc", principal="bob")
        for key in (KEY, replace(KEY, id="bbbbbbbbbbbb"), others):
            await store.api_keys.add(key)
        for id in ("bbbbbbbbbbbb", others.id):
            await store.api_keys.revoke(id, now=5_000)
        await store.erase(Selection(principal=KEY.principal, older=1))
        assert len(await store.api_keys.list()) == 3
        await store.erase(Selection(principal=KEY.principal))
        assert {key.id for key in await store.api_keys.list()} == {KEY.id, others.id}
