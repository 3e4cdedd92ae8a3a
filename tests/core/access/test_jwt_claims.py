"""Validation of JWT headers and claims."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.security.token_issuer import AUDIENCE, URL, claims

from dragoman.core.access.jwt_claims import Issuer, check_claims, check_token_header, identity_from_claims
from dragoman.core.errors import PermissionDenied, Unauthenticated

NOW = 1_800_000_000.0
ISSUER = Issuer(url=URL, audience=(AUDIENCE, "other"), skew=60)


def claims_with(**changes: Any) -> dict[str, Any]:
    return claims(NOW, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"aud": ["x", AUDIENCE]},
        {"aud": "other"},
        {"iat": None},
        {"nbf": NOW},
        {"exp": NOW - 59},
        {"exp": NOW + 0.5},
        {"nbf": NOW + 60},
        {"iat": NOW + 60},
    ],
)
def test_valid_claims_are_accepted(changes: dict[str, Any]) -> None:
    check_claims(claims_with(**changes), ISSUER, NOW)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"iss": None}, "iss is another issuer"),
        ({"iss": URL + "/"}, "iss is another issuer"),
        ({"aud": None}, "aud does not name this server"),
        ({"aud": "dragoman2"}, "aud does not name this server"),
        ({"aud": [["dragoman"]]}, "aud does not name this server"),
        ({"aud": {"dragoman": 1}}, "aud does not name this server"),
        ({"exp": None}, "has no exp"),
        ({"exp": NOW - 60}, "has expired"),
        ({"exp": "tomorrow"}, "exp must be a number"),
        ({"exp": True}, "exp must be a number"),
        ({"exp": float("nan")}, "exp must be a number"),
        ({"exp": float("inf")}, "exp must be a number"),
        ({"exp": 10**400}, "exp must be a number"),
        ({"nbf": NOW + 61}, "not valid yet"),
        ({"nbf": "now"}, "nbf must be a number"),
        ({"iat": NOW + 61}, "issued in the future"),
        ({"iat": []}, "iat must be a number"),
    ],
)
def test_invalid_claims_are_rejected_with_the_reason(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(Unauthenticated, match=why) as caught:
        check_claims(claims_with(**changes), ISSUER, NOW)
    assert caught.value.error == "invalid_token"


JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**400,
    1e308,
    float("nan"),
    "",
    "x",
    "dragoman",
    URL,
    [],
    [1],
    [["x"]],
    {},
    {"x": {}},
)


@given(
    st.dictionaries(
        st.sampled_from(("iss", "aud", "exp", "nbf", "iat", "sub", "scope", "scp")), st.sampled_from(JUNK), max_size=3
    )
)
def test_arbitrary_claims_cause_no_other_error(changes: dict[str, Any]) -> None:
    try:
        check_claims({**claims_with(), **changes}, ISSUER, NOW)
        identity_from_claims({**claims_with(), **changes}, ISSUER)
    except Unauthenticated:
        pass


@pytest.mark.parametrize("kind", [None, "JWT", "jwt", "at+jwt", "application/at+jwt"])
def test_a_header_names_the_algorithm_and_the_key(kind: str | None) -> None:
    header = {"alg": "ES256", "kid": "k", **({"typ": kind} if kind else {})}
    assert check_token_header(header, ISSUER) == ("ES256", "k")
    assert check_token_header({"alg": "RS256"}, ISSUER) == ("RS256", None)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"alg": "none"}, 'alg "none" is not accepted; use one of RS256'),
        ({"alg": "None"}, "is not accepted"),
        ({"alg": "HS256"}, 'alg "HS256" is not accepted'),
        ({"alg": None}, "is not accepted"),
        ({"alg": ["RS256"]}, "is not accepted"),
        ({}, "is not accepted"),
        ({"alg": "RS256", "typ": "logout+jwt"}, "typ is not that of an access token"),
        ({"alg": "RS256", "typ": 5}, "typ is not"),
        ({"alg": "RS256", "crit": ["exp"]}, "extensions"),
        ({"alg": "RS256", "crit": []}, "extensions"),
        ({"alg": "RS256", "b64": False}, "extensions"),
        ({"alg": "RS256", "kid": 5}, "kid must be a string"),
        ({"alg": "RS256", "kid": {"$ne": ""}}, "kid must be a string"),
    ],
)
def test_an_invalid_header_is_rejected(header: dict[str, Any], why: str) -> None:
    with pytest.raises(Unauthenticated, match=why):
        check_token_header(header, ISSUER)


def test_the_algorithms_of_an_issuer_can_be_restricted() -> None:
    narrow = Issuer(url=URL, audience=(AUDIENCE,), algorithms=("ES256",))
    with pytest.raises(Unauthenticated, match=r"use one of ES256$"):
        check_token_header({"alg": "RS256"}, narrow)


@pytest.mark.parametrize(
    ("issuer", "changes", "principal"),
    [
        ({}, {}, "alice"),
        ({"alias": "corp"}, {}, "corp:alice"),
        ({"principal_claim": "email"}, {"email": "a@example.com"}, "a@example.com"),
        ({"principal_claim": "user.name"}, {"user": {"name": "al"}}, "al"),
        ({"principal_claim": "https://x.example/id"}, {"https://x.example/id": "al"}, "al"),
        ({"alias": "corp"}, {"sub": "anonymous"}, "corp:anonymous"),
    ],
)
def test_a_claim_names_the_principal(issuer: dict[str, Any], changes: dict[str, Any], principal: str) -> None:
    one = Issuer(url=URL, audience=(AUDIENCE,), **issuer)
    assert identity_from_claims(claims_with(**changes), one).principal == principal


@pytest.mark.parametrize("sub", [None, "", 5, ["alice"], "anonymous", "token", "a\nb", " alice", "a" * 300])
def test_an_invalid_or_reserved_principal_is_rejected(sub: object) -> None:
    with pytest.raises(Unauthenticated):
        identity_from_claims(claims_with(sub=sub), ISSUER)


@pytest.mark.parametrize(
    ("changes", "grants"),
    [
        ({}, []),
        ({"scope": "openid dragoman:operator"}, ["operator"]),
        ({"scp": ["dragoman:agent:echo", "agent:other"]}, ["agent:echo", "agent:other"]),
        ({"scope": "scope:default dragoman:scope:projects/p"}, ["scope:default", "scope:projects/p"]),
        ({"scope": "operator admin worker worker:echo"}, []),
        ({"scope": "dragoman:worker dragoman:worker:echo"}, ["worker", "worker:echo"]),
        ({"scope": "staff"}, ["agent:a", "agent:b"]),
        ({"scope": "x", "scp": ["dragoman:operator"]}, []),
        # A grant for an unknown agent still restricts.
        ({"scope": "dragoman:agent:No-Such"}, ["agent:No-Such"]),
    ],
)
def test_scopes_map_to_grants(changes: dict[str, Any], grants: list[str]) -> None:
    issuer = Issuer(url=URL, audience=(AUDIENCE,), grants={"staff": ("agent:a", "agent:b")})
    assert sorted(identity_from_claims(claims_with(**changes), issuer).grants) == grants


def test_scopes_may_be_in_another_claim() -> None:
    issuer = Issuer(url=URL, audience=(AUDIENCE,), scope_claim="realm_access.roles", grants={"ops": ("operator",)})
    found = identity_from_claims(claims_with(realm_access={"roles": ["ops"]}, scope="dragoman:agent:echo"), issuer)
    assert sorted(found.grants) == ["operator"]
    with pytest.raises(Unauthenticated, match=r"realm_access.roles must be a string, or a list"):
        identity_from_claims(claims_with(realm_access={"roles": 5}), issuer)


def test_a_token_without_a_required_scope_is_rejected() -> None:
    issuer = Issuer(url=URL, audience=(AUDIENCE,), required_scopes=("a2a", "tasks"))
    assert identity_from_claims(claims_with(scope="tasks a2a"), issuer).principal == "alice"
    with pytest.raises(PermissionDenied, match="lacks the scope tasks") as caught:
        identity_from_claims(claims_with(scope="a2a"), issuer)
    assert caught.value.scope == "a2a tasks"
