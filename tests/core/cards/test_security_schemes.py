"""What cards say of credentials: what the server takes, and what agents declared beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dragoman.core.access.jwt_claims import Issuer
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.cards.security_schemes import NO_SECURITY, apply_security, server_security

OIDC = Issuer(url="https://login.example.com", audience=("me",), required_scopes=("a2a",))
FILE = Issuer(url="https://other.example.com", audience=("me",), jwks="/etc/keys.json", alias="other")
BEARER = {"type": "http", "scheme": "bearer"}
KEY = {"type": "apiKey", "in": "header", "name": "X-API-Key"}
PLAIN = AgentSpec(id="a", name="a", description="a")


def spec(security: list[dict[str, tuple[str, ...]]], **schemes: dict[str, Any]) -> AgentSpec:
    return replace(PLAIN, security_schemes=schemes, security=tuple(security))


def test_a_server_that_asks_for_nothing_says_what_the_agent_says() -> None:
    one = spec([{"mine": ()}], mine={"type": "mutualTLS"})
    assert apply_security(one, NO_SECURITY, public=False) == (one, [])
    assert server_security(token=False, keys=False, issuers=()) == NO_SECURITY


@pytest.mark.parametrize(
    ("asked", "schemes", "required"),
    [
        ({"token": True}, {"bearer": BEARER}, [{"bearer": ()}]),
        ({"keys": True}, {"bearer": BEARER, "apiKey": KEY}, [{"bearer": ()}, {"apiKey": ()}]),
        ({"issuers": [FILE]}, {"bearer": {**BEARER, "bearerFormat": "JWT"}}, [{"bearer": ()}]),
        (
            {"issuers": [OIDC], "token": True},
            {
                "oidc": {
                    "type": "openIdConnect",
                    "openIdConnectUrl": "https://login.example.com/.well-known/openid-configuration",
                },
                "bearer": BEARER,
            },
            [{"oidc": ("a2a",)}, {"bearer": ()}],
        ),
    ],
)
def test_what_is_enforced_is_shown(asked: dict[str, Any], schemes: dict[str, Any], required: list[Any]) -> None:
    server = server_security(**{"token": False, "keys": False, "issuers": (), **asked})
    shown, gone = apply_security(PLAIN, server, public=False)
    assert (dict(shown.security_schemes), list(shown.security), gone) == (schemes, required, [])


def test_several_issuers_have_a_scheme_each() -> None:
    every = [replace(OIDC, alias="corp"), replace(OIDC, url="https://b.example", alias="b")]
    assert list(server_security(token=False, keys=False, issuers=every).schemes) == ["oidc-corp", "oidc-b", "bearer"]


def test_a_public_agent_requires_nothing_and_says_what_may_be_shown() -> None:
    shown, _ = apply_security(PLAIN, server_security(token=True, keys=False, issuers=()), public=True)
    assert (dict(shown.security_schemes), shown.security) == ({"bearer": BEARER}, ())


def test_what_an_agent_declares_is_kept_under_its_own_name_where_it_means_the_same() -> None:
    mine = {**BEARER, "description": "Ask us"}
    shown, gone = apply_security(
        spec([{"mine": ()}], mine=mine), server_security(token=True, keys=True, issuers=()), public=False
    )
    assert dict(shown.security_schemes) == {"mine": mine, "apiKey": KEY}
    assert (list(shown.security), gone) == ([{"mine": ()}, {"apiKey": ()}], [])


def test_what_is_asked_for_besides_by_somebody_else_is_kept() -> None:
    one = spec([{"tls": (), "mine": ()}], tls={"type": "mutualTLS"}, mine=BEARER)
    shown, gone = apply_security(one, server_security(token=True, keys=False, issuers=()), public=False)
    assert list(shown.security) == [{"tls": (), "mine": ()}]
    assert (set(shown.security_schemes), gone) == ({"tls", "mine"}, [])


def test_what_would_lead_callers_astray_goes() -> None:
    one = spec(
        [{"bearer": ()}, {"key": ()}],
        bearer={"type": "http", "scheme": "basic"},
        key={"type": "apiKey", "in": "query", "name": "X-API-Key"},
    )
    shown, gone = apply_security(one, server_security(token=True, keys=True, issuers=()), public=False)
    assert dict(shown.security_schemes) == {"bearer": BEARER, "apiKey": KEY}
    assert (list(shown.security), gone) == ([{"bearer": ()}, {"apiKey": ()}], [{"bearer": ()}, {"key": ()}])


def test_a_name_that_the_agent_took_for_something_else_stays_its_own() -> None:
    one = spec([{"mine": (), "bearer": ()}], bearer={"type": "mutualTLS"}, mine=KEY)
    shown, _ = apply_security(one, server_security(token=True, keys=True, issuers=()), public=False)
    assert shown.security_schemes["bearer"] == {"type": "mutualTLS"}
    assert shown.security_schemes["dragoman-bearer"] == BEARER
    assert list(shown.security) == [{"mine": (), "bearer": ()}, {"dragoman-bearer": ()}]


def test_a_way_to_a_token_is_kept_where_tokens_are_taken() -> None:
    flows = {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "https://login.example.com/token"}}}
    one = spec([{"oauth": ("a2a",)}], oauth=flows)
    shown, _ = apply_security(one, server_security(token=False, keys=False, issuers=[OIDC]), public=False)
    assert list(shown.security) == [{"oauth": ("a2a",)}, {"oidc": ("a2a",)}, {"bearer": ()}]
    shown, gone = apply_security(one, server_security(token=True, keys=True, issuers=()), public=False)
    assert "oauth" not in shown.security_schemes
    assert gone == [{"oauth": ("a2a",)}]


def test_a_provider_that_the_agent_names_is_that_of_the_server_if_its_address_is() -> None:
    here = {"type": "openIdConnect", "openIdConnectUrl": OIDC.discovery, "description": "Our staff"}
    elsewhere = {"type": "openIdConnect", "openIdConnectUrl": "https://x.example/.well-known/openid-configuration"}
    server = server_security(token=False, keys=False, issuers=[OIDC])
    shown, gone = apply_security(spec([{"staff": ("a2a",)}, {"x": ()}], staff=here, x=elsewhere), server, public=False)
    assert list(shown.security) == [{"staff": ("a2a",)}, {"bearer": ()}]
    assert "oidc" not in shown.security_schemes
    assert gone == [{"x": ()}]
