"""Signatures on cards (A2A 1.0 §8.4.2): a JWS for each text that readers make of a card, without the text itself."""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.security.signing_keys import SigningKeys


class CardSigner:
    """Implements `dragoman.ports.CardSigner`."""

    def __init__(self, keys: SigningKeys) -> None:
        """`keys` have been looked at before."""
        self._keys = keys

    def sign(self, texts: Iterable[bytes], keys_url: str) -> list[tuple[str, str]]:
        key, header = self._keys.at_hand, {"typ": "JOSE", "jku": keys_url}
        signed = (key.sign(text, header).split(".") for text in texts)
        return [(protected, signature) for protected, _, signature in signed]
