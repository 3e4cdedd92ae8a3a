"""Client certificates (mutual TLS): principal, validity and revocation.

The handshake has verified the CA's signature and the validity at that time. Connections last and sessions are resumed,
so validity and revocation are checked again with each request.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from cryptography import x509
from cryptography.x509.oid import NameOID

from dragoman.core.access.caller_credentials import (
    CERTIFICATE_ID_PREFIX,
    CertificateName,
    CertificatePrincipals,
    ClientCertificate,
)
from dragoman.core.access.identity import Identity
from dragoman.core.errors import Unauthenticated
from dragoman.security.file_stamps import FileStamps
from dragoman.security.tls.certificate_files import InvalidCertificate

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes


IsRevoked = Callable[[str, int], bool]
"""Whether the certificate with this issuer and serial number is revoked."""

_NameType = type[x509.UniformResourceIdentifier] | type[x509.DNSName] | type[x509.RFC822Name]
_NAME_TYPES: Final[dict[CertificateName, _NameType]] = {
    "uri": x509.UniformResourceIdentifier,
    "dns": x509.DNSName,
    "email": x509.RFC822Name,
}


class CertificateAuthenticator:
    """Authenticates callers by client certificate. Implements `dragoman.ports.CertificateHolders`."""

    def __init__(
        self, principals: CertificatePrincipals, is_revoked: IsRevoked, *, clock: Callable[[], float] = time.time
    ) -> None:
        """clock: seconds since the epoch."""
        self._principals = principals
        self._is_revoked = is_revoked
        self._clock = clock
        self._issuers: dict[str, str] = {}
        """Issuer names by the short hash in credential ids. Bounded: the handshake accepts only known CAs."""

    def identify(self, certificate: bytes) -> Identity:
        try:
            found = parse_certificate(certificate)
        except ValueError as error:
            raise _certificate_rejected("this certificate cannot be read") from error
        short = sha256(found.issuer.encode()).hexdigest()[:16]
        self._issuers[short] = found.issuer
        key = f"{CERTIFICATE_ID_PREFIX}{found.serial:x}:{short}:{int(found.not_after)}"
        self._check_validity(found.issuer, found.serial, found.not_before, found.not_after, key)
        try:
            principal = found.principal(self._principals.name_kind)
        except ValueError as error:
            raise _certificate_rejected(f"this certificate names nobody: {error}", key) from error
        return Identity(principal, self._principals.grants.get(principal, frozenset()), key)

    def check(self, key: str) -> None:
        """Checks a certificate again by the credential id from `identify`. Raises Unauthenticated."""
        serial, _, rest = key.removeprefix(CERTIFICATE_ID_PREFIX).partition(":")
        short, _, ends = rest.partition(":")
        self._check_validity(self._issuers.get(short, ""), int(serial, 16), 0.0, float(ends), key)

    def _check_validity(self, issuer: str, serial: int, begins: float, ends: float, key: str) -> None:
        now = self._clock()
        if self._is_revoked(issuer, serial):
            raise _certificate_rejected("this certificate was revoked", key)
        if now > ends:
            raise _certificate_rejected("this certificate has expired", key)
        if now < begins:
            raise _certificate_rejected("this certificate is not valid yet", key)


@lru_cache(1024)
def parse_certificate(certificate: bytes) -> ClientCertificate:
    """Parses issuer, serial number, validity and names of a certificate in DER or PEM. Raises ValueError."""
    is_pem = certificate.startswith(b"-----")
    found = x509.load_pem_x509_certificate(certificate) if is_pem else x509.load_der_x509_certificate(certificate)
    names: dict[CertificateName, tuple[str, ...]] = {
        "cn": tuple(str(one.value) for one in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME))
    }
    try:
        alternatives = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        pass
    else:
        for part, kind in _NAME_TYPES.items():
            names[part] = tuple(str(one) for one in alternatives.get_values_for_type(kind))
    return ClientCertificate(
        issuer=found.issuer.rfc4514_string(),
        serial=found.serial_number,
        not_before=found.not_valid_before_utc.timestamp(),
        not_after=found.not_valid_after_utc.timestamp(),
        names=names,
    )


def _certificate_rejected(reason: str, key: str = "") -> Unauthenticated:
    return Unauthenticated(reason, error="invalid_token", log_details={"certificate": key.split(":")[1]} if key else {})


ANY_ISSUER: Final = ""
"""The issuer of serial numbers in a list without issuers: any."""

_CRL_PATTERN: Final = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
_SERIAL_PATTERN: Final = re.compile(r"(?:0[xX])?((?:[0-9a-fA-F]{2}:)*[0-9a-fA-F]+)")

log = logging.getLogger("dragoman.tls")


class Revocations:
    """The revoked certificates of one file: CRLs, or a list of serial numbers."""

    def __init__(self, path: Path, authorities: Callable[[], bytes], *, clock: Callable[[], float] = time.time) -> None:
        """authorities: returns the CA certificates in PEM. Raises InvalidCertificate."""
        self._path = path
        self._authorities = authorities
        self._clock = clock
        self._stamps = FileStamps(path)
        self._revoked = self._read()

    def is_revoked(self, issuer: str, serial: int) -> bool:
        """Whether a certificate is revoked. issuer: its name as in RFC 4514."""
        return (issuer, serial) in self._revoked or (ANY_ISSUER, serial) in self._revoked

    def refresh(self, *, force: bool = False) -> bool:
        """Reloads the file if it has changed. Returns whether the revocations changed."""
        if not self._stamps.changed() and not force:
            return False
        try:
            revoked = self._read()
        except InvalidCertificate as error:
            log.error("revocations cannot be read, those before stay in force: %s", error)
            return False
        if revoked == self._revoked:
            return False
        self._revoked = revoked
        log.info("certificates that are revoked now, by %s: %d", self._path, len(revoked))
        return True

    def _read(self) -> frozenset[tuple[str, int]]:
        """Raises InvalidCertificate."""
        try:
            data = self._path.read_bytes()
        except OSError as error:
            raise InvalidCertificate(f"{self._path}: {error.strerror}") from error
        if blocks := _CRL_PATTERN.findall(data):
            return self._parse_crls(map(x509.load_pem_x509_crl, blocks))
        if data[:1] == b"\x30":
            return self._parse_crls(map(x509.load_der_x509_crl, [data]))
        return frozenset((ANY_ISSUER, serial) for serial in self._parse_serials(data))

    def _parse_crls(self, crls: Iterable[x509.CertificateRevocationList]) -> frozenset[tuple[str, int]]:
        revoked = set()
        try:
            authorities = x509.load_pem_x509_certificates(self._authorities())
            for one in crls:
                if not any(_is_signed_by(one, each) for each in authorities):
                    who = one.issuer.rfc4514_string()
                    raise InvalidCertificate(f"{self._path}: a CRL of {who} is not signed by any of the authorities")
                if one.next_update_utc and one.next_update_utc.timestamp() < self._clock():
                    log.warning("the CRL in %s is old: the next one was due at %s", self._path, one.next_update_utc)
                revoked |= {(one.issuer.rfc4514_string(), each.serial_number) for each in one}
        except ValueError as error:
            raise InvalidCertificate(f"{self._path}: holds a CRL that cannot be read: {error}") from error
        return frozenset(revoked)

    def _parse_serials(self, data: bytes) -> Iterable[int]:
        try:
            lines = data.decode("ascii").splitlines()
        except UnicodeDecodeError as error:
            raise InvalidCertificate(f"{self._path}: is neither a CRL nor a list of serial numbers") from error
        for number, line in enumerate(lines, 1):
            text = line.partition("#")[0].strip().removeprefix("serial=")
            if not text:
                continue
            found = _SERIAL_PATTERN.fullmatch(text)
            if found is None:
                raise InvalidCertificate(
                    f"{self._path}, line {number}: is no serial number in hexadecimal, nor is it a CRL"
                )
            yield int(found[1].replace(":", ""), 16)


def _is_signed_by(crl: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    if crl.issuer != authority.subject:
        return False
    try:
        return crl.is_signature_valid(cast("CertificateIssuerPublicKeyTypes", authority.public_key()))
    except TypeError:  # a key of a kind that signs nothing
        return False
