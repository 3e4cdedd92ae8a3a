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
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dragoman.core.identity import Identity

PREFIX: Final = "dgm_"

ID_ENTROPY: Final = 8
SECRET_ENTROPY: Final = 32
"""Random bytes that an id and a secret are made of."""

ID: Final = re.compile(r"[a-z2-7]{12}")
_FORM: Final = re.compile(r"(dgm_(?P<id>[a-z2-7]{12})_[a-z2-7]{52})(?P<checksum>[a-z2-7]{7})")


class Shown(NamedTuple):
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

    def proves(self, digest: bytes, now: int) -> bool:
        """Whether a text with this digest is this key: the secret of now, or that of before while it is good."""
        is_former = hmac.compare_digest(digest, self.former) and now < self.former_until
        return hmac.compare_digest(digest, self.digest) or is_former

    def trouble(self, now: int) -> str:
        """Why it is not good any more; empty while it is."""
        if self.revoked:
            return "was revoked"
        return "has expired" if self.expires and now >= self.expires else ""


def new_id(entropy: bytes) -> str:
    """The id of a new key."""
    return _base32(entropy)[:12]


def write(id: str, entropy: bytes) -> str:
    """The text of a key, of which nothing but `digest_of` must be kept."""
    text = f"{PREFIX}{id}_{_base32(entropy)}"
    return text + _checksum(text)


def read(text: str) -> Shown | None:
    """What a text says if it is a key, whole and without a slip; otherwise None."""
    found = _FORM.fullmatch(text)
    if found is None or _checksum(found[1]) != found["checksum"]:
        return None
    return Shown(found["id"], digest_of(text))


def digest_of(text: str) -> bytes:
    """What is kept of a key's text."""
    return hashlib.sha256(text.encode()).digest()


def _base32(data: bytes) -> str:
    return b32encode(data).decode().rstrip("=").lower()


def _checksum(text: str) -> str:
    return _base32(zlib.crc32(text.encode()).to_bytes(4, "big"))
