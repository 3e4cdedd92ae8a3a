"""Sign-in of people at the console: OpenID Connect, authorization code with PKCE (RFC 6749 §4.1, RFC 7636).

The browser gets the code, and this server exchanges it for a token: the console's policy allows requests to this server
only. The token is an access token of the caller. This server checks it like any other, and keeps nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from dragoman.core.access.jwt_claims import Issuer
from dragoman.core.errors import InvalidParams, Unauthenticated, Unavailable
from dragoman.ports import OutboundFailed, OutboundForbidden, OutboundHttp
from dragoman.ports.security import SignInProvider, SignInToken
from dragoman.security.authenticators.jwks import discover, json_object, outbound_fetcher

DISCOVERY_MAX_AGE: Final = 600.0  # seconds for which a discovery document is used

MAX_EXCHANGES: Final = 8
"""Exchanges at a time. Their callers are not authenticated, and must not flood an issuer through this server."""

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

    async def exchange(self, issuer_url: str, code: str, verifier: str, redirect_uri: str) -> SignInToken:
        issuer = self._issuers.get(issuer_url)
        if issuer is None:
            raise InvalidParams("issuer: nobody signs in at this issuer here")
        for name, value in (("code", code), ("codeVerifier", verifier), ("redirectUri", redirect_uri)):
            if not 0 < len(value) <= MAX_FIELD_CHARS:
                raise InvalidParams(f"{name}: must be 1 to {MAX_FIELD_CHARS} characters")
        if self._exchanges.locked():
            raise Unavailable("too many people sign in at the same time; try again")
        async with self._exchanges:
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

    async def _endpoints_of(self, issuer: Issuer) -> _Endpoints:
        known = self._endpoints.get(issuer.url)
        if known is not None and self._clock() - known.fetched_at < DISCOVERY_MAX_AGE:
            return known
        document = await discover(issuer, self._fetch_url)
        authorization, token = (str(document.get(f"{name}_endpoint") or "") for name in ("authorization", "token"))
        if not (authorization.startswith(("https://", "http://")) and token):
            raise Unavailable(f"{issuer.discovery} has no authorization_endpoint and token_endpoint")
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
