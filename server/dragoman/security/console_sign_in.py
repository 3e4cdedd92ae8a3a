"""Sign-in of people at the console: OpenID Connect, authorization code with PKCE (RFC 6749 §4.1, RFC 7636).

The browser gets the code, and this server exchanges it for a token: the console's policy allows requests to this server
only. The token is an access token of the caller. This server checks it like any other, and keeps nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from dragoman.core.access.jwt_claims import Issuer
from dragoman.core.errors import InvalidParams, RateLimited, Unauthenticated, Unavailable
from dragoman.core.limits.admission import TokenBuckets
from dragoman.ports import OutboundFailed, OutboundForbidden, OutboundHttp
from dragoman.ports.security import SignInProvider, SignInToken
from dragoman.security.authenticators.jwks import check_discovered, discover, json_object, outbound_fetcher

DISCOVERY_MAX_AGE: Final = 600.0  # seconds for which a discovery document is used

# Callers of exchanges are not authenticated. They must neither flood an issuer through this server nor keep others out.
MAX_EXCHANGES: Final = 8  # at a time; further ones wait
MAX_WAITING_EXCHANGES: Final = 100
MAX_EXCHANGES_PER_ADDRESS: Final = 4  # at a time, waiting ones included
EXCHANGE_INTERVAL: Final = 1.0  # seconds between two exchanges of one address, after a burst
EXCHANGE_BURST: Final = 30

MAX_FIELD_CHARS: Final = 4096  # characters of a code and of the other fields of an exchange


@dataclass(frozen=True, slots=True)
class _Endpoints:
    authorization: str
    token: str
    fetched_at: float


class ConsoleSignIn:
    """The issuers at which people sign in. Implements `dragoman.ports.security.SignIn`."""

    def __init__(
        self, issuers: Iterable[Issuer], outbound: OutboundHttp, clock: Callable[[], float] = monotonic
    ) -> None:
        """Takes the issuers that have a `console_client`. clock: seconds."""
        self._issuers = {issuer.url: issuer for issuer in issuers if issuer.console_client}
        self._outbound = outbound
        self._fetch_url = outbound_fetcher(outbound)
        self._clock = clock
        self._endpoints: dict[str, _Endpoints] = {}
        self._exchanges = asyncio.Semaphore(MAX_EXCHANGES)
        self._open: Counter[str] = Counter()  # exchanges that run or wait, by address
        self._buckets = TokenBuckets()

    async def providers(self) -> list[SignInProvider]:
        found = []
        for issuer in self._issuers.values():
            try:
                endpoints = await self._endpoints_of(issuer)
            except Unavailable:  # the other ones, and API keys, work without it
                continue
            name = issuer.alias or urlsplit(issuer.url).hostname or issuer.url
            scope = " ".join(issuer.console_scopes)
            found.append(SignInProvider(issuer.url, name, endpoints.authorization, issuer.console_client, scope))
        return found

    async def exchange(
        self, issuer_url: str, code: str, verifier: str, redirect_uri: str, *, address: str
    ) -> SignInToken:
        issuer = self._issuers.get(issuer_url)
        if issuer is None:
            raise InvalidParams("issuer: nobody signs in at this issuer here")
        for name, value in (("code", code), ("codeVerifier", verifier), ("redirectUri", redirect_uri)):
            if not 0 < len(value) <= MAX_FIELD_CHARS:
                raise InvalidParams(f"{name}: must be 1 to {MAX_FIELD_CHARS} characters")
        async with self._admitted(address), self._exchanges:
            endpoint = (await self._endpoints_of(issuer)).token
            form = {
                "grant_type": "authorization_code",
                "client_id": issuer.console_client,
                "code": code,
                "code_verifier": verifier,
                "redirect_uri": redirect_uri,
            }
            headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
            try:
                response = await self._outbound.post(endpoint, urlencode(form).encode(), headers)
            except (OutboundForbidden, OutboundFailed) as error:
                raise Unavailable(f"the issuer cannot be reached: {error}") from error
        answer = json_object("the issuer's response", response.body)
        if response.status != 200:
            reason = answer.get("error_description") or answer.get("error") or f"status {response.status}"
            raise Unauthenticated(f"the issuer refused the sign-in: {str(reason)[:200]}")
        return _token_of(answer)

    @asynccontextmanager
    async def _admitted(self, address: str) -> AsyncIterator[None]:
        """Counts an exchange of an address while it waits and runs. Raises RateLimited, Unavailable."""
        now = self._clock()
        if wait := self._buckets.delay(address, now, EXCHANGE_INTERVAL, EXCHANGE_BURST):
            raise RateLimited("too many sign-ins from your address; try again", retry_after=wait)
        if self._open[address] >= MAX_EXCHANGES_PER_ADDRESS:
            raise RateLimited("too many sign-ins from your address at the same time; try again")
        if self._open.total() >= MAX_EXCHANGES + MAX_WAITING_EXCHANGES:
            raise Unavailable("too many people sign in at the same time; try again")
        self._buckets.take(address, now, EXCHANGE_INTERVAL)
        self._open[address] += 1
        try:
            yield
        finally:
            self._open -= Counter((address,))

    async def _endpoints_of(self, issuer: Issuer) -> _Endpoints:
        known = self._endpoints.get(issuer.url)
        if known is not None and self._clock() - known.fetched_at < DISCOVERY_MAX_AGE:
            return known
        document = await discover(issuer, self._fetch_url)
        authorization, token = (str(document.get(f"{name}_endpoint") or "") for name in ("authorization", "token"))
        for name, url in (("authorization_endpoint", authorization), ("token_endpoint", token)):
            check_discovered(issuer, name, url)
        found = self._endpoints[issuer.url] = _Endpoints(authorization, token, self._clock())
        return found


def _token_of(answer: dict[str, Any]) -> SignInToken:
    """The access token if it is a JWT, which this server can check; otherwise the ID token."""
    tokens = [answer.get("access_token"), answer.get("id_token")]
    token = next((one for one in tokens if isinstance(one, str) and one.count(".") == 2), None)
    if token is None:
        raise Unavailable("the issuer returned no token that is a JWT; let it issue access tokens for this server")
    seconds = answer.get("expires_in")
    return SignInToken(token, seconds if isinstance(seconds, int) and seconds > 0 else 0)
