"""Key sets: fetched, cached, rotated, unavailable."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.security.token_issuer import AUDIENCE, URL, ec_key, ed_key, public_jwk, rsa_key

from dragoman.core.access.jwt_claims import Issuer
from dragoman.core.errors import Unauthenticated, Unavailable
from dragoman.ports import OutboundFailed, OutboundForbidden, OutboundHttp, OutboundResponse
from dragoman.security.authenticators import jwks
from dragoman.security.authenticators.jwks import JWKS_MAX_AGE, JWKS_MIN_FETCH_INTERVAL, JWKS_REFRESH_AGE, IssuerKeySet

DISCOVERY = f"{URL}/.well-known/openid-configuration"
JWKS = "https://keys.example.com/jwks"
ONE, TWO = public_jwk(rsa_key("one"), "one"), public_jwk(rsa_key("two"), "two")


class Web:
    """Documents or errors by URL. Counts fetches."""

    def __init__(self) -> None:
        self.pages: dict[str, Any] = {DISCOVERY: {"issuer": URL, "jwks_uri": JWKS}, JWKS: {"keys": [ONE]}}
        self.fetched: list[str] = []
        self.was_requested = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def get(self, url: str) -> bytes:
        self.fetched.append(url)
        self.was_requested.set()
        await self.gate.wait()
        page = self.pages[url]
        if isinstance(page, Exception):
            raise page
        return page if isinstance(page, bytes) else json.dumps(page).encode()


class World:
    def __init__(self, **issuer: Any) -> None:
        self.web = Web()
        self.seconds = 1000.0
        one = Issuer(url=URL, audience=(AUDIENCE,), **issuer)
        self.keys = IssuerKeySet(one, self.web.get, monotonic=lambda: self.seconds)

    def rotates(self) -> None:
        self.web.pages[JWKS] = {"keys": [TWO]}

    def is_down(self) -> None:
        self.web.pages[DISCOVERY] = Unavailable("down")

    async def settles(self) -> None:
        """Waits for fetches in the background."""
        if self.keys._fetch_task is not None:
            await self.keys._fetch_task


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.keys.close()


async def test_the_url_of_keys_comes_from_the_discovery_document(world: World) -> None:
    found = await world.keys.find("one", "RS256")
    assert found.key_id == "one"
    assert world.web.fetched == [DISCOVERY, JWKS]
    assert await world.keys.find("one", "RS256") is found
    assert (await world.keys.find("one", "PS256")).algorithm_name == "PS256"
    assert len(world.web.fetched) == 2


async def test_the_url_of_keys_can_be_set() -> None:
    world = World(jwks=JWKS)
    await world.keys.find("one", "RS256")
    assert world.web.fetched == [JWKS]


async def test_keys_can_be_in_a_file_that_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [ONE]}))
    world = World(jwks=str(path))
    await world.keys.find("one", "RS256")
    path.write_text(json.dumps({"keys": [TWO]}))
    world.seconds += JWKS_MIN_FETCH_INTERVAL
    await world.keys.find("two", "RS256")
    assert world.web.fetched == []


async def test_an_unknown_key_id_causes_one_fetch_and_is_rejected(world: World) -> None:
    await world.keys.find("one", "RS256")
    world.seconds += JWKS_MIN_FETCH_INTERVAL
    with pytest.raises(Unauthenticated, match="publishes no key") as caught:
        await world.keys.find("two", "RS256")
    assert caught.value.log_details == {"issuer": URL, "kid": "two"}
    assert len(world.web.fetched) == 4


async def test_the_first_token_with_a_new_key_causes_a_fetch(world: World) -> None:
    await world.keys.find("one", "RS256")
    world.rotates()
    world.seconds += JWKS_MIN_FETCH_INTERVAL
    assert (await world.keys.find("two", "RS256")).key_id == "two"
    with pytest.raises(Unauthenticated):
        await world.keys.find("one", "RS256")


async def test_unknown_key_ids_cause_a_fetch_at_most_every_ten_seconds(world: World) -> None:
    await world.keys.find("one", "RS256")
    for number in range(100):
        with pytest.raises(Unauthenticated):
            await world.keys.find(f"made up {number}", "RS256")
    assert len(world.web.fetched) == 2
    world.seconds += JWKS_MIN_FETCH_INTERVAL
    for number in range(100):
        with pytest.raises(Unauthenticated):
            await world.keys.find(f"made up {number}", "RS256")
    assert len(world.web.fetched) == 4


async def test_concurrent_callers_share_one_fetch(world: World) -> None:
    world.web.gate.clear()
    callers = [asyncio.create_task(world.keys.find("one", "RS256")) for _ in range(20)]
    await world.web.was_requested.wait()
    callers[0].cancel()
    world.web.gate.set()
    found = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert len({id(key) for key in found[1:]}) == 1
    assert world.web.fetched == [DISCOVERY, JWKS]


async def test_old_keys_are_used_during_a_refresh(world: World) -> None:
    await world.keys.find("one", "RS256")
    world.rotates()
    world.seconds += JWKS_REFRESH_AGE
    world.web.gate.clear()
    assert (await world.keys.find("one", "RS256")).key_id == "one"
    world.web.gate.set()
    await world.settles()
    assert (await world.keys.find("two", "RS256")).key_id == "two"


async def test_keys_of_an_unavailable_issuer_stay_valid_for_a_day(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.keys.find("one", "RS256")
    world.is_down()
    begun = world.seconds
    for hours in range(1, 24):
        world.seconds = begun + hours * 3600
        assert (await world.keys.find("one", "RS256")).key_id == "one"
        await world.settles()
    warnings = [line for line in caplog.records if line.levelno == logging.WARNING]
    assert len(warnings) == 1, "an outage is told once"
    world.seconds = begun + JWKS_MAX_AGE
    with pytest.raises(Unavailable, match="are unavailable"):
        await world.keys.find("one", "RS256")
    world.web.pages[DISCOVERY] = {"issuer": URL, "jwks_uri": JWKS}
    world.seconds += JWKS_MIN_FETCH_INTERVAL
    assert (await world.keys.find("one", "RS256")).key_id == "one"


async def test_without_keys_tokens_get_unavailable(world: World) -> None:
    world.is_down()
    for _ in range(3):
        with pytest.raises(Unavailable, match="are unavailable; try again"):
            await world.keys.find("one", "RS256")
    assert world.web.fetched == [DISCOVERY]
    world.web.pages[DISCOVERY] = {"issuer": URL, "jwks_uri": JWKS}
    world.seconds += JWKS_MIN_FETCH_INTERVAL
    assert (await world.keys.find("one", "RS256")).key_id == "one"


async def test_keys_are_fetched_before_the_first_token(world: World) -> None:
    await world.keys.fetch()
    assert world.web.fetched == [DISCOVERY, JWKS]
    await world.keys.find("one", "RS256")
    assert len(world.web.fetched) == 2


@pytest.mark.parametrize(
    ("page", "document"),
    [
        (DISCOVERY, {"issuer": URL + "/", "jwks_uri": JWKS}),
        (DISCOVERY, {"issuer": "https://evil.example", "jwks_uri": JWKS}),
        (DISCOVERY, {"issuer": URL, "jwks_uri": "http://keys.example.com/jwks"}),
        (DISCOVERY, {"issuer": URL, "jwks_uri": "file:///etc/passwd"}),
        (DISCOVERY, {"jwks_uri": JWKS}),
        (DISCOVERY, {"issuer": URL}),
        (DISCOVERY, {"issuer": URL, "jwks_uri": "/etc/passwd"}),
        (DISCOVERY, {"issuer": URL, "jwks_uri": ["https://x"]}),
        (DISCOVERY, b"<html>"),
        (DISCOVERY, []),
        (JWKS, {}),
        (JWKS, {"keys": {}}),
        (JWKS, b""),
        (JWKS, b'{"keys":[],"keys":[1]}'),
        (JWKS, Unavailable("down")),
        (JWKS, RuntimeError("a fault of ours")),
    ],
)
async def test_invalid_documents_are_ignored(world: World, page: str, document: Any) -> None:
    await world.keys.find("one", "RS256")
    world.web.pages[page] = document
    world.seconds += JWKS_MIN_FETCH_INTERVAL
    with pytest.raises(Unauthenticated):
        await world.keys.find("two", "RS256")
    assert (await world.keys.find("one", "RS256")).key_id == "one"


async def test_an_empty_key_set_is_accepted(world: World) -> None:
    await world.keys.find("one", "RS256")
    world.web.pages[JWKS] = {"keys": []}
    world.seconds += JWKS_REFRESH_AGE
    await world.keys.find("one", "RS256")
    await world.settles()
    with pytest.raises(Unauthenticated):
        await world.keys.find("one", "RS256")


SECRET = {"kty": "oct", "k": "c2VjcmV0", "kid": "one", "alg": "HS256"}


@pytest.mark.parametrize(
    ("keys", "kid", "algorithm", "found"),
    [
        ([ONE], "one", "RS256", True),
        ([ONE], None, "RS256", True),
        ([ONE, TWO], None, "RS256", False),
        ([ONE, public_jwk(ec_key("e"), "e")], None, "ES256", True),
        ([public_jwk(ed_key("d"), "d")], "d", "EdDSA", True),
        ([public_jwk(ec_key("e"), "e")], "e", "ES384", False),
        ([public_jwk(ec_key("e"), "e")], "e", "RS256", False),
        ([ONE], "one", "ES256", False),
        ([{**ONE, "alg": "PS256"}], "one", "RS256", False),
        ([{**ONE, "alg": "PS256"}], "one", "PS256", True),
        ([{**ONE, "use": "enc"}], "one", "RS256", False),
        ([{**ONE, "key_ops": ["sign"]}], "one", "RS256", False),
        ([{**ONE, "key_ops": ["verify"]}], "one", "RS256", True),
        ([{name: value for name, value in ONE.items() if name != "use"}], "one", "RS256", True),
        ([ONE, ONE], "one", "RS256", False),
        ([SECRET], "one", "HS256", False),
        ([SECRET], "one", "RS256", False),
        ([public_jwk(rsa_key("short", 1024), "short")], "short", "RS256", False),
        ([{"kty": "RSA", "kid": "one", "n": "AQAB"}], "one", "RS256", False),
        ([{"kty": "RSA", "kid": "one", "n": "!", "e": "AQAB"}], "one", "RS256", False),
        (["x", None, 5, ONE], "one", "RS256", True),
        ([{**ONE, "kid": 5}], "5", "RS256", False),
    ],
)
async def test_keys_are_used_only_for_their_algorithm_and_purpose(
    world: World, keys: list[Any], kid: str | None, algorithm: str, found: bool
) -> None:
    world.web.pages[JWKS] = {"keys": keys}
    if found:
        assert (await world.keys.find(kid, algorithm)).algorithm_name == algorithm
    else:
        with pytest.raises(Unauthenticated):
            await world.keys.find(kid, algorithm)


async def test_only_the_public_part_of_a_published_private_key_is_used(world: World) -> None:
    private = {**ONE, "d": "AQAB", "p": "AQAB", "q": "AQAB", "dp": "AQAB", "dq": "AQAB", "qi": "AQAB"}
    world.web.pages[JWKS] = {"keys": [private]}
    assert not hasattr((await world.keys.find("one", "RS256")).key, "sign")


async def test_at_most_a_hundred_keys_are_read(world: World) -> None:
    world.web.pages[JWKS] = {"keys": [{**ONE, "kid": str(number)} for number in range(101)]}
    await world.keys.find("99", "RS256")
    with pytest.raises(Unauthenticated):
        await world.keys.find("100", "RS256")


class FixedOutbound:
    """An outbound client that always has the same result."""

    def __init__(self, end: OutboundResponse | Exception) -> None:
        self.end = end

    def check_url(self, url: str) -> None: ...

    async def get(self, url: str, headers: Any = None) -> OutboundResponse:
        if isinstance(self.end, Exception):
            raise self.end
        return self.end

    async def post(self, url: str, body: bytes, headers: Any, *, may_send: Any = None) -> OutboundResponse:
        raise AssertionError

    async def close(self) -> None: ...


async def test_keys_are_fetched_through_the_outbound_client() -> None:
    outbound: OutboundHttp = FixedOutbound(OutboundResponse(200, {}, b"{}"))
    assert await jwks.outbound_fetcher(outbound)(JWKS) == b"{}"
    for end in (
        OutboundResponse(404, {}, b""),
        OutboundResponse(301, {"location": "x"}, b""),
        OutboundForbidden("private"),
        OutboundFailed("refused"),
    ):
        with pytest.raises(Unavailable, match=JWKS):
            await jwks.outbound_fetcher(FixedOutbound(end))(JWKS)
