"""A CA for one test, and the certificates it signs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives import serialization

NAMES: Final = ("localhost", "127.0.0.1", "::1")


class Authority:
    """A CA for this machine. Its own certificate is in the file `ca`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._authority = trustme.CA()
        self.ca = folder / f"{name}.pem"
        self._authority.cert_pem.write_to_path(self.ca)

    def issue(self) -> tuple[bytes, bytes]:
        """A certificate with its chain, and its key, both in PEM."""
        issued = self._authority.issue_cert(*NAMES)
        return b"".join(part.bytes() for part in issued.cert_chain_pems), issued.private_key_pem.bytes()


def write(folder: Path, pair: tuple[bytes, bytes]) -> tuple[Path, Path]:
    """Writes the files of a certificate and its key, each replaced atomically."""
    paths = folder / "cert.pem", folder / "key.pem"
    for path, content in zip(paths, pair, strict=True):
        new = path.with_suffix(".new")
        new.write_bytes(content)
        new.replace(path)
    return paths


def encrypted(key: bytes) -> bytes:
    """The key, encrypted with a passphrase."""
    loaded = serialization.load_pem_private_key(key, None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
