"""A NATS server whose users have signed claims, as set up by `nsc`, and a credentials file."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]


def _key(kind: int) -> Any:
    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), kind))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _signed(claims: dict[str, Any], by: Any) -> str:
    """A JWT in NATS's own dialect: Ed25519, and a `jti` that is a digest of the claims."""
    claims = {"iat": 0, "iss": by.public_key.decode()} | claims
    digest = hashlib.sha256(json.dumps(claims).encode()).digest()
    claims["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
    parts = (_text(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, claims))
    text = ".".join(parts)
    return f"{text}.{_text(by.sign(text.encode()))}"


def with_claims(folder: Path, publish: list[str], subscribe: list[str]) -> tuple[str, Path]:
    """The configuration of a server, and the credentials of a user with these permissions."""
    operator = _key(nkeys.PREFIX_BYTE_OPERATOR)
    account = _key(nkeys.PREFIX_BYTE_ACCOUNT)
    user = _key(nkeys.PREFIX_BYTE_USER)
    root = _signed(
        {"sub": operator.public_key.decode(), "name": "o", "nats": {"type": "operator", "version": 2}}, operator
    )
    limits = dict.fromkeys(("subs", "data", "payload", "conn", "leaf", "imports", "exports"), -1)
    tenant = _signed(
        {
            "sub": account.public_key.decode(),
            "name": "a",
            "nats": {"type": "account", "version": 2, "limits": limits | {"wildcards": True}},
        },
        operator,
    )
    permissions = {"pub": {"allow": publish}, "sub": {"allow": subscribe}}
    claims = _signed(
        {
            "sub": user.public_key.decode(),
            "name": "u",
            "nats": {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, **permissions},
        },
        account,
    )
    file = folder / "user.creds"
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{claims}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    resolver = f"resolver: MEMORY\nresolver_preload: {{ {account.public_key.decode()}: {tenant} }}\n"
    return f"operator: {root}\n{resolver}", file
