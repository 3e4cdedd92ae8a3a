"""Server certificate, key and client CAs from files, reloaded when they change.

They are loaded together, only if the key matches and no file changes meanwhile. Invalid files, such as half-written
ones, leave the current ones in use until the files change again. Open connections keep their certificate.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, Never

from dragoman.ports.security import CertificatePair

CERTIFICATE_CHECK_INTERVAL: Final = 5.0
"""Seconds between two polls of the files."""

log = logging.getLogger("dragoman.tls")


class FileStamps:
    """Detects changes of files by polling modification time, inode and size. A missing file is a state, too."""

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        self._last = self._read()

    def changed(self) -> bool:
        """Whether a file has changed since the last call, or since this object was created."""
        current = self._read()
        changed, self._last = current != self._last, current
        return changed

    def _read(self) -> tuple[tuple[int, int, int], ...]:
        stamps = []
        for path in self._paths:
            try:
                status = path.stat()
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((status.st_mtime_ns, status.st_ino, status.st_size))
        return tuple(stamps)


class InvalidCertificate(Exception):
    """A certificate, key or CA file is invalid. The text names the file and the reason."""


class CertificateFiles:
    """Certificate and key from two files. Implements `dragoman.ports.security.ServerCertificates`."""

    def __init__(
        self,
        certificate: Path,
        key: Path,
        client_ca: Path | None = None,
        refresh_revocations: Callable[..., object] | None = None,
    ) -> None:
        """Loads the files. Raises InvalidCertificate.

        client_ca: CA certificates; clients may then authenticate with certificates of these CAs. refresh_revocations:
        called by each `refresh`, with its `force`.
        """
        self._certificate = certificate
        self._key = key
        self._ca = client_ca
        self._refresh_revocations = refresh_revocations
        self._stamps = FileStamps(*filter(None, (certificate, key, client_ca)))
        self.pair, self.client_authorities, self._current_context = self._load()
        # Servers keep this context for good. OpenSSL calls its callback for each new connection, with SNI or without;
        # the callback selects the current context, which must be another one.
        *_, self.ssl_context = self._load()
        self.ssl_context.sni_callback = self._on_sni

    def refresh(self, *, force: bool = False) -> bool:
        """Loads the files if they have changed. Returns whether a new certificate or new client CAs are in use.

        Invalid files are logged once, until they change again; with `force` each time.
        """
        if self._refresh_revocations is not None:
            self._refresh_revocations(force=force)
        if not self._stamps.changed() and not force:
            return False
        try:
            pair, client_authorities, context = self._load()
        except InvalidCertificate as error:
            log.error("the new certificate cannot be used, the previous one stays in use: %s", error)
            return False
        if (pair, client_authorities) == (self.pair, self.client_authorities):
            return False
        self.pair, self.client_authorities, self._current_context = pair, client_authorities, context
        log.info("new connections use the new certificate in %s", self._certificate)
        return True

    async def watch(self, interval: float = CERTIFICATE_CHECK_INTERVAL) -> Never:
        """Refreshes every `interval` seconds, until canceled."""
        while True:
            await asyncio.sleep(interval)
            self.refresh()

    def _on_sni(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._current_context

    def _load(self) -> tuple[CertificatePair, bytes, ssl.SSLContext]:
        """Reads the pair and the client CAs, and builds an SSL context. Raises InvalidCertificate."""
        pair, client_authorities = self._read_files()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certificate, self._key, password=self._refuse_passphrase)
        except (OSError, ValueError) as error:
            raise InvalidCertificate(self._explain(error)) from error
        if client_authorities:
            # Optional: clients without a certificate may have other credentials, or call public agents.
            context.verify_mode = ssl.CERT_OPTIONAL
            try:
                context.load_verify_locations(cadata=client_authorities.decode("ascii"))
            except (ValueError, ssl.SSLError) as error:
                raise InvalidCertificate(f"{self._ca} must contain CA certificates in PEM") from error
        if (pair, client_authorities) != self._read_files():
            raise InvalidCertificate(f"{self._certificate}, {self._key} or the client CAs changed while they were read")
        return pair, client_authorities, context

    def _read_files(self) -> tuple[CertificatePair, bytes]:
        contents = []
        for path in filter(None, (self._certificate, self._key, self._ca)):
            try:
                contents.append(path.read_bytes())
            except OSError as error:
                raise InvalidCertificate(f"{path}: {error.strerror}") from error
        if self._ca is not None and not contents[2]:
            raise InvalidCertificate(f"{self._ca} must contain CA certificates in PEM; it is empty")
        return CertificatePair(*contents[:2]), b"".join(contents[2:])

    def _refuse_passphrase(self) -> str:
        """Replaces OpenSSL's prompt on the terminal."""
        raise ValueError(f"{self._key} is encrypted; a server needs a key without a passphrase")

    def _explain(self, error: Exception) -> str:
        if isinstance(error, ssl.SSLError):
            if "KEY_VALUES_MISMATCH" in str(error):
                return f"{self._key} is not the key of the certificate in {self._certificate}"
            return f"{self._certificate} must contain a certificate and {self._key} its key, both in PEM"
        return str(error)
