"""API keys and client certificates: text forms, digests, principals.

    dgm_qx4m2ltw7a6e_k3vz…(52)…5hjb…(7)      id, secret, checksum

The id is not secret: tables, logs and operators use it. With the checksum (CRC-32 of the text before it) a scanner
recognizes a leaked key, and a truncated or mistyped key is rejected without a lookup. The SHA-256 of the whole text is
stored. A slow hash (bcrypt, Argon2) protects passwords, which can be guessed; 256 random bits cannot be guessed, and a
slow hash would cost time on every call, including those of attackers."""

from __future__ import annotations

import hashlib
import hmac
import re
import zlib
from base64 import b32encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from dragoman.core.access.identity import Identity, check_grants, check_principal
from dragoman.core.names import split_items

API_KEY_PREFIX: Final = "dgm_"

API_KEY_ID_BYTES: Final = 8
API_KEY_SECRET_BYTES: Final = 32
"""Random bytes in a key's id and in its secret."""

API_KEY_ID: Final = re.compile(r"[a-z2-7]{12}")
_API_KEY_PATTERN: Final = re.compile(r"(dgm_(?P<id>[a-z2-7]{12})_[a-z2-7]{52})(?P<checksum>[a-z2-7]{7})")


class PresentedKey(NamedTuple):
    """The id in the text of a key, and the digest that proves its secret."""

    id: str
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A stored API key. Times are milliseconds since the epoch, 0 for never."""

    id: str
    name: str  # a label for people
    principal: str  # the owner of the tasks that it can access; several keys may share one
    grants: frozenset[str] = frozenset()
    digest: bytes = field(repr=False)
    created: int
    expires: int = 0
    used: int = 0
    """Approximate time of last use, updated at most every ten minutes."""
    rotated: int = 0
    revoked: int = 0
    former: bytes = field(default=b"", repr=False)
    """The digest of the secret before the last rotation, valid until `former_until`."""
    former_until: int = 0

    @property
    def identity(self) -> Identity:
        return Identity(self.principal, self.grants, self.id)

    def matches(self, digest: bytes, now: int) -> bool:
        """Whether the digest is that of the current secret, or of the former one while it is valid."""
        is_former = hmac.compare_digest(digest, self.former) and now < self.former_until
        return hmac.compare_digest(digest, self.digest) or is_former

    def problem(self, now: int) -> str:
        """Why the key is not valid at `now` (milliseconds); empty when it is."""
        if self.revoked:
            return "was revoked"
        return "has expired" if self.expires and now >= self.expires else ""


def new_api_key_id(random_bytes: bytes) -> str:
    """The id of a new key, from API_KEY_ID_BYTES random bytes."""
    return _base32(random_bytes)[:12]


def format_api_key(id: str, random_bytes: bytes) -> str:
    """The text of a key, from API_KEY_SECRET_BYTES random bytes. Only its `api_key_digest` may be stored."""
    text = f"{API_KEY_PREFIX}{id}_{_base32(random_bytes)}"
    return text + _checksum(text)


def parse_api_key(text: str) -> PresentedKey | None:
    """Parses the text of a key; None when it is not one, or is truncated or mistyped."""
    match = _API_KEY_PATTERN.fullmatch(text)
    if match is None or _checksum(match[1]) != match["checksum"]:
        return None
    return PresentedKey(match["id"], api_key_digest(text))


def api_key_digest(text: str) -> bytes:
    """The SHA-256 of a key's text, which is stored in its place."""
    return hashlib.sha256(text.encode()).digest()


def _base32(data: bytes) -> str:
    return b32encode(data).decode().rstrip("=").lower()


def _checksum(text: str) -> str:
    return _base32(zlib.crc32(text.encode()).to_bytes(4, "big"))


CertificateName = Literal["cn", "uri", "dns", "email"]
"""The common name of the subject (RFC 5280 §4.1.2.6), or a subject alternative name of this kind (§4.2.1.6)."""

CERTIFICATE_ID_PREFIX: Final = "certificate:"
"""The prefix of a certificate's credential id, which is in the same field as the ids of API keys."""


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """The relevant fields of a client certificate. Times are seconds since the epoch."""

    issuer: str
    serial: int
    not_before: float
    not_after: float
    names: Mapping[CertificateName, tuple[str, ...]]

    def principal(self, kind: CertificateName) -> str:
        """The principal in its names of this kind. Raises ValueError when there is not exactly one."""
        names = self.names.get(kind, ())
        if len(names) != 1:
            raise ValueError(f"it must have one {_NAME_LABELS[kind]}, and has {len(names) or 'none'}")
        return check_principal(names[0])


@dataclass(frozen=True, slots=True)
class CertificatePrincipals:
    """How client certificates map to principals and grants."""

    name_kind: CertificateName = "cn"
    grants: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Grants by principal. A principal without an entry may call every agent, and nothing else."""


def parse_certificate_grants(value: Any) -> dict[str, frozenset[str]]:
    """Parses grants by principal: a table, or `alice=operator,box1=worker:desk worker:shop`. Raises ValueError."""
    if isinstance(value, str):
        table: dict[str, Any] = {}
        for item in split_items(value):
            name, equals, granted = item.rpartition("=")
            if not equals:
                raise ValueError(f'"{item}" is not PRINCIPAL=GRANT, such as alice=operator')
            table[name.strip()] = granted.split()
        value = table
    if not isinstance(value, Mapping):
        raise ValueError("must be a table of grants by principal, or PRINCIPAL=GRANT with commas between")
    grants = {}
    for principal, granted in value.items():
        words = granted.split() if isinstance(granted, str) else granted
        if not isinstance(words, list | tuple | frozenset) or not all(isinstance(word, str) for word in words):
            raise ValueError(f'"{principal}": must be a grant, or a list of grants')
        grants[check_principal(str(principal))] = check_grants(words)
    return grants


_NAME_LABELS: Final[Mapping[CertificateName, str]] = {
    "cn": "common name in its subject",
    "uri": "URI among its subject alternative names",
    "dns": "DNS name among its subject alternative names",
    "email": "e-mail address among its subject alternative names",
}
