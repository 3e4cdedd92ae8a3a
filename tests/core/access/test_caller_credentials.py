"""API keys: text and digests. Client certificates: principals and grants."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.access import caller_credentials
from dragoman.core.access.caller_credentials import ApiKey, CertificateName, ClientCertificate, parse_certificate_grants

ID = caller_credentials.new_api_key_id(b"12345678")
TEXT = caller_credentials.format_api_key(ID, b"s" * 32)


def test_a_key_is_recognized_by_its_form() -> None:
    assert re.fullmatch(r"dgm_[a-z2-7]{12}_[a-z2-7]{59}", TEXT)
    assert TEXT.startswith(f"dgm_{ID}_")


@given(st.binary(min_size=8, max_size=8), st.binary(min_size=32, max_size=32))
def test_a_formatted_key_is_parsed_back(id_bytes: bytes, secret_bytes: bytes) -> None:
    id = caller_credentials.new_api_key_id(id_bytes)
    text = caller_credentials.format_api_key(id, secret_bytes)
    assert caller_credentials.API_KEY_ID.fullmatch(id)
    assert caller_credentials.parse_api_key(text) == (id, caller_credentials.api_key_digest(text))


@given(st.integers(0, len(TEXT) - 1), st.sampled_from("abz27A1-_ é\n"))
def test_one_wrong_character_makes_a_key_invalid(at: int, character: str) -> None:
    mistyped = TEXT[:at] + character + TEXT[at + 1 :]
    assert mistyped == TEXT or caller_credentials.parse_api_key(mistyped) is None


@pytest.mark.parametrize("cut", [TEXT[:-1], TEXT[1:], TEXT + "a", TEXT + "\n", "", "dgm_", TEXT.upper()])
def test_a_truncated_key_is_invalid(cut: str) -> None:
    assert caller_credentials.parse_api_key(cut) is None


def key(**changes: int | bytes) -> ApiKey:
    return ApiKey(id=ID, name="n", principal="p", digest=caller_credentials.api_key_digest(TEXT), created=0, **changes)  # type: ignore[arg-type]


def test_the_current_digest_matches_and_the_former_one_until_its_end() -> None:
    digest, other = caller_credentials.api_key_digest(TEXT), caller_credentials.api_key_digest("other")
    assert key().matches(digest, 0)
    assert not key().matches(other, 0)
    assert not key().matches(b"", 0)
    rotated = key(former=other, former_until=100)
    assert rotated.matches(digest, 100)
    assert rotated.matches(other, 99)
    assert not rotated.matches(other, 100)


def test_a_key_is_valid_until_it_expires_or_is_revoked() -> None:
    assert key().problem(10**15) == ""
    assert key(expires=100).problem(99) == ""
    assert key(expires=100).problem(100) == "has expired"
    assert key(expires=100, revoked=50).problem(60) == "was revoked"


def test_a_printed_key_shows_no_digest() -> None:
    assert "digest" not in repr(key(former=b"former"))
    assert "former=" not in repr(key(former=b"former"))


def certificate(**names: tuple[str, ...]) -> ClientCertificate:
    return ClientCertificate("CN=ca", 1, 0.0, 1.0, names)  # type: ignore[arg-type]  # the parts, by name


def test_the_principal_is_the_single_name_of_the_configured_kind() -> None:
    both = certificate(cn=("alice",), uri=("spiffe://a/b",), dns=("one.example", "two.example"))
    assert both.principal("cn") == "alice"
    assert both.principal("uri") == "spiffe://a/b"
    for part, why in (("dns", "must have one DNS name .* and has 2"), ("email", "must have one e-mail .* has none")):
        kind: CertificateName = part  # type: ignore[assignment]
        with pytest.raises(ValueError, match=why):
            both.principal(kind)


@pytest.mark.parametrize("name", ["anonymous", " alice", "a\nb", "", "x" * 257])
def test_an_ambiguous_certificate_has_no_principal(name: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (each has its own words)
        certificate(cn=(name,)).principal("cn")


def test_grants_are_parsed_from_text_or_a_table() -> None:
    expected = {"alice": frozenset({"operator"}), "spiffe://a/box=1": frozenset({"worker:desk", "agent:shop"})}
    assert parse_certificate_grants("alice=operator, spiffe://a/box=1=worker:desk agent:shop") == expected
    table = {"alice": "operator", "spiffe://a/box=1": ["worker:desk", "agent:shop"]}
    assert parse_certificate_grants(table) == expected
    assert parse_certificate_grants(expected) == expected


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("alice", "is not PRINCIPAL=GRANT"),
        ("alice=king", '"king" is not a grant'),
        ("=operator", "must be printable text"),
        ({"alice": 1}, "must be a grant, or a list of grants"),
        (7, "must be a table of grants"),
    ],
)
def test_invalid_grants_are_rejected(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_certificate_grants(value)
