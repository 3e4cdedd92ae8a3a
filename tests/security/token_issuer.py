"""A token issuer: its keys, its key set, and tokens signed by it or by an attacker."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

URL = "https://login.example.com/realms/a2a"
AUDIENCE = "dragoman"


@cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """The key of a name, the same throughout a run."""
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key(name: str) -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public_jwk(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    """The JWK of a key."""
    kinds: dict[type, Any] = {
        rsa.RSAPrivateKey: RSAAlgorithm,
        ec.EllipticCurvePrivateKey: ECAlgorithm,
        ed25519.Ed25519PrivateKey: OKPAlgorithm,
    }
    algorithm = next(algorithm for kind, algorithm in kinds.items() if isinstance(key, kind))
    values: dict[str, Any] = algorithm.to_jwk(key.public_key(), as_dict=True)
    return {**values, "kid": kid, "use": "sig", **more}


def public_pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def claims(now: float | None = None, **changes: Any) -> dict[str, Any]:
    """Claims valid for an hour; a change to None removes one."""
    at = time.time() if now is None else now
    values = {"iss": URL, "aud": AUDIENCE, "sub": "alice", "iat": int(at), "exp": int(at) + 3600, **changes}
    return {name: value for name, value in values.items() if value is not None}


def token(
    values: dict[str, Any] | None = None,
    *,
    key: Any = None,
    algorithm: str = "RS256",
    kid: str | None = "one",
    **header: Any,
) -> str:
    """A token, signed with the key `one` by default."""
    headers = {**({"kid": kid} if kid is not None else {}), **header}
    body = json.dumps(claims() if values is None else values).encode()
    return jwt.PyJWS().encode(body, key or rsa_key("one"), algorithm, headers=headers)


def by_hand(header: dict[str, Any], values: dict[str, Any] | None = None, signature: bytes = b"") -> str:
    """A token that libraries refuse to create."""
    parts = (json.dumps(header).encode(), json.dumps(claims() if values is None else values).encode(), signature)
    return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
