"""Key pairs that signatures are made with: from a seed to both halves, and what of the public one is shown."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256, sha512
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from jwt import PyJWS
from jwt.algorithms import ECAlgorithm, OKPAlgorithm

from dragoman.core.access.signing_keys import SIGNING_ALGORITHMS, SigningAlgorithm

_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of P-256's group (SEC 2 §2.4.2): private keys are numbers below it."""

_JWS_SIGNER: Final = PyJWS(algorithms=list(SIGNING_ALGORITHMS))


class KeyPair:
    """A key pair. The same seed makes the same one."""

    def __init__(self, algorithm: SigningAlgorithm, seed: bytes) -> None:
        """seed: 32 bytes that nobody else knows."""
        self.algorithm = algorithm
        self._private: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
        shown: Mapping[str, Any]
        if algorithm == "ES256":
            # 512 bits, so that the remainder favours no number to speak of.
            number = int.from_bytes(sha512(seed).digest()) % (_P256_ORDER - 1) + 1
            self._private = private = ec.derive_private_key(number, ec.SECP256R1())
            shown = ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
        else:
            self._private = edwards = ed25519.Ed25519PrivateKey.from_private_bytes(sha256(seed).digest())
            shown = OKPAlgorithm.to_jwk(edwards.public_key(), as_dict=True)
        known: dict[str, str] = {name: str(shown[name]) for name in ("crv", "kty", "x", "y") if name in shown}
        self.id = _thumbprint(known)
        self.public = {**known, "kid": self.id, "alg": algorithm, "use": "sig"}

    def sign(self, payload: bytes, header: Mapping[str, str]) -> str:
        """A JWS in the compact form (RFC 7515 §7.1), whose header also names the key."""
        return _JWS_SIGNER.encode(
            payload, self._private, algorithm=self.algorithm, headers={**header, "kid": self.id}, sort_headers=True
        )


def _thumbprint(public_members: Mapping[str, str]) -> str:
    """The name of a key that follows from it (RFC 7638)."""
    digest = sha256(json.dumps(public_members, separators=(",", ":"), sort_keys=True).encode()).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
