"""Putting together what knows callers, and taking it apart again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dragoman.core.issuers import Issuer
from dragoman.ports import ApiKeys, Authenticator, CertificateHolders, Outbound
from dragoman.security.apikeys import KeyCheck
from dragoman.security.chain import Chain, Check
from dragoman.security.static import StaticToken

_log: Final = logging.getLogger("dragoman.security")

if TYPE_CHECKING:
    from dragoman.security.client_certificates import CertificateCheck
    from dragoman.security.keysets import KeySet


@dataclass(frozen=True, slots=True)
class Security:
    """What knows callers; without it nobody is asked who they are."""

    authenticator: Authenticator | None = None
    keys: KeyCheck | None = None
    holders: CertificateHolders | None = None

    def forget(self, id: str) -> None:
        """An API key was rotated or revoked: looks it up again when it is shown next."""
        if self.keys is not None:
            self.keys.forget(id)


@asynccontextmanager
async def open_security(
    *,
    token: str,
    api_keys: ApiKeys | None,
    issuers: Sequence[Issuer],
    outbound: Outbound | None,
    clock: Callable[[], int],
    holders: CertificateCheck | None = None,
) -> AsyncIterator[Security]:
    """Knows callers by a static token, by API keys, and by tokens of issuers: by what is given of these.

    `holders` knows them by certificates, and is asked by who has the connection.

    The keys of issuers are fetched at once, in the background; `outbound` is needed where they are not in files.
    `clock` gives milliseconds since the epoch.
    """
    checks: list[Check] = [StaticToken(token)] if token else []
    keys = KeyCheck(api_keys, clock=clock) if api_keys is not None else None
    if keys is not None and api_keys is not None:
        checks.append(keys)
        if not token and not issuers and holders is None:
            await _look_for_an_operator(api_keys, clock())
    sets = _know(issuers, outbound, checks) if issuers else []
    fetching = [asyncio.create_task(one.prepare(), name="keys of an issuer") for one in sets]
    try:
        chain = Chain(checks, keys, holders.check if holders else None) if checks or holders else None
        yield Security(chain, keys, holders)
    finally:
        for fetch in fetching:
            fetch.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)
        for one in sets:
            await one.close()
        if keys is not None:
            await keys.close()


async def _look_for_an_operator(api_keys: ApiKeys, now: int) -> None:
    """Where nobody could make the next key, somebody should know how to make the first."""
    if not any(key.identity.operates and not key.trouble(now) for key in await api_keys.list()):
        _log.warning(
            "no API key here is an operator's, so nobody can make any; stop, and make one: "
            "dragoman keys create NAME --grant operator --store URL"
        )


def _know(issuers: Sequence[Issuer], outbound: Outbound | None, checks: list[Check]) -> list[KeySet]:
    # Not above: cryptography takes its time to load, and most servers have no use for it.
    from dragoman.security import keysets
    from dragoman.security.tokens import TokenCheck

    get = keysets.over(outbound) if outbound is not None else keysets.nowhere
    sets = [keysets.KeySet(issuer, get) for issuer in issuers]
    checks.append(TokenCheck(zip(issuers, sets, strict=True)))
    return sets
