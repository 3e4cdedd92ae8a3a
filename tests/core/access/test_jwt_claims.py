"""Validation of JWT headers and claims, and parsing of issuers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.security.token_issuer import AUDIENCE, URL, claims

from dragoman.core.access import jwt_claims
from dragoman.core.access.jwt_claims import (
    TOKEN_ALGORITHMS,
    Issuer,
    check_claims,
    check_issuers,
    check_token_header,
    identity_from_claims,
    parse_issuer,
)
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
        ({"scope": "dragoman:viewer dragoman:auditor"}, ["auditor", "viewer"]),
        ({"scope": "operator viewer auditor worker"}, []),
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


ISSUER_URL = "https://login.example.com/realms/a2a"


def test_a_string_and_a_table_give_the_same_issuer() -> None:
    words = (
        f"{ISSUER_URL} audience=me,you alias=corp algorithms=RS256 principal-claim=email required-scopes=a2a skew=30s"
    )
    table = {
        "url": ISSUER_URL,
        "audience": ["me", "you"],
        "alias": "corp",
        "algorithms": ["RS256"],
        "principal-claim": "email",
        "required_scopes": "a2a",
        "skew": 30,
    }
    assert parse_issuer(words) == parse_issuer(table)
    assert parse_issuer(words).skew == 30.0


def test_most_fields_have_defaults() -> None:
    issuer = parse_issuer(f"{ISSUER_URL} audience=me")
    assert issuer == Issuer(url=ISSUER_URL, audience=("me",))
    assert (issuer.skew, issuer.algorithms, issuer.principal_claim) == (60, TOKEN_ALGORITHMS, "sub")
    assert issuer.discovery == f"{ISSUER_URL}/.well-known/openid-configuration"
    assert parse_issuer(f"{ISSUER_URL}/ audience=me").discovery == f"{ISSUER_URL}/.well-known/openid-configuration"
    assert parse_issuer(f"{ISSUER_URL} audience=me jwks=https://keys.example/jwks.json?tenant=1").discovery == ""


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("https://a.example", "audience: is required"),
        ({"audience": "me"}, "url: is required"),
        ("https://a.example audience=me colour=red", "an issuer has no colour; it has url, audience"),
        ("https://a.example me", '"me" is not FIELD=VALUE'),
        ("http://a.example audience=me", "url: .* must be https"),
        ("ftp://a.example audience=me", "url: .* must be https"),
        ("https://u:p@a.example audience=me", "url: "),
        ("https://a.example?x=1 audience=me", "url: "),
        ("https://[::1 audience=me", "url: .* is not a URL"),
        ("https://a.example audience=me jwks=http://b.example/keys", "jwks: .* must be https"),
        ("https://a.example audience=me alias=No", "alias: "),
        ("https://a.example audience=me alias=local", 'alias: a principal must not begin with "local:"'),
        ("https://a.example audience=me alias=shared", 'alias: a principal must not begin with "shared:"'),
        ("https://a.example audience=me algorithms=none", "algorithms: none is not accepted; use RS256"),
        ("https://a.example audience=me algorithms=HS256,RS256", "algorithms: HS256 is not accepted"),
        ({"url": "https://a.example", "audience": []}, "audience: is required"),
        ({"url": "https://a.example", "audience": [1]}, "audience: must be a string, or a list of strings"),
        ({"url": "https://a.example", "audience": "me", "algorithms": []}, "algorithms: must name at least one"),
        ("https://a.example audience=me skew=600", "skew: must be 0 to 300 seconds"),
        ("https://a.example audience=me skew=soon", "skew: "),
        ({"url": "https://a.example", "audience": "me", "skew": True}, "skew: must be a number"),
        ("https://a.example audience=me grants=x", "grants: must be a table; set it in a TOML file"),
        ({"url": "https://a.example", "audience": "me", "grants": "x"}, "grants: must be a table"),
        ({"url": "https://a.example", "audience": "me", "grants": {"x": "root"}}, 'grants: "x": "root" is not a grant'),
        ({"url": 5, "audience": "me"}, "url: must be a string"),
        (7, "an issuer is a table or a string"),
    ],
)
def test_an_invalid_issuer_is_rejected_with_the_rule(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_issuer(value)


def test_an_issuer_on_loopback_may_use_http() -> None:
    for host in ("localhost:9000", "127.0.0.1", "[::1]:80"):
        assert parse_issuer(f"http://{host} audience=me").url == f"http://{host}"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("https://a.example audience=me; https://b.example audience=me", "alias: is required with several"),
        ("https://a.example audience=me alias=x; https://b.example audience=me alias=x", 'alias: "x" is given to two'),
        ("https://a.example audience=me alias=x; https://a.example audience=me alias=y", "url: .* is given to two"),
        ('[{"url": "https://a.example"', "is not JSON"),
        (5, "must be a table for each issuer"),
    ],
)
def test_issuers_with_colliding_principals_are_rejected(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        jwt_claims.parse_issuers(value)


def test_several_issuers_are_parsed_from_strings_tables_and_json() -> None:
    words = "https://a.example audience=me alias=a; https://b.example audience=me alias=b;"
    json = '[{"url":"https://a.example","audience":"me","alias":"a"},{"url":"https://b.example","audience":["me"],"alias":"b"}]'
    found = jwt_claims.parse_issuers(words)
    assert [issuer.alias for issuer in found] == ["a", "b"]
    assert (
        jwt_claims.parse_issuers(json)
        == jwt_claims.parse_issuers(words.split(";"))
        == jwt_claims.parse_issuers(list(found))
        == found
    )
    assert jwt_claims.parse_issuers("") == check_issuers(()) == ()
