"""API keys as callers show them: who they are, for how long that is remembered, and what is noted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from dragoman.core.access import caller_credentials
from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.errors import Unauthenticated, Unavailable
from dragoman.security.authenticators import api_keys as checking
from dragoman.security.authenticators.api_keys import (
    API_KEY_CACHE_TTL,
    API_KEY_USE_INTERVAL_MS,
    MAX_CACHED_API_KEYS,
    ApiKeyAuthenticator,
)


def created_value(number: int = 0) -> tuple[str, ApiKey]:
    """A key's text, and what is kept of it."""
    id = caller_credentials.new_api_key_id(number.to_bytes(8, "little"))
    text = caller_credentials.format_api_key(id, number.to_bytes(32, "big"))
    grants = frozenset(("agent:echo",))
    return text, ApiKey(
        id=id, name="n", principal="alice", grants=grants, digest=caller_credentials.api_key_digest(text), created=0
    )


TEXT, KEY = created_value()


class Kept:
    """Keys in memory, and how often they were looked at. Implements `dragoman.ports.ApiKeys` as far as callers do."""

    def __init__(self, *keys: ApiKey) -> None:
        self.keys = {key.id: key for key in keys}
        self.looks = 0
        self.touched: list[tuple[str, int]] = []
        self.failing = False

    async def find(self, id: str) -> ApiKey | None:
        self.looks += 1
        return self.keys.get(id)

    async def touch(self, id: str, *, now: int) -> None:
        if self.failing:
            raise Unavailable
        self.touched.append((id, now))
        self.keys[id] = replace(self.keys[id], used=now)

    async def add(self, key: ApiKey) -> None: ...

    async def list(self) -> list[ApiKey]:
        return []

    async def rotate(
        self, id: str, digest: bytes, *, now: int, until: int, expires: int | None = None
    ) -> ApiKey | None: ...

    async def revoke(self, id: str, *, now: int) -> ApiKey | None: ...


class World:
    """A check with clocks of our own."""

    def __init__(self, *keys: ApiKey) -> None:
        self.kept = Kept(*keys)
        self.now = 1_000_000
        self.seconds = 0.0
        self.check = ApiKeyAuthenticator(self.kept, clock=lambda: self.now, monotonic=lambda: self.seconds)

    async def refused(self, text: str) -> Unauthenticated:
        with pytest.raises(Unauthenticated) as caught:
            await self.check.identify(text)
        assert caught.value.error == "invalid_token"
        assert text not in str(caught.value) + str(caught.value.log_details)
        return caught.value


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(KEY)
    yield world
    await world.check.close()


async def test_a_key_names_its_principal_and_what_it_allows(world: World) -> None:
    identity = await world.check.identify(TEXT)
    assert identity is not None
    assert (identity.principal, identity.grants, identity.credential_id) == ("alice", KEY.grants, KEY.id)


async def test_what_does_not_begin_like_a_key_is_for_others_to_judge(world: World) -> None:
    assert await world.check.identify("eyJ.eyJ.x") is None
    assert world.kept.looks == 0


@pytest.mark.parametrize("text", [TEXT[:-1], TEXT + "a", TEXT[:20] + "z" + TEXT[21:], "dgm_", "dgm_x_y", TEXT.upper()])
async def test_a_key_that_is_cut_or_mistyped_is_refused_without_a_look(world: World, text: str) -> None:
    if text.startswith("dgm_"):
        assert "truncated or mistyped" in (await world.refused(text)).message
    assert world.kept.looks == 0


async def test_a_stranger_learns_nothing_of_which_ids_there_are(world: World) -> None:
    unknown, _ = created_value(7)
    forged = caller_credentials.format_api_key(KEY.id, b"f" * 32)
    unauthenticateds = [await world.refused(text) for text in (unknown, forged)]
    assert unauthenticateds[0].message == unauthenticateds[1].message == "this API key does not exist"
    assert unauthenticateds[1].log_details == {"key": KEY.id}


async def test_a_key_that_is_over_says_so_to_who_has_it_and_to_nobody_else(world: World) -> None:
    world.kept.keys[KEY.id] = replace(KEY, expires=world.now)
    assert (await world.refused(TEXT)).message == "this API key has expired"
    assert (
        await world.refused(caller_credentials.format_api_key(KEY.id, b"f" * 32))
    ).message == "this API key does not exist"
    world.kept.keys[KEY.id] = replace(KEY, revoked=1)
    world.check.forget(KEY.id)
    assert (await world.refused(TEXT)).message == "this API key was revoked"


