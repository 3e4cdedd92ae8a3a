"""The keys with which a server signs: which one does, which are shown, and how one takes the place of another.

A key is shown before it signs, so that whoever remembers the keys (RFC 7517) has it by then, and stays shown after it
has signed for the last time, so that what is under way can still be checked:

| a key is | from          | until   | shown |
|----------|---------------|---------|-------|
| next     | it was made   | `signs` | yes   |
| signing  | `signs`       | the next one's `signs` | yes |
| former   |               | `until` | yes   |
| gone     | `until`       |         | no    |

Times are milliseconds since the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal, cast, get_args

SigningAlgorithm = Literal["ES256", "EdDSA"]
"""RFC 7518 §3.4, on P-256; RFC 8037 §3.1, on Ed25519."""

SigningKeyState = Literal["next", "signing", "former", "gone"]
"""See the table above."""

SIGNING_ALGORITHMS: Final = cast("tuple[SigningAlgorithm, ...]", get_args(SigningAlgorithm))

DEFAULT_KEY_LEAD_MS: Final = 3_600_000
"""Milliseconds for which a new key is shown before it signs, when nobody says how long: receivers that remember keys
for an hour have it then."""

DEFAULT_KEY_KEEP_MS: Final = 7 * 86_400_000
"""Milliseconds for which a key is shown after it signed for the last time: as long as a signed card may lie about."""

MAX_KEY_PERIOD_MS: Final = 366 * 86_400_000
"""Milliseconds that either may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """One key, as it is kept."""

    id: str
    """The thumbprint of its public half (RFC 7638), which signatures name as `kid`."""
    algorithm: SigningAlgorithm
    seed: str
    """What its private half is made of, as it is kept; empty for the one that follows from the store."""
    made: int
    signs: int
    """From when on it signs, unless a later one does."""
    until: int = 0
    """When it is shown no more; 0 while it is in use."""

    def is_published(self, now: int) -> bool:
        return not self.until or now < self.until


def active_key(keys: Iterable[SigningKey], now: int) -> SigningKey:
    """The one that signs: the newest of those whose time has come. There is one, unless somebody took it away."""
    ready = [key for key in keys if key.signs <= now and key.is_published(now)]
    return max(reversed(ready), key=lambda key: key.signs)  # of two in one millisecond the later one


def published_keys(keys: Iterable[SigningKey], now: int) -> list[SigningKey]:
    """Those with which signatures may be checked, the newest first."""
    return sorted((key for key in keys if key.is_published(now)), key=lambda key: (-key.signs, -key.made))


def key_state(key: SigningKey, keys: Iterable[SigningKey], now: int) -> SigningKeyState:
    """What a key is; see the table above."""
    if not key.is_published(now):
        return "gone"
    if key.signs > now:
        return "next"
    return "signing" if key == active_key(keys, now) else "former"


def rotate_keys(keys: Sequence[SigningKey], new_key: SigningKey, *, keep: int, now: int) -> tuple[SigningKey, ...]:
    """The keys with one more, which signs from its own `signs` on; the one before is shown for `keep` after that.

    Raises ValueError while another one waits to sign: the two would be in each other's way.
    """
    if any(key.signs > now and key.is_published(now) for key in keys):
        raise ValueError("a new key is shown already and does not sign yet; withdraw it, or wait until it does")
    end = new_key.signs + keep
    former = [replace(key, until=key.until or end) for key in keys if key.is_published(now)]
    return (*former, new_key)


def withdraw_key(keys: Sequence[SigningKey], id: str, now: int) -> tuple[SigningKey, ...]:
    """The keys without one, as after a theft: what it signed counts no more. One that had not signed yet leaves
    everything as it was before it came. Raises KeyError for none that is shown, ValueError for the one that signs."""
    found = next((key for key in keys if key.id == id and key.is_published(now)), None)
    if found is None:
        raise KeyError(id)
    if found == active_key(keys, now):
        raise ValueError("this key signs; rotate to another one first, with a lead of 0 if there is haste")
    rest = tuple(key for key in keys if key.id != id)
    if found.signs > now:  # nobody takes the place of the one that signs any more
        current = active_key(rest, now)
        rest = tuple(replace(key, until=0) if key == current else key for key in rest)
    return rest


def signing_keys_to_json(keys: Iterable[SigningKey]) -> str:
    """The keys as a text."""
    return json.dumps([asdict(key) for key in keys], separators=(",", ":"))


def signing_keys_from_json(text: str) -> tuple[SigningKey, ...]:
    """The keys in such a text."""
    return tuple(SigningKey(**one) for one in json.loads(text))
