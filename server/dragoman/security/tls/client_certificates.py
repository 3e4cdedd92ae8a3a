"""Client certificates (mutual TLS): principal, validity and revocation.

The handshake has verified the CA's signature and the validity at that time. Connections last and sessions are resumed,
so validity and revocation are checked again with each request.
"""

from __future__ import annotations

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
from dragoman.security.tls.certificate_files import InvalidFile, ReloadedFiles, log

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes


IsRevoked = Callable[[str, int], bool]  # whether the certificate with this issuer and serial number is revoked

_NameType = type[x509.UniformResourceIdentifier] | type[x509.DNSName] | type[x509.RFC822Name]
_NAME_TYPES: Final[dict[CertificateName, _NameType]] = {
    "uri": x509.UniformResourceIdentifier,
    "dns": x509.DNSName,
    "email": x509.RFC822Name,
}


class CertificateAuthenticator:
    """Authenticates callers by client certificate. Implements `dragoman.ports.CertificateIdentifier`."""

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
            parsed = parse_certificate(certificate)
        except ValueError as error:
            raise _certificate_rejected("this certificate cannot be read") from error
        issuer_hash = sha256(parsed.issuer.encode()).hexdigest()[:16]
        self._issuers[issuer_hash] = parsed.issuer
        key = f"{CERTIFICATE_ID_PREFIX}{parsed.serial:x}:{issuer_hash}:{int(parsed.not_after)}"
        self._check_validity(parsed.issuer, parsed.serial, parsed.not_before, parsed.not_after, key)
        try:
            principal = parsed.principal(self._principals.name_kind)
        except ValueError as error:
            raise _certificate_rejected(f"this certificate names no principal: {error}", key) from error
        return Identity(principal, self._principals.grants.get(principal, frozenset()), key)

    def check(self, key: str) -> None:
        """Checks a certificate again by the credential id from `identify`. Raises Unauthenticated."""
        serial, _, rest = key.removeprefix(CERTIFICATE_ID_PREFIX).partition(":")
        issuer_hash, _, not_after = rest.partition(":")
        self._check_validity(self._issuers.get(issuer_hash, ""), int(serial, 16), 0.0, float(not_after), key)

    def _check_validity(self, issuer: str, serial: int, not_before: float, not_after: float, key: str) -> None:
        now = self._clock()
        if self._is_revoked(issuer, serial):
            raise _certificate_rejected("this certificate was revoked", key)
        if now > not_after:
            raise _certificate_rejected("this certificate has expired", key)
        if now < not_before:
            raise _certificate_rejected("this certificate is not valid yet", key)


@lru_cache(1024)
def parse_certificate(certificate: bytes) -> ClientCertificate:
    """Parses issuer, serial number, validity and names of a certificate in DER or PEM. Raises ValueError."""
    is_pem = certificate.startswith(b"-----")
    parsed = x509.load_pem_x509_certificate(certificate) if is_pem else x509.load_der_x509_certificate(certificate)
    names: dict[CertificateName, tuple[str, ...]] = {
        "cn": tuple(str(name.value) for name in parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME))
    }
    try:
        alternatives = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        pass
    else:
        for kind, name_type in _NAME_TYPES.items():
            names[kind] = tuple(str(name) for name in alternatives.get_values_for_type(name_type))
    return ClientCertificate(
        issuer=parsed.issuer.rfc4514_string(),
        serial=parsed.serial_number,
        not_before=parsed.not_valid_before_utc.timestamp(),
        not_after=parsed.not_valid_after_utc.timestamp(),
        names=names,
    )


def _certificate_rejected(reason: str, key: str = "") -> Unauthenticated:
    return Unauthenticated(reason, error="invalid_token", log_details={"certificate": key.split(":")[1]} if key else {})


ANY_ISSUER: Final = ""  # the issuer of a serial number from a list without issuers: any issuer

_CRL_PATTERN: Final = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
_SERIAL_PATTERN: Final = re.compile(r"(?:0[xX])?((?:[0-9a-fA-F]{2}:)*[0-9a-fA-F]+)")


class Revocations(ReloadedFiles[frozenset[tuple[str, int]]]):
    """The revoked certificates of one file: CRLs, or a list of serial numbers."""

    FAILURE = "revocations cannot be read, the previous ones stay in force"

    def __init__(self, path: Path, authorities: Callable[[], bytes], *, clock: Callable[[], float] = time.time) -> None:
        """authorities: returns the CA certificates in PEM. Raises InvalidFile."""
        self._path = path
        self._authorities = authorities
        self._clock = clock
        super().__init__(path)

    def is_revoked(self, issuer: str, serial: int) -> bool:
        """Whether a certificate is revoked. issuer: its name as in RFC 4514."""
        return (issuer, serial) in self._content or (ANY_ISSUER, serial) in self._content

    def _describe(self) -> str:
        return f"revoked certificates in {self._path}: {len(self._content)}"

    def _read(self) -> frozenset[tuple[str, int]]:
        """Reads pairs of issuer and serial number. Raises InvalidFile."""
        try:
            data = self._path.read_bytes()
        except OSError as error:
            raise InvalidFile(f"{self._path}: {error.strerror}") from error
        if blocks := _CRL_PATTERN.findall(data):
            return self._parse_crls(map(x509.load_pem_x509_crl, blocks))
        if data[:1] == b"\x30" and not data.isascii():  # an ASN.1 sequence; a serial number may begin with "0", too
            return self._parse_crls(map(x509.load_der_x509_crl, [data]))
        return frozenset((ANY_ISSUER, serial) for serial in self._parse_serials(data))

    def _parse_crls(self, crls: Iterable[x509.CertificateRevocationList]) -> frozenset[tuple[str, int]]:
        revoked = set()
        try:
            authorities = x509.load_pem_x509_certificates(self._authorities())
            for crl in crls:
                issuer = crl.issuer.rfc4514_string()
                if not any(_is_signed_by(crl, authority) for authority in authorities):
                    raise InvalidFile(f"{self._path}: a CRL of {issuer} is not signed by any of the CAs")
                if crl.next_update_utc and crl.next_update_utc.timestamp() < self._clock():
                    log.warning("the CRL in %s is old: the next one was due at %s", self._path, crl.next_update_utc)
                revoked |= {(issuer, entry.serial_number) for entry in crl}
        except ValueError as error:
            raise InvalidFile(f"{self._path}: contains an invalid CRL: {error}") from error
        return frozenset(revoked)

    def _parse_serials(self, data: bytes) -> Iterable[int]:
        try:
            lines = data.decode("ascii").splitlines()
        except UnicodeDecodeError as error:
            raise InvalidFile(f"{self._path}: is neither a CRL nor a list of serial numbers") from error
        for number, line in enumerate(lines, 1):
            text = line.partition("#")[0].strip().removeprefix("serial=")
            if not text:
                continue
            match = _SERIAL_PATTERN.fullmatch(text)
            if match is None:
                raise InvalidFile(f"{self._path}, line {number}: is neither a serial number in hexadecimal nor a CRL")
            yield int(match[1].replace(":", ""), 16)


def _is_signed_by(crl: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    if crl.issuer != authority.subject:
        return False
    try:
        return crl.is_signature_valid(cast("CertificateIssuerPublicKeyTypes", authority.public_key()))
    except TypeError:  # a type of key that cannot sign
        return False
