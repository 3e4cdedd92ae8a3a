"""Everything that knows callers, as one: a static token, API keys, tokens of issuers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from dragoman.core import holders
from dragoman.core.errors import Unauthenticated
from dragoman.core.identity import Identity
from dragoman.security import credentials
from dragoman.security.apikeys import KeyCheck


class Check(Protocol):
    """One way to know a caller."""

    async def identify(self, text: str) -> Identity | None:
        """Who shows this text; None when it is nothing of this kind. Raises Unauthenticated."""
        ...


class Chain:
    """Asks one after the other. Implements `dragoman.ports.Authenticator`."""

    def __init__(
        self,
        checks: Iterable[Check],
        keys: KeyCheck | None = None,
        look_at_certificate: Callable[[str], None] | None = None,
    ) -> None:
        """`keys`, one of the checks, is asked alone for what comes as X-API-Key. `look_at_certificate` raises
        Unauthenticated for one that counts no more."""
        self._look_at_certificate = look_at_certificate
        self._checks = tuple(checks)
        self._keys = keys

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        """Who shows these credentials; None without any."""
        shown = credentials.read(headers, keys=self._keys is not None)
        if shown is None:
            return None
        checks = (self._keys,) if shown.key and self._keys else self._checks
        for check in checks:
            if (identity := await check.identify(shown.key or shown.bearer)) is not None:
                return identity
        what = "X-API-Key" if shown.key else "the bearer token"
        raise Unauthenticated(f"{what} is none that this server knows", error="invalid_token")

    async def check(self, identity: Identity) -> None:
        """Looks again whether a key or a certificate is good. A token that was good stays so for what it began
        (RFC 7519 has no end but `exp`, which is looked at with each call)."""
        if identity.key.startswith(holders.PREFIX):
            if self._look_at_certificate is not None:
                self._look_at_certificate(identity.key)
        elif identity.key and self._keys is not None:
            await self._keys.check(identity.key)
