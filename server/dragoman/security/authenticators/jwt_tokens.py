"""Tokens that issuers signed (JWT: RFC 7519, as RFC 8725 would have it looked at).

In this order: form, issuer, header, claims, key, signature. What a token says is looked at before its signature, so
that what is refused anyway costs no key to be fetched; nothing of it counts before the signature does. A signature that
was good is not checked again while the issuer's key is the same; everything else is, each time.
"""

from __future__ import annotations

import binascii
import re
import time
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from jwt import PyJWK, PyJWS
from jwt.exceptions import PyJWTError

from dragoman.core.access import jwt_claims
from dragoman.core.access.identity import Identity
from dragoman.core.access.jwt_claims import TOKEN_ALGORITHMS, Issuer, invalid_token
from dragoman.core.errors import A2AError, PermissionDenied, Unauthenticated
from dragoman.security.authenticators.jwks import IssuerKeySet
from dragoman.wire import body_scan

MAX_VERIFIED_TOKENS: Final = 1024
"""Tokens whose signatures are not checked again, as long as the key is the same."""

_JWT_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_JWS_VERIFIER: Final = PyJWS(algorithms=list(TOKEN_ALGORITHMS))


class JwtAuthenticator:
    """Knows callers by tokens of the issuers that this server trusts."""

    def __init__(
        self,
        issuers: Iterable[tuple[Issuer, IssuerKeySet]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives seconds since the epoch."""
        self._issuers = {issuer.url: (issuer, keys) for issuer, keys in issuers}
        self._clock = clock
        self._verified: OrderedDict[bytes, _ParsedToken] = OrderedDict()

    async def identify(self, text: str) -> Identity | None:
        """Whom this token names; None for what is no token. Raises Unauthenticated, PermissionDenied for scopes it
        lacks, Unavailable while its issuer's keys are not to be had."""
        if not _JWT_PATTERN.fullmatch(text):
            return None
        digest = sha256(text.encode()).digest()
        read = self._verified.get(digest) or self._parse(text)
        try:
            jwt_claims.check_claims(read.claims, read.issuer, self._clock())
            key = await read.keys.find(read.kid, read.algorithm)
            if read.key is not key:
                _verify(text, key, read.algorithm)
                self._cache_verified(digest, read, key)
            return jwt_claims.identity_from_claims(read.claims, read.issuer)
        except (Unauthenticated, PermissionDenied) as error:
            error.log_details = {**read.log_fields, **error.log_details}
            raise

    def _parse(self, text: str) -> _ParsedToken:
        """Parses a token without verifying it."""
        head, body, _ = text.split(".")
        header, claims = _decode_segment("header", head), _decode_segment("claims", body)
        url = str(claims.get("iss"))
        issuer, keys = self._issuers.get(url, (None, None))
        if issuer is None or keys is None:
            raise invalid_token("the token's issuer is none that this server trusts", issuer=url[:100])
        try:
            algorithm, kid = jwt_claims.check_token_header(header, issuer)
        except Unauthenticated as error:
            error.log_details = {"issuer": issuer.url}
            raise
        return _ParsedToken(claims, issuer, keys, algorithm, kid)

    def _cache_verified(self, digest: bytes, token: _ParsedToken, key: PyJWK) -> None:
        token.key = key
        self._verified[digest] = token
        if len(self._verified) > MAX_VERIFIED_TOKENS:
            self._verified.popitem(last=False)


@dataclass(slots=True)
class _ParsedToken:
    """A token that was read, and the key that was found to have signed it, if it was looked at."""

    claims: dict[str, Any]
    issuer: Issuer
    keys: IssuerKeySet
    algorithm: str
    kid: str | None
    key: PyJWK | None = None

    @property
    def log_fields(self) -> dict[str, str]:
        return {"issuer": self.issuer.url, **({"kid": self.kid[:64]} if self.kid else {})}


def _verify(text: str, key: PyJWK, algorithm: str) -> None:
    try:
        _JWS_VERIFIER.decode_complete(text, key, algorithms=[algorithm])
    except (PyJWTError, ValueError) as error:
        raise invalid_token("the token's signature is not its issuer's") from error


def _decode_segment(name: str, text: str) -> dict[str, Any]:
    try:
        # A number too large for us may stand in a claim that we do not read.
        value = body_scan.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)), lossy_numbers=True)
    except (binascii.Error, ValueError, A2AError) as error:
        raise invalid_token(f"the token's {name} cannot be read") from error
    if not isinstance(value, dict):
        raise invalid_token(f"the token's {name} is no JSON object")
    return value
