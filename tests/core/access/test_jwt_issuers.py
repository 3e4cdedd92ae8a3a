"""Parsing and validation of issuers."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.access import jwt_claims
from dragoman.core.access.jwt_claims import TOKEN_ALGORITHMS, Issuer, check_issuers, parse_issuer

URL = "https://login.example.com/realms/a2a"


def test_a_string_and_a_table_give_the_same_issuer() -> None:
    words = f"{URL} audience=me,you alias=corp algorithms=RS256 principal-claim=email required-scopes=a2a skew=30s"
    table = {
        "url": URL,
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
    issuer = parse_issuer(f"{URL} audience=me")
    assert issuer == Issuer(url=URL, audience=("me",))
    assert (issuer.skew, issuer.algorithms, issuer.principal_claim) == (60, TOKEN_ALGORITHMS, "sub")
    assert issuer.discovery == f"{URL}/.well-known/openid-configuration"
    assert parse_issuer(f"{URL}/ audience=me").discovery == f"{URL}/.well-known/openid-configuration"
    assert parse_issuer(f"{URL} audience=me jwks=https://keys.example/jwks.json?tenant=1").discovery == ""


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
