"""API keys: how one is written, and what is kept of it.

    dgm_qx4m2ltw7a6e_k3vz…(52)…5hjb…(7)
        id            secret      checksum

The id is no secret: tables, logs and operators call the key by it. The checksum (CRC-32 of what stands before it) lets
a scanner know a leaked key without asking, and lets a cut or mistyped one be refused without looking it up.

What is kept is the SHA-256 of the whole text. A hash that is slow on purpose (bcrypt, Argon2) protects what people can
remember, and so others can guess; a secret of 256 random bits cannot be guessed at any speed, while a slow hash would
have to be paid for every call, by strangers' calls too.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import zlib
from base64 import b32encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, cast, get_args

from dragoman.core.access.identity import Identity, check_grants, check_principal

API_KEY_PREFIX: Final = "dgm_"

API_KEY_ID_BYTES: Final = 8
API_KEY_SECRET_BYTES: Final = 32
"""Random bytes that an id and a secret are made of."""

API_KEY_ID: Final = re.compile(r"[a-z2-7]{12}")
_API_KEY_PATTERN: Final = re.compile(r"(dgm_(?P<id>[a-z2-7]{12})_[a-z2-7]{52})(?P<checksum>[a-z2-7]{7})")


class PresentedKey(NamedTuple):
    """What a key's text says: which key it means, and the digest that proves it."""

    id: str
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One key as it is kept. Times are milliseconds since the epoch, 0 for never."""

    id: str
    name: str
    """For people."""
    principal: str
    """Whose tasks it reaches; several keys may share one."""
    grants: frozenset[str] = frozenset()
    digest: bytes = field(repr=False)
    created: int
    expires: int = 0
    used: int = 0
    """About when it was last shown: looked up again only after ten minutes."""
    rotated: int = 0
    revoked: int = 0
    former: bytes = field(default=b"", repr=False)
    """The digest of the secret before the last rotation, which is good until `former_until`."""
    former_until: int = 0

    @property
    def identity(self) -> Identity:
        """Who shows it."""
        return Identity(self.principal, self.grants, self.id)

    def matches(self, digest: bytes, now: int) -> bool:
        """Whether a text with this digest is this key: the secret of now, or that of before while it is good."""
        is_former = hmac.compare_digest(digest, self.former) and now < self.former_until
        return hmac.compare_digest(digest, self.digest) or is_former

    def problem(self, now: int) -> str:
        """Why it is not good any more; empty while it is."""
        if self.revoked:
            return "was revoked"
        return "has expired" if self.expires and now >= self.expires else ""


def new_api_key_id(entropy: bytes) -> str:
    """The id of a new key."""
    return _base32(entropy)[:12]


def format_api_key(id: str, entropy: bytes) -> str:
    """The text of a key, of which nothing but `api_key_digest` must be kept."""
    text = f"{API_KEY_PREFIX}{id}_{_base32(entropy)}"
    return text + _checksum(text)


def parse_api_key(text: str) -> PresentedKey | None:
    """What a text says if it is a key, whole and without a slip; otherwise None."""
    found = _API_KEY_PATTERN.fullmatch(text)
    if found is None or _checksum(found[1]) != found["checksum"]:
        return None
    return PresentedKey(found["id"], api_key_digest(text))


def api_key_digest(text: str) -> bytes:
    """What is kept of a key's text."""
    return hashlib.sha256(text.encode()).digest()


def _base32(data: bytes) -> str:
    return b32encode(data).decode().rstrip("=").lower()


def _checksum(text: str) -> str:
    return _base32(zlib.crc32(text.encode()).to_bytes(4, "big"))


CertificateName = Literal["cn", "uri", "dns", "email"]
"""The common name of the subject (RFC 5280 §4.1.2.6), or a subject alternative name of this kind (§4.2.1.6)."""

CERTIFICATE_NAMES: Final = cast("tuple[CertificateName, ...]", get_args(CertificateName))

CERTIFICATE_ID_PREFIX: Final = "certificate:"
"""What stands before the number of a certificate where else the id of an API key stands."""


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """What matters of a client's certificate. Times are seconds since the epoch."""

    issuer: str
    serial: int
    not_before: float
    not_after: float
    names: Mapping[CertificateName, tuple[str, ...]]

    def principal(self, kind: CertificateName) -> str:
        """Its holder. Raises ValueError, naming the rule, when there is none, or more than one."""
        said = self.names.get(kind, ())
        if len(said) != 1:
            raise ValueError(f"it must have one {_NAME_LABELS[kind]}, and has {len(said) or 'none'}")
        return check_principal(said[0])


@dataclass(frozen=True, slots=True)
class CertificatePrincipals:
    """How certificates become principals, and their grants."""

    name_kind: CertificateName = "cn"
    grants: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By principal; who is not there may call every agent, and nothing else."""


def parse_certificate_grants(value: Any) -> dict[str, frozenset[str]]:
    """Grants by principal: a table, or `alice=operator,box1=worker:desk worker:shop`. Raises ValueError."""
    if isinstance(value, str):
        table: dict[str, Any] = {}
        for item in filter(None, map(str.strip, value.split(","))):
            name, equals, granted = item.rpartition("=")
            if not equals:
                raise ValueError(f'"{item}" is not PRINCIPAL=GRANT, such as alice=operator')
            table[name.strip()] = granted.split()
        value = table
    if not isinstance(value, Mapping):
        raise ValueError("must be a table of grants by principal, or PRINCIPAL=GRANT with commas between")
    found = {}
    for principal, granted in value.items():
        words = granted.split() if isinstance(granted, str) else granted
        if not isinstance(words, list | tuple | frozenset) or not all(isinstance(word, str) for word in words):
            raise ValueError(f'"{principal}": must be a grant, or a list of grants')
        found[check_principal(str(principal))] = check_grants(words)
    return found


_NAME_LABELS: Final[Mapping[CertificateName, str]] = {
    "cn": "common name in its subject",
    "uri": "URI among its subject alternative names",
    "dns": "DNS name among its subject alternative names",
    "email": "e-mail address among its subject alternative names",
}
