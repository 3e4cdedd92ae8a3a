"""What signing needs: keys that take each other's place, and a place where secrets are sealed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from dragoman.core.signing import SigningKey, State


class SigningKeys(Protocol):
    """The keys with which this server signs letters and cards. All raise children of core.errors.A2AError."""

    async def public(self) -> bytes:
        """A JWK set as JSON: what signatures are checked with."""
        ...

    async def list(self) -> Sequence[tuple[SigningKey, State]]:
        """Those that are shown, and what each is, the newest first."""
        ...

    async def rotate(self, algorithm: str, *, lead: int, keep: int) -> SigningKey:
        """Makes a key that is shown at once and signs after `lead`; the one before is shown for `keep` after that.

        Both are milliseconds. algorithm: empty for that of the key that signs. Raises InvalidParams, and Unavailable
        when somebody else changed the keys in the same moment.
        """
        ...

    async def withdraw(self, id: str) -> None:
        """Shows a key no more, so that what it signed counts no more. Raises KeyNotFound, InvalidParams for the one
        that signs."""
        ...


class CardSigner(Protocol):
    """Signs cards with the key of the server that signs at the time."""

    def sign(self, texts: Iterable[bytes], keys_url: str) -> list[tuple[str, str]]:
        """A signature for each text: its protected header, and the signature itself, as AgentCardSignature has them.
        `keys_url`: where everybody finds the keys."""
        ...


class Vault(Protocol):
    """Keeps secrets from who can read the store."""

    def seal(self, text: str, about: str) -> str:
        """The text as it is kept, which opens for the same `about` only. Empty texts stay empty."""
        ...

    def open(self, kept: str, about: str) -> str:
        """The text that was sealed; one that was not is given as it is. Raises ValueError when it cannot be opened."""
        ...
