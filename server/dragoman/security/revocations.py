"""Certificates that count no more, from a file that is read again when it changes: a CRL (RFC 5280 §5), or serials.

A CRL has to be signed by one of the authorities whose certificates are taken; one file may hold several, in PEM. One
whose next is overdue still counts, and the log says that it is old: who stops writing the file must neither let
everybody in nor lock everybody out. A file that cannot be used leaves what was read before in force.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from cryptography import x509

from dragoman.security.certificates import Unfit

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes

ANYBODY: Final = ""
"""The issuer of a serial number in a list: whoever."""

_CRL: Final = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
_SERIAL: Final = re.compile(r"(?:0[xX])?((?:[0-9a-fA-F]{2}:)*[0-9a-fA-F]+)")

log = logging.getLogger("dragoman.tls")


class Revocations:
    """What a file says of certificates."""

    def __init__(self, path: Path, authorities: Callable[[], bytes], *, clock: Callable[[], float] = time.time) -> None:
        """`authorities` gives their certificates in PEM. Raises Unfit."""
        self._path = path
        self._authorities = authorities
        self._clock = clock
        self._seen = self._signature()
        self._revoked = self._read()

    def has(self, issuer: str, serial: int) -> bool:
        """Whether a certificate counts no more. issuer: its name as RFC 4514 has it."""
        return (issuer, serial) in self._revoked or (ANYBODY, serial) in self._revoked

    def refresh(self, *, asked: bool = False) -> bool:
        """Looks at the file, and takes what it says if it is new and can be used. Gives whether it did."""
        signature = self._signature()
        if signature == self._seen and not asked:
            return False
        self._seen = signature
        try:
            revoked = self._read()
        except Unfit as error:
            log.error("revocations cannot be read, those before stay in force: %s", error)
            return False
        if revoked == self._revoked:
            return False
        self._revoked = revoked
        log.info("certificates that are revoked now, by %s: %d", self._path, len(revoked))
        return True

    def _signature(self) -> tuple[int, int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return 0, 0, 0
        return status.st_mtime_ns, status.st_ino, status.st_size

    def _read(self) -> frozenset[tuple[str, int]]:
        """Raises Unfit."""
        try:
            data = self._path.read_bytes()
        except OSError as error:
            raise Unfit(f"{self._path}: {error.strerror}") from error
        if blocks := _CRL.findall(data):
            return self._lists(map(x509.load_pem_x509_crl, blocks))
        if data[:1] == b"\x30":
            return self._lists(map(x509.load_der_x509_crl, [data]))
        return frozenset((ANYBODY, serial) for serial in self._serials(data))

    def _lists(self, lists: Iterable[x509.CertificateRevocationList]) -> frozenset[tuple[str, int]]:
        revoked = set()
        try:
            authorities = x509.load_pem_x509_certificates(self._authorities())
            for one in lists:
                if not any(_signed(one, each) for each in authorities):
                    who = one.issuer.rfc4514_string()
                    raise Unfit(f"{self._path}: a CRL of {who} is not signed by any of the authorities")
                if one.next_update_utc and one.next_update_utc.timestamp() < self._clock():
                    log.warning("the CRL in %s is old: the next one was due at %s", self._path, one.next_update_utc)
                revoked |= {(one.issuer.rfc4514_string(), each.serial_number) for each in one}
        except ValueError as error:
            raise Unfit(f"{self._path}: holds a CRL that cannot be read: {error}") from error
        return frozenset(revoked)

    def _serials(self, data: bytes) -> Iterable[int]:
        try:
            lines = data.decode("ascii").splitlines()
        except UnicodeDecodeError as error:
            raise Unfit(f"{self._path}: is neither a CRL nor a list of serial numbers") from error
        for number, line in enumerate(lines, 1):
            text = line.partition("#")[0].strip().removeprefix("serial=")
            if not text:
                continue
            found = _SERIAL.fullmatch(text)
            if found is None:
                raise Unfit(f"{self._path}, line {number}: is no serial number in hexadecimal, nor is it a CRL")
            yield int(found[1].replace(":", ""), 16)


def _signed(one: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    if one.issuer != authority.subject:
        return False
    try:
        return one.is_signature_valid(cast("CertificateIssuerPublicKeyTypes", authority.public_key()))
    except TypeError:  # a key of a kind that signs nothing
        return False
