"""Key sets as they are fetched, remembered, rotated, and not to be had."""

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
    """What is to be had at which address: a document, or why not. Counts what was fetched."""

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
        """Waits for what is fetched in the background."""
        if self.keys._fetch_task is not None:
            await self.keys._fetch_task


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.keys.close()


async def test_keys_are_where_the_discovery_document_says(world: World) -> None:
    found = await world.keys.find("one", "RS256")
    assert found.key_id == "one"
    assert world.web.fetched == [DISCOVERY, JWKS]
    assert await world.keys.find("one", "RS256") is found
    assert (await world.keys.find("one", "PS256")).algorithm_name == "PS256"
    assert len(world.web.fetched) == 2


async def test_keys_may_be_at_an_address_that_is_given() -> None:
    world = World(jwks=JWKS)
    await world.keys.find("one", "RS256")
    assert world.web.fetched == [JWKS]


async def test_keys_may_be_in_a_file_that_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [ONE]}))
    world = World(jwks=str(path))
    await world.keys.find("one", "RS256")
    path.write_text(json.dumps({"keys": [TWO]}))
    world.seconds += JWKS_MIN_FETCH_INTERVAL
    await world.keys.find("two", "RS256")
    assert world.web.fetched == []


async def test_a_key_that_is_not_there_is_looked_for_once_more_and_then_refused(world: World) -> None:
    await world.keys.find("one", "RS256")
    world.seconds += JWKS_MIN_FETCH_INTERVAL
    with pytest.raises(Unauthenticated, match="publishes no key") as caught:
        await world.keys.find("two", "RS256")
    assert caught.value.log_details == {"issuer": URL, "kid": "two"}
    assert len(world.web.fetched) == 4


async def test_a_rotation_is_seen_by_the_first_token_that_is_signed_with_the_new_key(world: World) -> None:
    await world.keys.find("one", "RS256")
    world.rotates()
    world.seconds += JWKS_MIN_FETCH_INTERVAL
    assert (await world.keys.find("two", "RS256")).key_id == "two"
    with pytest.raises(Unauthenticated):
        await world.keys.find("one", "RS256")


async def test_strangers_cannot_make_us_fetch_more_often_than_every_ten_seconds(world: World) -> None:
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


async def test_many_callers_at_once_wait_for_one_fetch(world: World) -> None:
    world.web.gate.clear()
    callers = [asyncio.create_task(world.keys.find("one", "RS256")) for _ in range(20)]
    await world.web.was_requested.wait()
    callers[0].cancel()
    world.web.gate.set()
    found = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert len({id(key) for key in found[1:]}) == 1
    assert world.web.fetched == [DISCOVERY, JWKS]


async def test_old_keys_are_used_while_they_are_fetched_again(world: World) -> None:
    await world.keys.find("one", "RS256")
    world.rotates()
    world.seconds += JWKS_REFRESH_AGE
    world.web.gate.clear()
    assert (await world.keys.find("one", "RS256")).key_id == "one"
    world.web.gate.set()
    await world.settles()
    assert (await world.keys.find("two", "RS256")).key_id == "two"


async def test_while_an_issuer_is_down_its_keys_stay_good_for_a_day(
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


async def test_without_any_keys_nobody_is_judged(world: World) -> None:
    world.is_down()
    for _ in range(3):
        with pytest.raises(Unavailable, match="are unavailable; try again"):
            await world.keys.find("one", "RS256")
    assert world.web.fetched == [DISCOVERY]
    world.web.pages[DISCOVERY] = {"issuer": URL, "jwks_uri": JWKS}
    world.seconds += JWKS_MIN_FETCH_INTERVAL
    assert (await world.keys.find("one", "RS256")).key_id == "one"


async def test_keys_are_there_before_the_first_token_comes(world: World) -> None:
    await world.keys.prefetch()
    assert world.web.fetched == [DISCOVERY, JWKS]
    await world.keys.find("one", "RS256")
    assert len(world.web.fetched) == 2


@pytest.mark.parametrize(
    ("page", "document"),
    [
        (DISCOVERY, {"issuer": URL + "/", "jwks_uri": JWKS}),
        (DISCOVERY, {"issuer": "https://evil.example", "jwks_uri": JWKS}),
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
async def test_a_document_that_cannot_be_trusted_changes_nothing(world: World, page: str, document: Any) -> None:
    await world.keys.find("one", "RS256")
    world.web.pages[page] = document
    world.seconds += JWKS_MIN_FETCH_INTERVAL
    with pytest.raises(Unauthenticated):
        await world.keys.find("two", "RS256")
    assert (await world.keys.find("one", "RS256")).key_id == "one"


async def test_an_issuer_that_shows_no_keys_any_more_is_believed(world: World) -> None:
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
async def test_a_key_is_used_for_what_it_is_for(
    world: World, keys: list[Any], kid: str | None, algorithm: str, found: bool
) -> None:
    world.web.pages[JWKS] = {"keys": keys}
    if found:
        assert (await world.keys.find(kid, algorithm)).algorithm_name == algorithm
    else:
        with pytest.raises(Unauthenticated):
            await world.keys.find(kid, algorithm)


async def test_a_private_key_that_an_issuer_shows_by_mistake_is_used_as_a_public_one(world: World) -> None:
    private = {**ONE, "d": "AQAB", "p": "AQAB", "q": "AQAB", "dp": "AQAB", "dq": "AQAB", "qi": "AQAB"}
    world.web.pages[JWKS] = {"keys": [private]}
    assert not hasattr((await world.keys.find("one", "RS256")).key, "sign")


async def test_no_more_than_a_hundred_keys_are_looked_at(world: World) -> None:
    world.web.pages[JWKS] = {"keys": [{**ONE, "kid": str(number)} for number in range(101)]}
    await world.keys.find("99", "RS256")
    with pytest.raises(Unauthenticated):
        await world.keys.find("100", "RS256")


class FixedOutbound:
    """A way out that always ends the same."""

    def __init__(self, end: OutboundResponse | Exception) -> None:
        self.end = end

    def check_url(self, url: str) -> None: ...

    async def get(self, url: str, headers: Any = None) -> OutboundResponse:
        if isinstance(self.end, Exception):
            raise self.end
        return self.end

    async def post(self, url: str, body: bytes, headers: Any) -> OutboundResponse:
        raise AssertionError

    async def close(self) -> None: ...


async def test_the_one_way_out_is_taken() -> None:
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
    with pytest.raises(Unavailable, match="makes no outbound requests"):
        await jwks.no_fetcher(JWKS)
