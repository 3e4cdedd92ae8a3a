"""Signatures under letters: who sent it, to whom, when, which one it is, and that nobody changed it.

A signature is a JWT (RFC 7519) with the digest of the body, made with the key of the server that signs at the time and
whose public half everybody can read (RFC 7517). So a receiver can tell letters of this server from those of others
without having shared a secret, and a repeat from something new without believing anything that is not signed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from dragoman.entropy import ENTROPY
from dragoman.security.signing_keys import SigningKeys

LASTS: Final = 300
"""Seconds for which a signature is good."""


class LetterSigner:
    """Implements `dragoman.ports.Signer`."""

    def __init__(
        self,
        keys: SigningKeys,
        issuer: Callable[[], str],
        *,
        clock: Callable[[], float] = time.time,
        ids: Callable[[], str] = ENTROPY.uuid,
    ) -> None:
        """`issuer` gives the public address of this server, `clock` seconds since the epoch."""
        self._keys = keys
        self._issuer = issuer
        self._clock = clock
        self._ids = ids

    async def sign(self, audience: str, task: str, config: str, event: str, body: bytes) -> str:
        key, now = await self._keys.current(), int(self._clock())
        claims = {
            "iss": self._issuer(),
            "aud": audience,
            "iat": now,
            "exp": now + LASTS,
            "jti": self._ids(),
            "taskId": task,
            "configId": config,
            "event": event,
            "sequence": int(event.rpartition(".")[2]),
            "request_body_sha256": sha256(body).hexdigest(),
        }
        return key.sign(json.dumps(claims, separators=(",", ":")).encode(), {"typ": "JWT"})
