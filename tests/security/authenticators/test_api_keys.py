"""Authentication by API key: identity, cache, and the time of last use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from dragoman.core.access import caller_credentials
from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.errors import Unauthenticated, Unavailable
from dragoman.security.authenticators.api_keys import (
    API_KEY_CACHE_TTL,
    API_KEY_USE_INTERVAL_MS,
    MAX_CACHED_API_KEYS,
    ApiKeyAuthenticator,
)


def created_value(number: int = 0) -> tuple[str, ApiKey]:
    """A key's text, and its stored form."""
    id = caller_credentials.new_api_key_id(number.to_bytes(8, "little"))
    text = caller_credentials.format_api_key(id, number.to_bytes(32, "big"))
    grants = frozenset(("agent:echo",))
    return text, ApiKey(
        id=id, name="n", principal="alice", grants=grants, digest=caller_credentials.api_key_digest(text), created=0
    )


TEXT, KEY = created_value()


class Kept:
    """Keys in memory that count look-ups. Implements the part of `dragoman.ports.ApiKeys` that authentication uses."""

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
    """An authenticator with test clocks."""

    def __init__(self, *keys: ApiKey, max_cached: int = MAX_CACHED_API_KEYS) -> None:
        self.kept = Kept(*keys)
        self.now = 1_000_000
        self.seconds = 0.0
        self.check = ApiKeyAuthenticator(
            self.kept, clock=lambda: self.now, monotonic=lambda: self.seconds, max_cached=max_cached
        )

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


async def test_a_key_gives_its_principal_and_grants(world: World) -> None:
    identity = await world.check.identify(TEXT)
    assert identity is not None
    assert (identity.principal, identity.grants, identity.credential_id) == ("alice", KEY.grants, KEY.id)


async def test_texts_without_the_prefix_are_not_api_keys(world: World) -> None:
    assert await world.check.identify("eyJ.eyJ.x") is None
    assert world.kept.looks == 0


@pytest.mark.parametrize("text", [TEXT[:-1], TEXT + "a", TEXT[:20] + "z" + TEXT[21:], "dgm_", "dgm_x_y", TEXT.upper()])
async def test_truncated_and_mistyped_keys_are_rejected_without_a_query(world: World, text: str) -> None:
    if text.startswith("dgm_"):
        assert "truncated or mistyped" in (await world.refused(text)).message
    assert world.kept.looks == 0


async def test_errors_do_not_reveal_which_ids_exist(world: World) -> None:
    unknown, _ = created_value(7)
    forged = caller_credentials.format_api_key(KEY.id, b"f" * 32)
    unauthenticateds = [await world.refused(text) for text in (unknown, forged)]
    assert unauthenticateds[0].message == unauthenticateds[1].message == "this API key does not exist"
    assert unauthenticateds[1].log_details == {"key": KEY.id}


async def test_only_the_owner_of_a_key_learns_that_it_is_expired_or_revoked(world: World) -> None:
    world.kept.keys[KEY.id] = replace(KEY, expires=world.now)
    assert (await world.refused(TEXT)).message == "this API key has expired"
    assert (
        await world.refused(caller_credentials.format_api_key(KEY.id, b"f" * 32))
    ).message == "this API key does not exist"
    world.kept.keys[KEY.id] = replace(KEY, revoked=1)
    world.check.forget(KEY.id)
    assert (await world.refused(TEXT)).message == "this API key was revoked"


async def test_keys_are_cached_for_a_few_seconds(world: World) -> None:
    for _ in range(3):
        await world.check.identify(TEXT)
    assert world.kept.looks == 1
    world.seconds += API_KEY_CACHE_TTL
    await world.check.identify(TEXT)
    assert world.kept.looks == 2


async def test_a_key_revoked_by_another_process_is_valid_for_at_most_five_seconds(world: World) -> None:
    await world.check.identify(TEXT)
    world.kept.keys[KEY.id] = replace(KEY, revoked=world.now)
    world.seconds += 4.999
    await world.check.identify(TEXT)
    world.seconds = 5.0
    assert (await world.refused(TEXT)).message == "this API key was revoked"


async def test_a_key_revoked_by_this_process_is_rejected_at_once(world: World) -> None:
    await world.check.identify(TEXT)
    world.kept.keys[KEY.id] = replace(KEY, revoked=world.now)
    world.check.forget(KEY.id)
    assert (await world.refused(TEXT)).message == "this API key was revoked"


async def test_a_cached_key_expires(world: World) -> None:
    world.kept.keys[KEY.id] = replace(KEY, expires=world.now + 10)
    await world.check.identify(TEXT)
    world.now += 10
    assert (await world.refused(TEXT)).message == "this API key has expired"


async def test_a_rotated_secret_is_valid_during_its_grace_period(world: World) -> None:
    new = caller_credentials.format_api_key(KEY.id, b"n" * 32)
    rotated = replace(
        KEY, digest=caller_credentials.api_key_digest(new), former=KEY.digest, former_until=world.now + 10
    )
    await world.check.identify(TEXT)
    world.kept.keys[KEY.id] = rotated
    # The new key is not the cached one, and is looked up.
    assert await world.check.identify(new) == KEY.identity
    assert await world.check.identify(TEXT) == KEY.identity
    world.now += 10
    assert (await world.refused(TEXT)).message == "this API key does not exist"
    assert await world.check.identify(new) == KEY.identity


async def test_only_valid_keys_are_cached_up_to_a_maximum() -> None:
    every = [created_value(number) for number in range(5)]
    world = World(*(key for _, key in every), max_cached=3)
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


async def test_the_last_use_is_written_once_in_ten_minutes(world: World) -> None:
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


async def test_a_failed_write_of_the_last_use_does_not_fail_the_request(world: World) -> None:
    world.kept.failing = True
    assert await world.check.identify(TEXT) is not None
    await world.check.close()
    assert world.kept.touched == []


async def test_check_notices_a_changed_key(world: World) -> None:
    await world.check.check(KEY.id)
    world.kept.keys[KEY.id] = replace(KEY, revoked=1)
    with pytest.raises(Unauthenticated, match="was revoked"):
        await world.check.check(KEY.id)
    del world.kept.keys[KEY.id]
    with pytest.raises(Unauthenticated, match="was withdrawn"):
        await world.check.check(KEY.id)