async def test_a_key_is_looked_up_once_in_a_few_seconds(world: World) -> None:
    for _ in range(3):
        await world.check.identify(TEXT)
    assert world.kept.looks == 1
    world.seconds += API_KEY_CACHE_TTL
    await world.check.identify(TEXT)
    assert world.kept.looks == 2


async def test_a_key_that_was_revoked_elsewhere_is_good_for_five_seconds_at_most(world: World) -> None:
    await world.check.identify(TEXT)
    world.kept.keys[KEY.id] = replace(KEY, revoked=world.now)
    world.seconds += 4.999
    await world.check.identify(TEXT)
    world.seconds = 5.0
    assert (await world.refused(TEXT)).message == "this API key was revoked"


async def test_a_key_that_was_revoked_here_is_refused_at_once(world: World) -> None:
    await world.check.identify(TEXT)
    world.kept.keys[KEY.id] = replace(KEY, revoked=world.now)
    world.check.forget(KEY.id)
    assert (await world.refused(TEXT)).message == "this API key was revoked"


async def test_an_end_that_comes_while_a_key_is_remembered_counts(world: World) -> None:
    world.kept.keys[KEY.id] = replace(KEY, expires=world.now + 10)
    await world.check.identify(TEXT)
    world.now += 10
    assert (await world.refused(TEXT)).message == "this API key has expired"


async def test_a_secret_that_was_rotated_is_good_while_its_grace_lasts(world: World) -> None:
    new = caller_credentials.format_api_key(KEY.id, b"n" * 32)
    rotated = replace(
        KEY, digest=caller_credentials.api_key_digest(new), former=KEY.digest, former_until=world.now + 10
    )
    await world.check.identify(TEXT)
    world.kept.keys[KEY.id] = rotated
    # The new one is not the one remembered, and is looked up.
    assert await world.check.identify(new) == KEY.identity
    assert await world.check.identify(TEXT) == KEY.identity
    world.now += 10
    assert (await world.refused(TEXT)).message == "this API key does not exist"
    assert await world.check.identify(new) == KEY.identity


async def test_only_good_keys_are_remembered_and_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "MAX_CACHED_API_KEYS", 3)
    every = [created_value(number) for number in range(5)]
    world = World(*(key for _, key in every))
    for text, _ in every:
        await world.check.identify(text)
    looks = world.kept.looks
    for number in range(100, 120):
        await world.refused(created_value(number)[0])
    for text, _ in every[2:]:
        await world.check.identify(text)
    assert world.kept.looks == looks + 20
    await world.check.identify(every[0][0])
    assert world.kept.looks == looks + 21
    assert MAX_CACHED_API_KEYS == 1024
    await world.check.close()


async def test_a_use_is_noted_once_in_ten_minutes_however_often_a_key_is_shown(world: World) -> None:
    for _ in range(5):
        await world.check.identify(TEXT)
        world.seconds += API_KEY_CACHE_TTL
    await world.check.close()
    assert world.kept.touched == [(KEY.id, world.now)]
    world.now += API_KEY_USE_INTERVAL_MS
    world.seconds += API_KEY_CACHE_TTL
    await asyncio.gather(*(world.check.identify(TEXT) for _ in range(3)))
    await world.check.close()
    assert [now for _, now in world.kept.touched] == [world.now - API_KEY_USE_INTERVAL_MS, world.now]


async def test_a_store_that_cannot_note_a_use_stops_nobody(world: World) -> None:
    world.kept.failing = True
    assert await world.check.identify(TEXT) is not None
    await world.check.close()
    assert world.kept.touched == []


async def test_a_second_look_sees_what_became_of_a_key(world: World) -> None:
    await world.check.check(KEY.id)
    world.kept.keys[KEY.id] = replace(KEY, revoked=1)
    with pytest.raises(Unauthenticated, match="was revoked"):
        await world.check.check(KEY.id)
    del world.kept.keys[KEY.id]
    with pytest.raises(Unauthenticated, match="was withdrawn"):
        await world.check.check(KEY.id)
