"""Tokens that issuers signed (JWT: RFC 7519, as RFC 8725 would have it looked at).

In this order: form, issuer, header, claims, key, signature. What a token says is looked at before its signature, so
that what is refused anyway costs no key to be fetched; nothing of it counts before the signature does.
"""

from __future__ import annotations

import binascii
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable
from typing import Any, Final

from jwt import PyJWS
from jwt.exceptions import PyJWTError

from dragoman.core import claims
from dragoman.core.claims import refused
from dragoman.core.errors import A2AError, PermissionDenied, Unauthenticated
from dragoman.core.identity import Identity
from dragoman.core.issuers import ALGORITHMS, Issuer
from dragoman.security.keysets import KeySet
from dragoman.wire import jsonscan

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

    async def identify(self, text: str) -> Identity | None:
        """Whom this token names; None for what is no token. Raises Unauthenticated, PermissionDenied for scopes it
        lacks, Unavailable while its issuer's keys are not to be had."""
        if not _FORM.fullmatch(text):
            return None
        head, body, _ = text.split(".")
        header, said = _decoded("header", head), _decoded("claims", body)
        issuer, keys = self._issuers.get(str(said.get("iss")), (None, None))
        if issuer is None or keys is None:
            raise refused("the token's issuer is none that this server trusts", issuer=str(said.get("iss"))[:100])
        algorithm, kid = "", None
        try:
            algorithm, kid = claims.check_header(header, issuer)
            claims.check(said, issuer, self._clock())
            key = await keys.find(kid, algorithm)
            try:
                _SIGNATURES.decode_complete(text, key, algorithms=[algorithm])
            except (PyJWTError, ValueError) as error:
                raise refused("the token's signature is not its issuer's") from error
            return claims.identity_of(said, issuer)
        except (Unauthenticated, PermissionDenied) as error:
            error.about = {"issuer": issuer.url, **({"kid": kid[:64]} if kid else {}), **error.about}
            raise


def _decoded(what: str, text: str) -> dict[str, Any]:
    try:
        # A number too large for us may stand in a claim that we do not read.
        value = jsonscan.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)), lossy_numbers=True)
    except (binascii.Error, ValueError, A2AError) as error:
        raise refused(f"the token's {what} cannot be read") from error
    if not isinstance(value, dict):
        raise refused(f"the token's {what} is no JSON object")
    return value
