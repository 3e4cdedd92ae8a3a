"""Principals of client certificates, and parsing of their grants."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.access.caller_credentials import CertificateName, ClientCertificate, parse_certificate_grants


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
