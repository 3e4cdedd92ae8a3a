"""One bearer token for whoever runs the server: the smallest way to know a caller there is."""

from __future__ import annotations

import hmac
from typing import Final

from dragoman.core.identity import OPERATOR, WORKER, Identity

PRINCIPAL: Final = "token"


class StaticToken:
    """Knows whoever shows the token, all as the one principal `token`, and as an operator."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def identify(self, text: str) -> Identity | None:
        """Who shows this text; None for any other."""
        if not hmac.compare_digest(text.encode(errors="replace"), self._token):
            return None
        return Identity(PRINCIPAL, frozenset((OPERATOR, WORKER)))
