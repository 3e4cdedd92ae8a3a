"""A certificate and its key from two files, read again when they change.

A pair counts only as a whole: both files are read, the key has to fit, and neither may change meanwhile. Whatever does
not pass, such as a file half written or a pair half replaced, leaves the pair in use where it is; the next look tries
again. Connections that are open keep what they began with.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Never

from dragoman.core.access.caller_credentials import CertificatePrincipals
from dragoman.ports.security import CertificatePair

if TYPE_CHECKING:
    from dragoman.security.tls.client_certificates import CertificateAuthenticator


CERTIFICATE_CHECK_INTERVAL: Final = 5.0
"""Seconds between two looks at the files."""

log = logging.getLogger("dragoman.tls")

_FileStamps = tuple[tuple[int, int, int], ...]


class InvalidCertificate(Exception):
    """A certificate and a key that cannot be used. The text names the file and the reason."""


class CertificateFiles:
    """The pair in two files. Implements `dragoman.ports.security.ServerCertificates`."""

    def __init__(
        self,
        certificate: Path,
        key: Path,
        client_ca: Path | None = None,
        refresh_revocations: Callable[..., object] | None = None,
    ) -> None:
        """`clients`: certificates of authorities, whose clients are asked for theirs. `revoked` looks at what else says
        which of those are taken, at the times at which these files are looked at. Raises Unfit."""
        self._certificate = certificate
        self._key = key
        self._ca = client_ca
        self._refresh_revocations = refresh_revocations
        self._last_stamps = self._stamps()
        self._pair, self.client_authorities, self._current_context = self._load()
        # What a server was given stays the same object: it asks, for every connection, what to show instead.
        self._context = self._load()[2]
        self._context.sni_callback = self._on_sni

    @property
    def pair(self) -> CertificatePair:
        return self._pair

    @property
    def ssl_context(self) -> ssl.SSLContext:
        return self._context

    def refresh(self, *, force: bool = False) -> bool:
        """Looks at the files, and takes the pair in them if it is new and good. Gives whether it did.

        A bad pair is logged once, until the files change again; with `force` each time.
        """
        if self._refresh_revocations is not None:
            self._refresh_revocations(force=force)
        signature = self._stamps()
        if signature == self._last_stamps and not force:
            return False
        try:
            pair, clients, context = self._load()
        except InvalidCertificate as error:
            log.error("the new certificate cannot be used, the one before stays in use: %s", error)
            self._last_stamps = signature
            return False
        self._last_stamps = signature
        if (pair, clients) == (self._pair, self.client_authorities):
            return False
        self._pair, self.client_authorities, self._current_context = pair, clients, context
        log.info("new connections are shown the new certificate in %s", self._certificate)
        return True

    async def watch(self, interval: float = CERTIFICATE_CHECK_INTERVAL) -> Never:
        """Looks at the files every `pause` seconds, until it is cancelled."""
        while True:
            await asyncio.sleep(interval)
            self.refresh()

    def _on_sni(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._current_context

    def _stamps(self) -> _FileStamps:
        """What tells one state of the files from another, without reading them."""
        found = []
        for path in filter(None, (self._certificate, self._key, self._ca)):
            try:
                status = path.stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((status.st_mtime_ns, status.st_ino, status.st_size))
        return tuple(found)

    def _load(self) -> tuple[CertificatePair, bytes, ssl.SSLContext]:
        """The pair in the files, the authorities of clients, and a context that shows and asks. Raises Unfit."""
        pair, clients = self._read_files()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certificate, self._key, password=self._refuse_passphrase)
        except (OSError, ValueError) as error:
            raise InvalidCertificate(self._explain(error)) from error
        if clients:
            # Who shows none may have other credentials, or ask for what is open to everybody.
            context.verify_mode = ssl.CERT_OPTIONAL
            try:
                context.load_verify_locations(cadata=clients.decode("ascii"))
            except (ValueError, ssl.SSLError) as error:
                raise InvalidCertificate(f"{self._ca} must hold certificates of authorities, in PEM") from error
        if (pair, clients) != self._read_files():
            raise InvalidCertificate(f"{self._certificate} or {self._key} is being written")
        return pair, clients, context

    def _read_files(self) -> tuple[CertificatePair, bytes]:
        found = []
        for path in filter(None, (self._certificate, self._key, self._ca)):
            try:
                found.append(path.read_bytes())
            except OSError as error:
                raise InvalidCertificate(f"{path}: {error.strerror}") from error
        return CertificatePair(*found[:2]), b"".join(found[2:])

    def _refuse_passphrase(self) -> str:
        """Instead of OpenSSL, which would ask on the terminal."""
        raise ValueError(f"{self._key} is encrypted; a server needs a key without a passphrase")

    def _explain(self, error: Exception) -> str:
        if isinstance(error, ssl.SSLError):
            if "KEY_VALUES_MISMATCH" in str(error):
                return f"{self._key} is not the key of the certificate in {self._certificate}"
            return f"{self._certificate} must hold a certificate and {self._key} its key, both in PEM"
        return str(error)


def open_certificates(
    certificate: Path, key: Path, *, client_ca: Path | None, revoked: Path | None, principals: CertificatePrincipals
) -> tuple[CertificateFiles, CertificateAuthenticator | None]:
    """What the ports show, and what knows callers by what they show; without `clients` none of them is asked.

    `revoked`: a file of certificates that count no more. Raises Unfit.
    """
    if client_ca is None:
        return CertificateFiles(certificate, key), None
    # Not above: cryptography takes its time to load, and most servers have no use for it.
    from dragoman.security.tls.client_certificates import CertificateAuthenticator, Revocations

    try:
        client_ca.read_bytes()
    except OSError as error:
        raise InvalidCertificate(f"{client_ca}: {error.strerror}") from error
    if revoked is None:
        return CertificateFiles(certificate, key, client_ca), CertificateAuthenticator(
            principals, lambda issuer, serial: False
        )
    revocations = Revocations(revoked, client_ca.read_bytes)
    return CertificateFiles(certificate, key, client_ca, revocations.refresh), CertificateAuthenticator(
        principals, revocations.is_revoked
    )
