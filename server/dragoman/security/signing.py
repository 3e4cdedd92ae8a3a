"""Signatures under letters: who sent it, to whom, when, and that nobody changed it.

A signature is a JWT (RFC 7519) with the digest of the body, made with a key that a store has for itself and whose
public half everybody can read (RFC 7517). So a receiver can tell letters of this server from those of others without
having shared a secret. The key is P-256 (ES256, RFC 7518 §3.4): quick to sign with, and every library can check it.
"""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256, sha512
from typing import TYPE_CHECKING, Final

from dragoman.entropy import ENTROPY

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ALGORITHM: Final = "ES256"
LASTS: Final = 300
"""Seconds for which a signature is good."""

_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of P-256's group (SEC 2 §2.4.2): private keys are numbers below it."""


class LetterSigner:
    """Implements `dragoman.ports.Signer`."""

    def __init__(
        self,
        secret: bytes,
        issuer: Callable[[], str],
        *,
        clock: Callable[[], float] = time.time,
        ids: Callable[[], str] = ENTROPY.uuid,
    ) -> None:
        """The same `secret` makes the same key. `issuer` gives the public address of this server, `clock` seconds since
        the epoch."""
        self._secret = secret
        self._issuer = issuer
        self._clock = clock
        self._ids = ids
        self._key: _Key | None = None

    async def sign(self, audience: str, task: str, body: bytes) -> str:
        key, now = await self._made(), int(self._clock())
        claims = {
            "iss": self._issuer(),
            "aud": audience,
            "iat": now,
            "exp": now + LASTS,
            "jti": self._ids(),
            "taskId": task,
            "request_body_sha256": sha256(body).hexdigest(),
        }
        return key.sign(json.dumps(claims, separators=(",", ":")).encode())

    async def keys(self) -> bytes:
        return (await self._made()).public

    async def _made(self) -> _Key:
        if self._key is None:
            # Loading cryptography takes a tenth of a second, in which no stream shall stand still.
            self._key = await asyncio.to_thread(_Key, self._secret)
        return self._key


class _Key:
    """A key pair with what is shown of it."""

    def __init__(self, secret: bytes) -> None:
        # Not above: most servers never sign a letter.
        from cryptography.hazmat.primitives.asymmetric import ec
        from jwt import PyJWS
        from jwt.algorithms import ECAlgorithm

        # 512 bits, so that the remainder favours no number to speak of.
        number = int.from_bytes(sha512(secret).digest()) % (_ORDER - 1) + 1
        self._private: EllipticCurvePrivateKey = ec.derive_private_key(number, ec.SECP256R1())
        self._jws = PyJWS(algorithms=[ALGORITHM])
        shown = {
            name: str(value) for name, value in ECAlgorithm.to_jwk(self._private.public_key(), as_dict=True).items()
        }
        self._header = {"typ": "JWT", "kid": _thumbprint(shown)}
        public = {**shown, "kid": self._header["kid"], "alg": ALGORITHM, "use": "sig"}
        self.public = json.dumps({"keys": [public]}, separators=(",", ":")).encode()

    def sign(self, claims: bytes) -> str:
        return self._jws.encode(claims, self._private, algorithm=ALGORITHM, headers=self._header)


def _thumbprint(shown: dict[str, str]) -> str:
    """The name of a key that follows from it (RFC 7638)."""
    members = {name: shown[name] for name in ("crv", "kty", "x", "y")}
    digest = sha256(json.dumps(members, separators=(",", ":"), sort_keys=True).encode()).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
