"""One bearer token for all who may see more: the smallest authenticator there is (RFC 6750 §2.1)."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from dragoman.core.errors import Unauthenticated
from dragoman.core.identity import OPERATOR, Identity

PRINCIPAL: Final = "token"


class StaticToken:
    """Knows whoever shows the token, all as one principal. Implements `dragoman.ports.Authenticator`."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        """`token` for `Authorization: Bearer TOKEN`. Another scheme is not ours to judge, and counts as none."""
        given = next((value for key, value in headers.items() if key.lower() == "authorization"), "")
        scheme, _, credentials = given.partition(" ")
        if scheme.lower() != "bearer":
            return None
        if not hmac.compare_digest(credentials.strip().encode(errors="replace"), self._token):
            raise Unauthenticated("the bearer token is not the one this server was given")
        return Identity(PRINCIPAL, frozenset((OPERATOR,)))
