"""Authenticates callers by JWTs of trusted issuers (RFC 7519, RFC 8725).

Checks in this order: form, issuer, header, claims, key, signature. Claims come before the signature, so a token that is
rejected anyway causes no fetch of keys; they have no effect until the signature is verified. A verified signature is
cached while the issuer's key stays the same; everything else is checked with each request.
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
from dragoman.wire.json import request as json_request

MAX_VERIFIED_TOKENS: Final = 1024  # maximum tokens with a cached signature check
_JWT_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_JWS_VERIFIER: Final = PyJWS(algorithms=list(TOKEN_ALGORITHMS))


class JwtAuthenticator:
    """Authenticates callers by JWT."""

    def __init__(
        self,
        issuers: Iterable[tuple[Issuer, IssuerKeySet]],
        *,
        clock: Callable[[], float] = time.time,
        max_verified: int = MAX_VERIFIED_TOKENS,
    ) -> None:
        """clock: seconds since the epoch. max_verified: tokens whose signatures are remembered."""
        self._max_verified = max_verified
        self._issuers = {issuer.url: (issuer, keys) for issuer, keys in issuers}
        self._clock = clock
        self._verified: OrderedDict[bytes, _ParsedToken] = OrderedDict()

    async def identify(self, credential: str) -> Identity | None:
        """The identity of a JWT; None for other texts.

        Raises Unauthenticated, PermissionDenied for missing scopes, Unavailable without keys of its issuer.
        """
        if not _JWT_PATTERN.fullmatch(credential):
            return None
        digest = sha256(credential.encode()).digest()
        token = self._verified.get(digest) or self._parse(credential)
        try:
            jwt_claims.check_claims(token.claims, token.issuer, self._clock())
            key = await token.keys.find(token.kid, token.algorithm)
            if token.key is not key:
                _verify(credential, key, token.algorithm)
                token.key = key
                self._verified[digest] = token
                if len(self._verified) > self._max_verified:
                    self._verified.popitem(last=False)
            return jwt_claims.identity_from_claims(token.claims, token.issuer)
        except (Unauthenticated, PermissionDenied) as error:
            error.log_details = {**token.log_fields, **error.log_details}
            raise

    def _parse(self, credential: str) -> _ParsedToken:
        """Parses a token without verifying it."""
        header_segment, claims_segment, _ = credential.split(".")
        header, claims = _decode_segment("header", header_segment), _decode_segment("claims", claims_segment)
        url = str(claims.get("iss"))
        issuer, keys = self._issuers.get(url, (None, None))
        if issuer is None or keys is None:
            raise invalid_token("the token's issuer is not trusted by this server", issuer=url[:100])
        try:
            algorithm, kid = jwt_claims.check_token_header(header, issuer)
        except Unauthenticated as error:
            error.log_details = {"issuer": issuer.url}
            raise
        return _ParsedToken(claims, issuer, keys, algorithm, kid)


@dataclass(slots=True)
class _ParsedToken:
    """A parsed token, and the key that verified its signature, if any."""

    claims: dict[str, Any]
    issuer: Issuer
    keys: IssuerKeySet
    algorithm: str
    kid: str | None
    key: PyJWK | None = None

    @property
    def log_fields(self) -> dict[str, str]:
        return {"issuer": self.issuer.url, **({"kid": self.kid[:64]} if self.kid else {})}


def _verify(credential: str, key: PyJWK, algorithm: str) -> None:
    try:
        _JWS_VERIFIER.decode_complete(credential, key, algorithms=[algorithm])
    except (PyJWTError, ValueError) as error:
        raise invalid_token("the token's signature is not its issuer's") from error


def _decode_segment(name: str, segment: str) -> dict[str, Any]:
    try:
        # A claim that we do not read may have a number of any size.
        decoded = json_request.loads(urlsafe_b64decode(segment + "=" * (-len(segment) % 4)), lossy_numbers=True)
    except (binascii.Error, ValueError, A2AError) as error:
        raise invalid_token(f"the token's {name} cannot be read") from error
    if not isinstance(decoded, dict):
        raise invalid_token(f"the token's {name} is not a JSON object")
    return decoded
