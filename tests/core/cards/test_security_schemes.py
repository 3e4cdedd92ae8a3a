"""Security schemes in cards: the server's, and the agents' declarations."""

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


def test_a_server_without_security_shows_the_declaration_of_the_agent() -> None:
    one = spec([{"mine": ()}], mine={"type": "mutualTLS"})
    assert apply_security(one, NO_SECURITY, public=False) == (one, [])
    assert server_security(token=False, keys=False, issuers=()) == NO_SECURITY


@pytest.mark.parametrize(
    ("options", "schemes", "required"),
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
def test_enforced_security_is_in_the_card(
    options: dict[str, Any], schemes: dict[str, Any], required: list[Any]
) -> None:
    server = server_security(**{"token": False, "keys": False, "issuers": (), **options})
    shown, dropped = apply_security(PLAIN, server, public=False)
    assert (dict(shown.security_schemes), list(shown.security), dropped) == (schemes, required, [])


def test_several_issuers_have_a_scheme_each() -> None:
    every = [replace(OIDC, alias="corp"), replace(OIDC, url="https://b.example", alias="b")]
    assert list(server_security(token=False, keys=False, issuers=every).schemes) == ["oidc-corp", "oidc-b", "bearer"]


def test_a_public_agent_requires_nothing_and_lists_the_schemes() -> None:
    shown, _ = apply_security(PLAIN, server_security(token=True, keys=False, issuers=()), public=True)
    assert (dict(shown.security_schemes), shown.security) == ({"bearer": BEARER}, ())


def test_an_equivalent_declared_scheme_keeps_its_name() -> None:
    mine = {**BEARER, "description": "Ask us"}
    shown, dropped = apply_security(
        spec([{"mine": ()}], mine=mine), server_security(token=True, keys=True, issuers=()), public=False
    )
    assert dict(shown.security_schemes) == {"mine": mine, "apiKey": KEY}
    assert (list(shown.security), dropped) == ([{"mine": ()}, {"apiKey": ()}], [])


def test_a_requirement_for_an_additional_scheme_is_kept() -> None:
    one = spec([{"tls": (), "mine": ()}], tls={"type": "mutualTLS"}, mine=BEARER)
    shown, dropped = apply_security(one, server_security(token=True, keys=False, issuers=()), public=False)
    assert list(shown.security) == [{"tls": (), "mine": ()}]
    assert (set(shown.security_schemes), dropped) == ({"tls", "mine"}, [])


def test_requirements_that_the_server_does_not_meet_are_dropped() -> None:
    one = spec(
        [{"bearer": ()}, {"key": ()}],
        bearer={"type": "http", "scheme": "basic"},
        key={"type": "apiKey", "in": "query", "name": "X-API-Key"},
    )
    shown, dropped = apply_security(one, server_security(token=True, keys=True, issuers=()), public=False)
    assert dict(shown.security_schemes) == {"bearer": BEARER, "apiKey": KEY}
    assert (list(shown.security), dropped) == ([{"bearer": ()}, {"apiKey": ()}], [{"bearer": ()}, {"key": ()}])


def test_a_name_used_by_the_agent_for_another_scheme_stays() -> None:
    one = spec([{"mine": (), "bearer": ()}], bearer={"type": "mutualTLS"}, mine=KEY)
    shown, _ = apply_security(one, server_security(token=True, keys=True, issuers=()), public=False)
    assert shown.security_schemes["bearer"] == {"type": "mutualTLS"}
    assert shown.security_schemes["dragoman-bearer"] == BEARER
    assert list(shown.security) == [{"mine": (), "bearer": ()}, {"dragoman-bearer": ()}]


def test_a_scheme_for_getting_tokens_is_kept_if_tokens_are_accepted() -> None:
    flows = {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "https://login.example.com/token"}}}
    one = spec([{"oauth": ("a2a",)}], oauth=flows)
    shown, _ = apply_security(one, server_security(token=False, keys=False, issuers=[OIDC]), public=False)
    assert list(shown.security) == [{"oauth": ("a2a",)}, {"oidc": ("a2a",)}, {"bearer": ()}]
    shown, dropped = apply_security(one, server_security(token=True, keys=True, issuers=()), public=False)
    assert "oauth" not in shown.security_schemes
    assert dropped == [{"oauth": ("a2a",)}]


def test_a_declared_provider_matches_the_issuer_by_url() -> None:
    here = {"type": "openIdConnect", "openIdConnectUrl": OIDC.discovery, "description": "Our staff"}
    elsewhere = {"type": "openIdConnect", "openIdConnectUrl": "https://x.example/.well-known/openid-configuration"}
    server = server_security(token=False, keys=False, issuers=[OIDC])
    shown, dropped = apply_security(
        spec([{"staff": ("a2a",)}, {"x": ()}], staff=here, x=elsewhere), server, public=False
    )
    assert list(shown.security) == [{"staff": ("a2a",)}, {"bearer": ()}]
    assert "oidc" not in shown.security_schemes
    assert dropped == [{"x": ()}]
