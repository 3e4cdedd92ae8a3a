"""Files that are read again when they change; and the server certificate, its key and client CAs, from such files.

They are loaded together, only if the key matches and no file changes meanwhile. Invalid files, such as half-written
ones, leave the current ones in use until the files change again. Open connections keep their certificate.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Generic, Never, TypeVar

from dragoman.ports.security import CertificatePair

FILE_CHECK_INTERVAL: Final = 5.0  # seconds between two polls of the files

log = logging.getLogger("dragoman.tls")

Content = TypeVar("Content")


class InvalidFile(Exception):
    """A file is invalid. The text names the file and the reason."""


class ReloadedFiles(ABC, Generic[Content]):
    """The content of files, read again when their modification time, inode or size changes.

    A missing file is a state, too. Invalid files leave the current content in use.
    """

    FAILURE: ClassVar[str]  # begins the log line about an invalid file
    LOG: ClassVar[logging.Logger] = log

    def __init__(self, *paths: Path | None) -> None:
        """Reads the files. Raises InvalidFile."""
        self._paths = tuple(filter(None, paths))
        self._stamps = _stamps_of(self._paths)
        self._is_stale = False  # the files have changed since they were used
        self._content = self._read()
        self._use(self._content)

    def refresh(self, *, force: bool = False) -> bool:
        """Reads the files if they have changed. Returns whether their content differs.

        Invalid files are logged once, until they change again; with `force` each time.
        """
        earlier, self._stamps = self._stamps, _stamps_of(self._paths)
        self._is_stale = self._is_stale or force or self._stamps != earlier
        if not self._is_stale:
            return False
        try:
            content = self._read()
        except InvalidFile as error:
            self.LOG.error("%s: %s", self.FAILURE, error)
            content = self._content
        changed = content != self._content
        if changed:
            self._use(content)
            self._content = content
            self.LOG.info(self._describe())
        self._is_stale = False
        return changed

    async def watch(self, interval: float = FILE_CHECK_INTERVAL) -> Never:
        """Refreshes every `interval` seconds, until canceled."""
        while True:
            await asyncio.sleep(interval)
            self.refresh()

    @abstractmethod
    def _read(self) -> Content:
        """Raises InvalidFile."""

    def _use(self, content: Content) -> None:
        """Takes the first content, and each that differs from the one before."""

    @abstractmethod
    def _describe(self) -> str:
        """The log line about a changed content."""


def _stamps_of(paths: Iterable[Path]) -> list[tuple[int, int, int]]:
    stamps = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            stamps.append((0, 0, 0))
        else:
            stamps.append((status.st_mtime_ns, status.st_ino, status.st_size))
    return stamps


@dataclass(frozen=True, slots=True)
class _Certificates:
    pair: CertificatePair
    client_authorities: bytes
    context: ssl.SSLContext = field(compare=False)


class CertificateFiles(ReloadedFiles[_Certificates]):
    """Certificate and key from two files. Implements `dragoman.ports.security.ServerCertificates`."""

    FAILURE = "the new certificate cannot be used, the previous one stays in use"

    def __init__(
        self,
        certificate: Path,
        key: Path,
        client_ca: Path | None = None,
        refresh_revocations: Callable[..., object] | None = None,
    ) -> None:
        """Loads the files. Raises InvalidFile.

        client_ca: CA certificates; clients may then authenticate with certificates of these CAs. refresh_revocations:
        called by each `refresh`, with its `force`.
        """
        self._certificate = certificate
        self._key = key
        self._ca = client_ca
        self._refresh_revocations = refresh_revocations
        super().__init__(certificate, key, client_ca)

    def refresh(self, *, force: bool = False) -> bool:
        """Also refreshes the revocations. Returns whether a new certificate or new client CAs are in use."""
        if self._refresh_revocations is not None:
            self._refresh_revocations(force=force)
        return super().refresh(force=force)

    def _use(self, content: _Certificates) -> None:
        # With the context go its sessions: a resumed one has a certificate that is not verified again.
        self.pair, self.client_authorities, self.ssl_context = content.pair, content.client_authorities, content.context

    def _describe(self) -> str:
        return f"new connections use the new certificate in {self._certificate}"

    def _read(self) -> _Certificates:
        """Reads the pair and the client CAs, and builds an SSL context. Raises InvalidFile."""
        pair, client_authorities = self._read_files()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certificate, self._key, password=self._refuse_passphrase)
        except (OSError, ValueError) as error:
            raise InvalidFile(self._explain(error)) from error
        if client_authorities:
            # Optional: clients without a certificate may have other credentials, or call public agents.
            context.verify_mode = ssl.CERT_OPTIONAL
            try:
                context.load_verify_locations(cadata=client_authorities.decode("ascii"))
            except (ValueError, ssl.SSLError) as error:
                raise InvalidFile(f"{self._ca} must contain CA certificates in PEM") from error
        if (pair, client_authorities) != self._read_files():
            raise InvalidFile(f"{self._certificate}, {self._key} or the client CAs changed while they were read")
        return _Certificates(pair, client_authorities, context)

    def _read_files(self) -> tuple[CertificatePair, bytes]:
        contents = []
        for path in self._paths:
            try:
                contents.append(path.read_bytes())
            except OSError as error:
                raise InvalidFile(f"{path}: {error.strerror}") from error
        if self._ca is not None and not contents[2]:
            raise InvalidFile(f"{self._ca} must contain CA certificates in PEM; it is empty")
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
