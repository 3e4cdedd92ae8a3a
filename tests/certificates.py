"""CAs for one test, of servers and of clients, and what they sign."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAMES: Final = ("localhost", "127.0.0.1", "::1")
DAY: Final = timedelta(days=1)


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


class ClientAuthority:
    """A CA for clients. Its certificate is in the file `ca`."""

    def __init__(self, folder: Path, name: str = "clients") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca = folder / f"{name}.pem"
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(self._name, self._name, self._key.public_key(), 1, now - DAY, now + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self._serial = 100

    def issue(self, who: str, *, uri: str = "", begins: timedelta = -DAY, ends: timedelta = DAY) -> Path:
        """The file of a certificate and its key."""
        self._serial += 1
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        names = [x509.NameAttribute(NameOID.COMMON_NAME, who)] if who else []
        builder = x509.CertificateBuilder(
            self._name, x509.Name(names), key.public_key(), self._serial, now + begins, now + ends
        ).add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        if uri:
            alternatives = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
            builder = builder.add_extension(alternatives, critical=False)
        path = self._folder / f"{self.ca.stem}-{who or 'nobody'}-{self._serial}.pem"
        path.write_bytes(
            builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return path

    def crl(self, *paths: Path, due: timedelta = DAY, der: bool = False) -> bytes:
        """The CRL of revoked certificates."""
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder(self._name, now - 2 * DAY, now + due)
        for path in paths:
            revoked = x509.RevokedCertificateBuilder(serial_of(path), now - DAY)
            builder = builder.add_revoked_certificate(revoked.build())
        encoding = serialization.Encoding.DER if der else serialization.Encoding.PEM
        return builder.sign(self._key, hashes.SHA256()).public_bytes(encoding)


def serial_of(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number
