"""Tokens of a real OpenID provider: discovery, rotation, and a provider that is down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.security.endpoints import ENDPOINTS, Headers, over_http
from tests.security.oidc_provider import Provider, provider
from tests.security.token_issuer import AUDIENCE, claims, public_jwk, rsa_key, token

from dragoman import Turn, agent
from dragoman.security.authenticators import jwks
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import App, open_app

Open = Callable[..., AbstractAsyncContextManager[App]]


@agent(default=True)
async def echo(turn: Turn) -> str:
    return turn.principal


@pytest.fixture
async def issuer() -> AsyncIterator[Provider]:
    async with provider() as one:
        yield one


@pytest.fixture
def opened(tmp_path: Path, issuer: Provider) -> Open:
    """Opens a server that trusts the provider."""

    @asynccontextmanager
    async def open_it(**more: Any) -> AsyncIterator[App]:
        settings = Settings(
            http=Address("127.0.0.1", 0),
            grpc=Address("127.0.0.1", 0),
            store=f"sqlite:///{tmp_path}/tasks.db",
            issuers=[{"url": issuer.url, "audience": AUDIENCE, **more}],
            outbound_allow="127.0.0.1",
        )
        async with open_app(settings, [echo]) as app:
            yield app

    return open_it


def signed(issuer: Provider, name: str = "one", **changes: Any) -> Headers:
    text = token(claims(iss=issuer.url, **changes), key=rsa_key(name), kid=name)
    return [("Authorization", f"Bearer {text}")]


async def answer(app: App, headers: Headers) -> tuple[int, str]:
    """The status of a send, and the principal that the agent saw."""
    response = await ENDPOINTS["REST 1.0"](app, headers)
    if response.status != 200:
        return response.status, ""
    return 200, response.body["task"]["artifacts"][0]["parts"][0]["text"]


@pytest.mark.parametrize("transport", ["gRPC 1.0", "REST 1.0", "JSON-RPC 0.3", "WebSocket"])
async def test_a_token_of_the_provider_is_accepted(opened: Open, issuer: Provider, transport: str) -> None:
    async with opened() as app:
        assert (await ENDPOINTS[transport](app, signed(issuer))).status == 200
        assert await answer(app, signed(issuer, sub="bob")) == (200, "bob")
    assert sorted(issuer.requests) == ["/.well-known/openid-configuration", "/jwks"]


async def test_a_rotation_needs_no_restart(opened: Open, issuer: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "JWKS_MIN_FETCH_INTERVAL", 0)
    async with opened() as app:
        assert await answer(app, signed(issuer)) == (200, "alice")
        issuer.keys = [public_jwk(rsa_key("two"), "two")]
        assert await answer(app, signed(issuer, "two")) == (200, "alice")
        assert (await answer(app, signed(issuer)))[0] == 401, "its key was withdrawn"


async def test_tokens_stay_valid_while_the_provider_is_down(
    opened: Open, issuer: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "JWKS_MIN_FETCH_INTERVAL", 0)
    monkeypatch.setattr(jwks, "JWKS_REFRESH_AGE", 0)
    async with opened() as app:
        assert await answer(app, signed(issuer)) == (200, "alice")
        issuer.up = False
        for _ in range(3):
            assert await answer(app, signed(issuer)) == (200, "alice")
        assert (await answer(app, signed(issuer, "two")))[0] == 401


async def test_a_server_starts_without_the_provider_and_answers_unavailable_until_it_is_up(
    opened: Open, issuer: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "JWKS_MIN_FETCH_INTERVAL", 0)
    issuer.up = False
    async with opened() as app:
        for text in ("REST 1.0", "gRPC 1.0"):
            assert (await ENDPOINTS[text](app, signed(issuer))).status == 503
        issuer.up = True
        assert await answer(app, signed(issuer)) == (200, "alice")


async def test_a_token_without_required_scope_is_forbidden_with_the_scope(opened: Open, issuer: Provider) -> None:
    async with opened(required_scopes=["a2a"]) as app:
        response = await ENDPOINTS["REST 1.0"](app, signed(issuer))
        assert response.status == 403
        assert response.challenge.endswith(', error_description="the token lacks the scope a2a", scope="a2a"')
        for text in ("JSON-RPC 1.0", "gRPC 0.3", "WebSocket"):
            assert (await ENDPOINTS[text](app, signed(issuer))).status == 403
        assert (await answer(app, signed(issuer, scope="a2a")))[0] == 200


async def test_the_card_has_the_discovery_url(opened: Open, issuer: Provider) -> None:
    oidc = {"type": "openIdConnect", "openIdConnectUrl": f"{issuer.url}/.well-known/openid-configuration"}
    async with opened(required_scopes=["a2a"]) as app:
        path = "/.well-known/agent-card.json"
        card = (await over_http("GET", path)(app, [("A2A-Version", "0.3")])).body
        assert card["securitySchemes"]["oidc"] == oidc
        assert card["securitySchemes"]["bearer"] == {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
        assert card["security"] == [{"oidc": ["a2a"]}, {"bearer": []}]
        card = (await over_http("GET", path)(app, [("A2A-Version", "1.0")])).body
        assert card["securitySchemes"]["oidc"] == {
            "openIdConnectSecurityScheme": {"openIdConnectUrl": oidc["openIdConnectUrl"]}
        }
        assert card["securityRequirements"][0] == {"schemes": {"oidc": {"list": ["a2a"]}}}
        card = (await over_http("GET", path)(app, [("A2A-Version", "0.1")])).body
        assert card["authentication"] == {"schemes": ["openIdConnect", "Bearer"]}
