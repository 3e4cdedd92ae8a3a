"""Client certificates without a server: names, validity, and revocation."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from pathlib import Path

import pytest
from tests.certificates import DAY, ClientAuthority, serial_of

from dragoman.core.access.caller_credentials import CertificatePrincipals
from dragoman.core.errors import Unauthenticated
from dragoman.security.tls.certificate_files import InvalidFile
from dragoman.security.tls.client_certificates import CertificateAuthenticator, Revocations, parse_certificate


class Seconds:
    """A clock that a test sets, and the revoked serial numbers."""

    def __init__(self) -> None:
        self.now = time.time()
        self.revoked: set[tuple[str, int]] = set()

    def __call__(self) -> float:
        return self.now

    def is_revoked(self, issuer: str, serial: int) -> bool:
        return (issuer, serial) in self.revoked


@pytest.fixture
def clients(tmp_path: Path) -> ClientAuthority:
    return ClientAuthority(tmp_path)


@pytest.fixture
def world() -> Seconds:
    return Seconds()


@pytest.fixture
def authenticator(world: Seconds) -> CertificateAuthenticator:
    grants = CertificatePrincipals(grants={"alice": frozenset({"operator"})})
    return CertificateAuthenticator(grants, world.is_revoked, clock=world)


def test_a_certificate_gives_principal_grants_and_an_id(
    authenticator: CertificateAuthenticator, clients: ClientAuthority
) -> None:
    alice, bob = clients.issue("alice"), clients.issue("bob")
    first, second = (authenticator.identify(path.read_bytes()) for path in (alice, bob))
    assert (first.principal, first.grants) == ("alice", frozenset({"operator"}))
    assert (second.principal, second.grants) == ("bob", frozenset())
    assert f"{serial_of(alice):x}" in first.credential_id
    assert first.credential_id != second.credential_id


@pytest.mark.parametrize("name", ["local:root", "shared:team", "token"])
def test_a_certificate_of_a_reserved_name_is_rejected(
    authenticator: CertificateAuthenticator, clients: ClientAuthority, name: str
) -> None:
    with pytest.raises(Unauthenticated, match="names no principal"):
        authenticator.identify(clients.issue(name).read_bytes())


def test_bytes_that_are_no_certificate_are_rejected(authenticator: CertificateAuthenticator) -> None:
    for data in (b"", b"nothing", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(Unauthenticated, match="this certificate cannot be read"):
            authenticator.identify(data)


def test_validity_is_checked_again_by_the_id_alone(
    authenticator: CertificateAuthenticator, clients: ClientAuthority, world: Seconds
) -> None:
    certificate = clients.issue("alice", ends=timedelta(hours=1)).read_bytes()
    key = authenticator.identify(certificate).credential_id
    authenticator.check(key)
    world.now += 3700
    with pytest.raises(Unauthenticated, match="has expired") as caught:
        authenticator.check(key)
    assert caught.value.error == "invalid_token"
    world.now -= 2 * DAY.total_seconds()
    with pytest.raises(Unauthenticated, match="is not valid yet"):
        authenticator.identify(certificate)


def test_a_revocation_applies_to_its_issuer_only(
    authenticator: CertificateAuthenticator, clients: ClientAuthority, world: Seconds, tmp_path: Path
) -> None:
    path = clients.issue("alice")
    other = ClientAuthority(tmp_path, "others").issue("alice")
    assert serial_of(path) == serial_of(other)
    mine, theirs = (authenticator.identify(one.read_bytes()).credential_id for one in (path, other))
    world.revoked.add((parse_certificate(path.read_bytes()).issuer, serial_of(path)))
    with pytest.raises(Unauthenticated, match="was revoked") as caught:
        authenticator.check(mine)
    assert caught.value.log_details == {"certificate": f"{serial_of(path):x}"}
    authenticator.check(theirs)


def revocations(clients: ClientAuthority, path: Path, content: str | bytes) -> Revocations:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Revocations(path, clients.ca.read_bytes)


@pytest.mark.parametrize("text", ["ff", "FF", "0xff", "00:FF", "serial=FF", "  ff  # the old laptop", "# first\n\nff"])
def test_serial_numbers_are_hexadecimal_in_any_form(clients: ClientAuthority, tmp_path: Path, text: str) -> None:
    revoked = revocations(clients, tmp_path / "revoked", f"{text}\n")
    assert revoked.is_revoked("CN=anyone", 255)
    assert not revoked.is_revoked("CN=anyone", 254)


@pytest.mark.parametrize("text", ["ff\nnone", "ff\n12 34", "ff\n0x", "ff\n-1"])
def test_other_lines_are_rejected_by_their_number(clients: ClientAuthority, tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidFile, match=r"revoked, line 2: is neither a serial number in hexadecimal nor"):
        revocations(clients, tmp_path / "revoked", text)


def test_a_crl_of_several_issuers_applies_to_each(clients: ClientAuthority, tmp_path: Path) -> None:
    others = ClientAuthority(tmp_path, "others")
    mine, theirs = clients.issue("alice"), others.issue("bob")
    both = clients.ca.read_bytes() + others.ca.read_bytes()
    path = tmp_path / "revoked"
    path.write_bytes(clients.crl(mine) + others.crl(theirs))
    revoked = Revocations(path, lambda: both)
    assert revoked.is_revoked("CN=clients", serial_of(mine))
    assert revoked.is_revoked("CN=others", serial_of(theirs))
    assert not revoked.is_revoked("CN=clients", 1)
    with pytest.raises(InvalidFile, match="a CRL of CN=others is not signed by any of the CAs"):
        Revocations(path, clients.ca.read_bytes)


def test_a_file_that_became_invalid_leaves_the_revocations_in_force(
    clients: ClientAuthority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.tls")
    path = tmp_path / "revoked"
    revoked = revocations(clients, path, "ff\n")
    assert not revoked.refresh()
    path.write_text("no number, and longer\n")
    assert not revoked.refresh()
    assert "the previous ones stay in force" in caplog.text
    assert revoked.is_revoked("CN=anyone", 255)
    path.write_text("fe\n")
    assert revoked.refresh()
    assert [revoked.is_revoked("CN=anyone", serial) for serial in (254, 255)] == [True, False]
    assert not revoked.refresh(force=True)
