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

from dragoman.core import claims
from dragoman.core.claims import refused
from dragoman.core.errors import A2AError, PermissionDenied, Unauthenticated
from dragoman.core.identity import Identity
from dragoman.core.issuers import ALGORITHMS, Issuer
from dragoman.security.keysets import KeySet
from dragoman.wire import jsonscan

KEPT: Final = 1024
"""Tokens whose signatures are not checked again, as long as the key is the same."""

_FORM: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_SIGNATURES: Final = PyJWS(algorithms=list(ALGORITHMS))


class TokenCheck:
    """Knows callers by tokens of the issuers that this server trusts."""

    def __init__(
        self,
        issuers: Iterable[tuple[Issuer, KeySet]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives seconds since the epoch."""
        self._issuers = {issuer.url: (issuer, keys) for issuer, keys in issuers}
        self._clock = clock
        self._verified: OrderedDict[bytes, _Read] = OrderedDict()

    async def identify(self, text: str) -> Identity | None:
        """Whom this token names; None for what is no token. Raises Unauthenticated, PermissionDenied for scopes it
        lacks, Unavailable while its issuer's keys are not to be had."""
        if not _FORM.fullmatch(text):
            return None
        digest = sha256(text.encode()).digest()
        read = self._verified.get(digest) or self._read(text)
        try:
            claims.check(read.said, read.issuer, self._clock())
            key = await read.keys.find(read.kid, read.algorithm)
            if read.key is not key:
                _verify(text, key, read.algorithm)
                self._remember(digest, read, key)
            return claims.identity_of(read.said, read.issuer)
        except (Unauthenticated, PermissionDenied) as error:
            error.about = {**read.about, **error.about}
            raise

    def _read(self, text: str) -> _Read:
        """What a token says, of which nothing is proved."""
        head, body, _ = text.split(".")
        header, said = _decoded("header", head), _decoded("claims", body)
        issuer, keys = self._issuers.get(str(said.get("iss")), (None, None))
        if issuer is None or keys is None:
            raise refused("the token's issuer is none that this server trusts", issuer=str(said.get("iss"))[:100])
        try:
            algorithm, kid = claims.check_header(header, issuer)
        except Unauthenticated as error:
            error.about = {"issuer": issuer.url}
            raise
        return _Read(said, issuer, keys, algorithm, kid)

    def _remember(self, digest: bytes, read: _Read, key: PyJWK) -> None:
        read.key = key
        self._verified[digest] = read
        if len(self._verified) > KEPT:
            self._verified.popitem(last=False)


@dataclass(slots=True)
class _Read:
    """A token that was read, and the key that was found to have signed it, if it was looked at."""

    said: dict[str, Any]
    issuer: Issuer
    keys: KeySet
    algorithm: str
    kid: str | None
    key: PyJWK | None = None

    @property
    def about(self) -> dict[str, str]:
        return {"issuer": self.issuer.url, **({"kid": self.kid[:64]} if self.kid else {})}


def _verify(text: str, key: PyJWK, algorithm: str) -> None:
    try:
        _SIGNATURES.decode_complete(text, key, algorithms=[algorithm])
    except (PyJWTError, ValueError) as error:
        raise refused("the token's signature is not its issuer's") from error


def _decoded(what: str, text: str) -> dict[str, Any]:
    try:
        # A number too large for us may stand in a claim that we do not read.
        value = jsonscan.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)), lossy_numbers=True)
    except (binascii.Error, ValueError, A2AError) as error:
        raise refused(f"the token's {what} cannot be read") from error
    if not isinstance(value, dict):
        raise refused(f"the token's {what} is no JSON object")
    return value
