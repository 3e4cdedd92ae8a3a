"""Sign-in of people: the exchange of a code, with a real OpenID provider."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from hashlib import sha256
from typing import Final, cast
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest
from tests.security.oidc_provider import Provider, provider
from tests.security.token_issuer import AUDIENCE

from dragoman.core.access.jwt_claims import Issuer
from dragoman.core.errors import InvalidParams, RateLimited, Unauthenticated, Unavailable
from dragoman.core.net.addresses import AddressPolicy
from dragoman.core.net.targets import OutboundPolicy
from dragoman.ports import OutboundHttp, OutboundResponse
from dragoman.ports.security import SignInProvider, SignInToken
from dragoman.security.console_sign_in import (
    DISCOVERY_MAX_AGE,
    EXCHANGE_BURST,
    EXCHANGE_INTERVAL,
    MAX_EXCHANGES_PER_ADDRESS,
    ConsoleSignIn,
)
from dragoman.security.outbound import OutboundClient

VERIFIER: Final = "v" * 43
REDIRECT_URI: Final = "http://127.0.0.1/console"


class SignInServer:
    """A server's sign-in at one issuer, on a clock of the test."""

    def __init__(self, issuer: Provider, outbound: OutboundClient) -> None:
        self.issuer = issuer
        self.now = 0.0
        known = Issuer(url=issuer.url, audience=(AUDIENCE,), alias="corp", console_client="console")
        other = Issuer(url="https://other.example", audience=("me",), alias="other")
        self.sign_in = ConsoleSignIn([known, other], outbound, clock=lambda: self.now)

    async def code(self) -> str:
        """A code that the issuer has sent to the console."""
        challenge = urlsafe_b64encode(sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": "console",
            "redirect_uri": REDIRECT_URI,
            "scope": "openid",
            "state": "s",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        url = f"{self.issuer.url}/authorization?{urlencode(query)}"
        async with aiohttp.ClientSession() as http, http.get(url, allow_redirects=False) as response:
            return parse_qs(urlsplit(response.headers["Location"]).query)["code"][0]


@pytest.fixture
async def server() -> AsyncIterator[SignInServer]:
    async with provider() as issuer:
        outbound = OutboundClient(OutboundPolicy(AddressPolicy(loopback=True)))
        yield SignInServer(issuer, outbound)
        await outbound.close()


async def test_only_issuers_with_a_client_for_the_console_are_offered(server: SignInServer) -> None:
    url = server.issuer.url
    assert await server.sign_in.providers() == [
        SignInProvider(url, "corp", f"{url}/authorization", "console", "openid")
    ]


async def test_an_issuer_that_is_down_is_not_offered(server: SignInServer) -> None:
    server.issuer.up = False
    assert await server.sign_in.providers() == []
    server.issuer.up = True
    assert len(await server.sign_in.providers()) == 1


async def test_the_discovery_document_is_read_again_after_a_while(server: SignInServer) -> None:
    for now, reads in ((0.0, 1), (DISCOVERY_MAX_AGE - 1, 1), (DISCOVERY_MAX_AGE, 2)):
        server.now = now
        await server.sign_in.providers()
        assert server.issuer.requests.count("/.well-known/openid-configuration") == reads


async def test_a_code_is_exchanged_once(server: SignInServer) -> None:
    code = await server.code()
    found = await server.sign_in.exchange(server.issuer.url, code, VERIFIER, REDIRECT_URI, address="192.0.2.1")
    assert (found.token.count("."), found.expires_in) == (2, 300)
    with pytest.raises(Unauthenticated, match="the issuer refused the sign-in: The code is used"):
        await server.sign_in.exchange(server.issuer.url, code, VERIFIER, REDIRECT_URI, address="192.0.2.1")


async def test_a_code_without_its_verifier_is_refused(server: SignInServer) -> None:
    with pytest.raises(Unauthenticated):
        await server.sign_in.exchange(
            server.issuer.url, await server.code(), "w" * 43, REDIRECT_URI, address="192.0.2.1"
        )


@pytest.mark.parametrize(
    ("issuer", "code", "field"),
    [("https://other.example", "c", "issuer"), ("", "c", "issuer"), (None, "", "code"), (None, "c" * 5000, "code")],
)
async def test_invalid_fields_are_named_and_reach_no_issuer(
    server: SignInServer, issuer: str | None, code: str, field: str
) -> None:
    with pytest.raises(InvalidParams, match=f"^{field}: "):
        await server.sign_in.exchange(
            server.issuer.url if issuer is None else issuer, code, VERIFIER, REDIRECT_URI, address="192.0.2.1"
        )
    assert server.issuer.requests == []


async def test_an_issuer_that_is_down_is_unavailable(server: SignInServer) -> None:
    server.issuer.up = False
    with pytest.raises(Unavailable):
        await server.sign_in.exchange(server.issuer.url, "c", VERIFIER, REDIRECT_URI, address="192.0.2.1")


class SlowIssuer:
    """Answers exchanges when it is told to. Implements `dragoman.ports.OutboundHttp` as far as an exchange needs it."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.exchanges = 0
        self.endpoints = {"authorization_endpoint": f"{ISSUER}/a", "token_endpoint": f"{ISSUER}/t"}

    async def get(self, url: str, headers: Mapping[str, str]) -> OutboundResponse:
        return OutboundResponse(200, {}, json.dumps({"issuer": ISSUER, **self.endpoints}).encode())

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> OutboundResponse:
        self.exchanges += 1
        await self.answers.wait()
        return OutboundResponse(200, {}, json.dumps({"access_token": "a.b.c"}).encode())


ISSUER: Final = "https://login.example"


def sign_in_at(issuer: SlowIssuer, clock: Callable[[], float] = lambda: 0.0) -> ConsoleSignIn:
    known = Issuer(url=ISSUER, audience=(AUDIENCE,), console_client="console")
    return ConsoleSignIn([known], cast("OutboundHttp", issuer), clock=clock)


async def test_slow_exchanges_of_one_address_keep_nobody_else_out() -> None:
    issuer = SlowIssuer()
    sign_in = sign_in_at(issuer)

    def exchange(address: str) -> asyncio.Task[SignInToken]:
        return asyncio.create_task(sign_in.exchange(ISSUER, "c", VERIFIER, REDIRECT_URI, address=address))

    flood = [exchange("192.0.2.1") for _ in range(20)]
    refused, held = await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
    for task in refused:
        assert isinstance(task.exception(), RateLimited)
    others = [exchange(f"192.0.2.{number}") for number in range(2, 40)]  # more than run at a time: they wait
    issuer.answers.set()
    assert [(await task).token for task in others] == ["a.b.c"] * 38
    await asyncio.wait(flood)
    assert sum(task.exception() is None for task in flood) == MAX_EXCHANGES_PER_ADDRESS
    assert len(held) == MAX_EXCHANGES_PER_ADDRESS


async def test_exchanges_of_one_address_have_a_rate() -> None:
    issuer, now = SlowIssuer(), 0.0
    issuer.answers.set()
    sign_in = sign_in_at(issuer, lambda: now)

    async def exchange(address: str = "192.0.2.1") -> None:
        await sign_in.exchange(ISSUER, "c", VERIFIER, REDIRECT_URI, address=address)

    for _ in range(EXCHANGE_BURST):
        await exchange()
    with pytest.raises(RateLimited) as limited:
        await exchange()
    assert 0 < limited.value.retry_after <= EXCHANGE_INTERVAL
    await exchange("192.0.2.2")
    now += EXCHANGE_INTERVAL
    await exchange()
    assert issuer.exchanges == EXCHANGE_BURST + 2


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint"])
@pytest.mark.parametrize("url", ["", "http://login.example/t", "ftp://login.example/t", "/t"])
async def test_endpoints_of_an_issuer_are_encrypted(name: str, url: str) -> None:
    """A code sent in plain text could be used by others."""
    issuer = SlowIssuer()
    issuer.endpoints[name] = url
    with pytest.raises(Unavailable, match=f"{name}: .* must be https://"):
        await sign_in_at(issuer).exchange(ISSUER, "c", VERIFIER, REDIRECT_URI, address="192.0.2.1")
    assert issuer.exchanges == 0
