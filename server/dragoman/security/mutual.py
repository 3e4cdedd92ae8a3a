"""The server's own certificate, and those that it asks callers for, put together from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.core.holders import Holders
from dragoman.security.certificates import CertificateFiles, Unfit

if TYPE_CHECKING:
    from dragoman.security.client_certificates import CertificateCheck


def open_certificates(
    certificate: Path, key: Path, *, clients: Path | None, revoked: Path | None, holders: Holders
) -> tuple[CertificateFiles, CertificateCheck | None]:
    """What the ports show, and what knows callers by what they show; without `clients` none of them is asked.

    `revoked`: a file of certificates that count no more. Raises Unfit.
    """
    if clients is None:
        return CertificateFiles(certificate, key), None
    # Not above: cryptography takes its time to load, and most servers have no use for it.
    from dragoman.security.client_certificates import CertificateCheck
    from dragoman.security.revocations import Revocations

    try:
        clients.read_bytes()
    except OSError as error:
        raise Unfit(f"{clients}: {error.strerror}") from error
    if revoked is None:
        return CertificateFiles(certificate, key, clients), CertificateCheck(holders, lambda issuer, serial: False)
    revocations = Revocations(revoked, clients.read_bytes)
    return CertificateFiles(certificate, key, clients, revocations.refresh), CertificateCheck(holders, revocations.has)
