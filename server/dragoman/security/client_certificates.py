"""Certificates that callers show when they connect (mutual TLS): who their holders are, and whether they still count.

The handshake has checked the signature of the authority, and the times as they were then. Connections last, and
sessions are resumed, so the times are looked at with each call, and so is whether the certificate was revoked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from dragoman.core.errors import Unauthenticated
from dragoman.core.holders import PREFIX, Certificate, Holders, Part
from dragoman.core.identity import Identity

Revoked = Callable[[str, int], bool]
"""Whether the certificate of an issuer with this serial number counts no more."""

_Kind = type[x509.UniformResourceIdentifier] | type[x509.DNSName] | type[x509.RFC822Name]
_KINDS: Final[dict[Part, _Kind]] = {
    "uri": x509.UniformResourceIdentifier,
    "dns": x509.DNSName,
    "email": x509.RFC822Name,
}


class CertificateCheck:
    """Implements `dragoman.ports.CertificateHolders`."""

    def __init__(self, holders: Holders, revoked: Revoked, *, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since the epoch."""
        self._holders = holders
        self._revoked = revoked
        self._clock = clock
        self._issuers: dict[str, str] = {}
        """Their names by what stands for them in keys: as many as there are, since the handshake lets in no others."""

    def identify(self, certificate: bytes) -> Identity:
        try:
            found = read(certificate)
        except ValueError as error:
            raise _refused("this certificate cannot be read") from error
        short = sha256(found.issuer.encode()).hexdigest()[:16]
        self._issuers[short] = found.issuer
        key = f"{PREFIX}{found.serial:x}:{short}:{int(found.ends)}"
        self._look(found.issuer, found.serial, found.begins, found.ends, key)
        try:
            principal = found.named(self._holders.part)
        except ValueError as error:
            raise _refused(f"this certificate names nobody: {error}", key) from error
        return Identity(principal, self._holders.grants.get(principal, frozenset()), key)

    def check(self, key: str) -> None:
        """Looks again at a certificate that was good, by what `identify` gave as key. Raises Unauthenticated."""
        serial, _, rest = key.removeprefix(PREFIX).partition(":")
        short, _, ends = rest.partition(":")
        self._look(self._issuers.get(short, ""), int(serial, 16), 0.0, float(ends), key)

    def _look(self, issuer: str, serial: int, begins: float, ends: float, key: str) -> None:
        now = self._clock()
        if self._revoked(issuer, serial):
            raise _refused("this certificate was revoked", key)
        if now > ends:
            raise _refused("this certificate has expired", key)
        if now < begins:
            raise _refused("this certificate is not valid yet", key)


@lru_cache(1024)
def read(certificate: bytes) -> Certificate:
    """What matters of a certificate in DER or PEM. Raises ValueError."""
    is_pem = certificate.startswith(b"-----")
    found = x509.load_pem_x509_certificate(certificate) if is_pem else x509.load_der_x509_certificate(certificate)
    names: dict[Part, tuple[str, ...]] = {
        "cn": tuple(str(one.value) for one in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME))
    }
    try:
        alternatives = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        pass
    else:
        for part, kind in _KINDS.items():
            names[part] = tuple(str(one) for one in alternatives.get_values_for_type(kind))
    return Certificate(
        issuer=found.issuer.rfc4514_string(),
        serial=found.serial_number,
        begins=found.not_valid_before_utc.timestamp(),
        ends=found.not_valid_after_utc.timestamp(),
        names=names,
    )


def _refused(reason: str, key: str = "") -> Unauthenticated:
    return Unauthenticated(reason, error="invalid_token", about={"certificate": key.split(":")[1]} if key else {})
