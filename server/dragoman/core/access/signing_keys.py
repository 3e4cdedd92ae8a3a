"""Rotation of the server's signing keys. Times are milliseconds since the epoch.

A key is published before it signs, so that receivers that cache the key set (RFC 7517) have it by then, and after its
last signature, so that recent signatures can still be verified. States: `next` (published, signs later), `signing`
(until the `signs` of the next key), `former` (published until `until`), `gone` (no longer published).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal, cast, get_args

SigningAlgorithm = Literal["ES256", "EdDSA"]  # RFC 7518 §3.4, on P-256; RFC 8037 §3.1, on Ed25519
SigningKeyState = Literal["next", "signing", "former", "gone"]  # see the module's docstring
SIGNING_ALGORITHMS: Final = cast("tuple[SigningAlgorithm, ...]", get_args(SigningAlgorithm))

DEFAULT_KEY_LEAD_MS: Final = 3_600_000
"""Default time in milliseconds for which a new key is published before it signs: receivers that cache keys for an hour
have it then."""

DEFAULT_KEY_RETENTION_MS: Final = 7 * 86_400_000
"""Default time in milliseconds for which a key is published after its last signature: the lifetime of a cached card."""

MAX_KEY_PERIOD_MS: Final = 366 * 86_400_000  # the maximum of both, in milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A stored signing key."""

    id: str  # the thumbprint of its public key (RFC 7638), which is the `kid` of signatures
    algorithm: SigningAlgorithm
    seed: str
    """The stored form of its private key's seed; empty for the key derived from the store's secret."""
    made: int
    signs: int  # when it starts to sign, unless a later key does
    until: int = 0  # when it is no longer published; 0 while it is in use

    def is_published(self, now: int) -> bool:
        return not self.until or now < self.until


def active_key(keys: Iterable[SigningKey], now: int) -> SigningKey:
    """The key that signs at `now`: the newest that has reached `signs`. Raises ValueError when there is none."""
    ready = [key for key in keys if key.signs <= now and key.is_published(now)]
    return max(reversed(ready), key=lambda key: key.signs)  # of two in one millisecond, the later one


def published_keys(keys: Iterable[SigningKey], now: int) -> list[SigningKey]:
    """The keys that verify signatures at `now`, newest first."""
    return sorted((key for key in keys if key.is_published(now)), key=lambda key: (-key.signs, -key.made))


def key_state(key: SigningKey, keys: Iterable[SigningKey], now: int) -> SigningKeyState:
    if not key.is_published(now):
        return "gone"
    if key.signs > now:
        return "next"
    return "signing" if key == active_key(keys, now) else "former"


def rotate_keys(keys: Sequence[SigningKey], new_key: SigningKey, *, retention: int, now: int) -> tuple[SigningKey, ...]:
    """Adds a key, which signs from its `signs` on; the key before is published for `retention` milliseconds after that.

    Raises ValueError while another key is published and does not sign yet.
    """
    if any(key.signs > now and key.is_published(now) for key in keys):
        raise ValueError("a new key is already published and does not sign yet; withdraw it, or wait until it signs")
    end = new_key.signs + retention
    former = [replace(key, until=key.until or end) for key in keys if key.is_published(now)]
    return (*former, new_key)


def withdraw_key(keys: Sequence[SigningKey], id: str, now: int) -> tuple[SigningKey, ...]:
    """Removes a key, as after a theft: its signatures are no longer valid.

    Removing a key that has not signed yet undoes its rotation. Raises KeyError when no such key is published,
    ValueError for the key that signs.
    """
    withdrawn = next((key for key in keys if key.id == id and key.is_published(now)), None)
    if withdrawn is None:
        raise KeyError(id)
    if withdrawn == active_key(keys, now):
        raise ValueError("this key signs; rotate to another key first, with a lead of 0 if it is urgent")
    rest = tuple(key for key in keys if key.id != id)
    if withdrawn.signs > now:  # the current key has no successor any more
        current = active_key(rest, now)
        rest = tuple(replace(key, until=0) if key == current else key for key in rest)
    return rest


def signing_keys_to_json(keys: Iterable[SigningKey]) -> str:
    return json.dumps([asdict(key) for key in keys], separators=(",", ":"))


def signing_keys_from_json(text: str) -> tuple[SigningKey, ...]:
    return tuple(SigningKey(**fields) for fields in json.loads(text))
