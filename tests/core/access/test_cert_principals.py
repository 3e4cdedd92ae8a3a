"""Certificates as credentials: who their holders are, and how grants are written."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.access.caller_credentials import CertificateName, ClientCertificate, parse_certificate_grants


def certificate(**names: tuple[str, ...]) -> ClientCertificate:
    return ClientCertificate("CN=ca", 1, 0.0, 1.0, names)  # type: ignore[arg-type]  # the parts, by name


def test_a_holder_is_the_one_name_of_the_kind_that_counts() -> None:
    both = certificate(cn=("alice",), uri=("spiffe://a/b",), dns=("one.example", "two.example"))
    assert both.principal("cn") == "alice"
    assert both.principal("uri") == "spiffe://a/b"
    for part, why in (("dns", "must have one DNS name .* and has 2"), ("email", "must have one e-mail .* has none")):
        kind: CertificateName = part  # type: ignore[assignment]
        with pytest.raises(ValueError, match=why):
            both.principal(kind)


@pytest.mark.parametrize("name", ["anonymous", " alice", "a\nb", "", "x" * 257])
def test_what_could_be_taken_for_somebody_else_is_no_holder(name: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (each has its own words)
        certificate(cn=(name,)).principal("cn")


def test_grants_are_words_or_a_table() -> None:
    expected = {"alice": frozenset({"operator"}), "spiffe://a/box=1": frozenset({"worker:desk", "agent:shop"})}
    assert parse_certificate_grants("alice=operator, spiffe://a/box=1=worker:desk agent:shop") == expected
    table = {"alice": "operator", "spiffe://a/box=1": ["worker:desk", "agent:shop"]}
    assert parse_certificate_grants(table) == expected
    assert parse_certificate_grants(expected) == expected


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("alice", "is not PRINCIPAL=GRANT"),
        ("alice=king", '"king" is not a grant'),
        ("=operator", "must be printable text"),
        ({"alice": 1}, "must be a grant, or a list of grants"),
        (7, "must be a table of grants"),
    ],
)
def test_what_means_nothing_is_refused(said: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_certificate_grants(said)
