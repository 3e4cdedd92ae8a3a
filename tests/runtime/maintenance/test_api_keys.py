"""API keys: creation, rotation and revocation by operators."""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.core.access import caller_credentials
from dragoman.core.errors import InvalidParams, KeyNotFound
from dragoman.runtime.maintenance.api_keys import ApiKeyService
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.testing.fixtures import Clock

DAY = 86_400_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    store = open_store(tmp_path / "tasks.db", clock=clock)
    yield store
    await store.close()


@pytest.fixture
def changed() -> list[str]:
    return []


@pytest.fixture
def api_keys(store: SqliteStore, clock: Clock, changed: list[str]) -> ApiKeyService:
    numbers = itertools.count(1)
    return ApiKeyService(
        store.api_keys,
        clock=clock,
        random_bytes=lambda size: next(numbers).to_bytes(size, "little"),
        on_change=changed.append,
    )


async def test_a_new_key_is_stored_as_a_digest_and_returned_once(
    api_keys: ApiKeyService, store: SqliteStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key, text = await api_keys.create("nightly", grants=["agent:echo"], lifetime=DAY)
    shown = caller_credentials.parse_api_key(text)
    assert shown is not None
    assert shown.id == key.id
    assert key.matches(shown.digest, key.created)
    assert (key.name, key.principal, sorted(key.grants)) == ("nightly", "nightly", ["agent:echo"])
    assert key.expires == key.created + DAY
    assert await api_keys.list() == [key]
    secret = text.rpartition("_")[2]
    assert [line.__dict__["key"] for line in caplog.records if line.name == "dragoman.security"] == [key.id]
    assert not any(secret in str(line.__dict__) for line in caplog.records)
    await store.close()
    assert not any(secret.encode() in path.read_bytes() for path in tmp_path.iterdir())


async def test_a_principal_may_have_several_keys(api_keys: ApiKeyService) -> None:
    first, _ = await api_keys.create("laptop", principal="alice")
    second, _ = await api_keys.create("server", principal="alice")
    assert first.id != second.id
    assert {key.principal for key in await api_keys.list()} == {"alice"}


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": " x"}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "anonymous"}, "name"),
        ({"name": "x", "principal": "anonymous"}, "principal"),
        ({"name": "x", "grants": ["root"]}, "grants"),
        ({"name": "x", "lifetime": -1}, "lifetime"),
        ({"name": "x", "lifetime": 10**13}, "lifetime"),
    ],
)
async def test_invalid_arguments_are_rejected_by_name_and_create_no_key(
    api_keys: ApiKeyService, arguments: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidParams) as caught:
        await api_keys.create(**arguments)  # type: ignore[arg-type]
    assert caught.value.violations[0].field == field
    assert await api_keys.list(all=True) == []


async def test_a_rotated_key_accepts_the_old_secret_for_its_grace_period(
    api_keys: ApiKeyService, clock: Clock, changed: list[str]
) -> None:
    key, old = await api_keys.create("n", lifetime=10 * DAY)
    rotated, new = await api_keys.rotate(key.id, grace=DAY)
    assert rotated.id == key.id
    assert rotated.expires == key.expires
    for text, later, good in ((old, DAY - 1, True), (old, DAY, False), (new, DAY, True)):
        assert rotated.matches(caller_credentials.api_key_digest(text), clock.now + later) is good
    assert changed == [key.id]


async def test_a_rotation_may_extend_a_key(api_keys: ApiKeyService, clock: Clock) -> None:
    key, _ = await api_keys.create("n", lifetime=DAY)
    clock.now += DAY
    with pytest.raises(InvalidParams, match="has expired; give it a lifetime"):
        await api_keys.rotate(key.id)
    rotated, _ = await api_keys.rotate(key.id, lifetime=DAY)
    assert rotated.expires == clock.now + DAY
    assert (await api_keys.rotate(key.id, lifetime=0))[0].expires == 0


async def test_a_revoked_key_is_neither_listed_nor_rotated(api_keys: ApiKeyService, changed: list[str]) -> None:
    key, _ = await api_keys.create("n")
    revoked = await api_keys.revoke(key.id)
    assert revoked.revoked
    assert await api_keys.revoke(key.id) == revoked
    assert await api_keys.list() == []
    assert await api_keys.list(all=True) == [revoked]
    with pytest.raises(InvalidParams, match="was revoked; create another one"):
        await api_keys.rotate(key.id, lifetime=DAY)
    assert changed == [key.id, key.id]


async def test_an_unknown_key_is_named_but_never_a_pasted_one(api_keys: ApiKeyService) -> None:
    for verb in (api_keys.rotate, api_keys.revoke):
        with pytest.raises(KeyNotFound, match='no key "aaaaaaaaaaaa"'):
            await verb("aaaaaaaaaaaa")
        with pytest.raises(KeyNotFound) as caught:
            await verb("dgm_aaaaaaaaaaaa_secret")
        assert "secret" not in str(caught.value)
