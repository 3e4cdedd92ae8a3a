"""Everything that knows callers, as one: a static token, API keys, tokens of issuers."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from dragoman.core.access import caller_credentials
from dragoman.core.access.identity import OPERATOR_GRANT, WORKER_GRANT, Identity
from dragoman.core.access.jwt_claims import Issuer
from dragoman.core.errors import Unauthenticated
from dragoman.ports import ApiKeys, Authenticator, CertificateIdentifier, OutboundHttp
from dragoman.security.authenticators.api_keys import ApiKeyAuthenticator

if TYPE_CHECKING:
    from dragoman.security.authenticators.jwks import IssuerKeySet
    from dragoman.security.tls.client_certificates import CertificateAuthenticator


class CredentialAuthenticator(Protocol):
    """One way to know a caller."""

    async def identify(self, text: str) -> Identity | None:
        """Who shows this text; None when it is nothing of this kind. Raises Unauthenticated."""
        ...


class CompositeAuthenticator:
    """Asks one after the other. Implements `dragoman.ports.Authenticator`."""

    def __init__(
        self,
        authenticators: Iterable[CredentialAuthenticator],
        api_keys: ApiKeyAuthenticator | None = None,
        check_certificate: Callable[[str], None] | None = None,
    ) -> None:
        """`keys`, one of the checks, is asked alone for what comes as X-API-Key. `look_at_certificate` raises
        Unauthenticated for one that counts no more."""
        self._check_certificate = check_certificate
        self._authenticators = tuple(authenticators)
        self._api_keys = api_keys

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        """Who shows these credentials; None without any."""
        shown = read_credentials(headers, keys=self._api_keys is not None)
        if shown is None:
            return None
        checks = (self._api_keys,) if shown.key and self._api_keys else self._authenticators
        for check in checks:
            if (identity := await check.identify(shown.key or shown.bearer)) is not None:
                return identity
        what = "X-API-Key" if shown.key else "the bearer token"
        raise Unauthenticated(f"{what} is none that this server knows", error="invalid_token")

    async def recheck(self, identity: Identity) -> None:
        """Checks a key or certificate again, for streams. A token stays valid for the stream it started.

        RFC 7519 has no revocation, only `exp`, which is checked with each request.
        """
        if identity.credential_id.startswith(caller_credentials.CERTIFICATE_ID_PREFIX):
            if self._check_certificate is not None:
                self._check_certificate(identity.credential_id)
        elif identity.credential_id and self._api_keys is not None:
            await self._api_keys.check(identity.credential_id)


MAX_CREDENTIAL_HEADER_BYTES: Final = 8192
"""Maximum size of one header value."""

API_KEY_HEADER_NAME: Final = "x-api-key"

_INVALID_REQUEST_ERROR: Final = "invalid_request"


class Credentials(NamedTuple):
    """Credentials of a request; one of them is empty."""

    bearer: str = ""
    key: str = ""


def read_credentials(headers: Iterable[tuple[str, str]], *, keys: bool) -> Credentials | None:
    """The credentials in these headers, None when there are none. `keys`: X-API-Key is one of ours to read.

    Another scheme than Bearer is not ours to judge, and counts as none. Raises Unauthenticated.
    """
    fields = [(name.lower(), value) for name, value in headers]
    authorization = _single_value("Authorization", [value for name, value in fields if name == "authorization"])
    key = _single_value("X-API-Key", [value for name, value in fields if keys and name == API_KEY_HEADER_NAME])
    scheme, _, token = (authorization or "").strip().partition(" ")
    is_bearer = scheme.lower() == "bearer"
    if key is None and not is_bearer:
        return None
    if key is not None and is_bearer:
        raise _malformed("give credentials once: in Authorization or in X-API-Key")
    return (
        Credentials(key=_credential_text("X-API-Key", key))
        if key is not None
        else Credentials(_credential_text("Authorization", token))
    )


def _single_value(name: str, values: list[str]) -> str | None:
    if len(values) > 1:
        raise _malformed(f"{name}: must be there once, and is there {len(values)} times")
    if values and len(values[0].encode(errors="replace")) > MAX_CREDENTIAL_HEADER_BYTES:
        raise _malformed(f"{name}: at most {MAX_CREDENTIAL_HEADER_BYTES} bytes are taken")
    return values[0] if values else None


def _credential_text(name: str, value: str) -> str:
    value = value.strip()
    if not value or not value.isascii() or not value.isprintable():
        raise _malformed(f"{name}: must hold a credential, of printable ASCII")
    return value


def _malformed(reason: str) -> Unauthenticated:
    return Unauthenticated(reason, error=_INVALID_REQUEST_ERROR)


STATIC_TOKEN_PRINCIPAL: Final = "token"


class StaticTokenAuthenticator:
    """Knows whoever shows the token, all as the one principal `token`, and as an operator."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def identify(self, text: str) -> Identity | None:
        """Who shows this text; None for any other."""
        if not hmac.compare_digest(text.encode(errors="replace"), self._token):
            return None
        return Identity(STATIC_TOKEN_PRINCIPAL, frozenset((OPERATOR_GRANT, WORKER_GRANT)))


_log: Final = logging.getLogger("dragoman.security")


@dataclass(frozen=True, slots=True)
class Security:
    """What knows callers; without it nobody is asked who they are."""

    authenticator: Authenticator | None = None
    api_keys: ApiKeyAuthenticator | None = None
    certificates: CertificateIdentifier | None = None

    def forget(self, id: str) -> None:
        """An API key was rotated or revoked: looks it up again when it is shown next."""
        if self.api_keys is not None:
            self.api_keys.forget(id)


@asynccontextmanager
async def open_security(
    *,
    token: str,
    api_keys: ApiKeys | None,
    issuers: Sequence[Issuer],
    outbound: OutboundHttp | None,
    clock: Callable[[], int],
    certificates: CertificateAuthenticator | None = None,
) -> AsyncIterator[Security]:
    """Knows callers by a static token, by API keys, and by tokens of issuers: by what is given of these.

    `holders` knows them by certificates, and is asked by who has the connection.

    The keys of issuers are fetched at once, in the background; `outbound` is needed where they are not in files.
    `clock` gives milliseconds since the epoch.
    """
    checks: list[CredentialAuthenticator] = [StaticTokenAuthenticator(token)] if token else []
    keys = ApiKeyAuthenticator(api_keys, clock=clock) if api_keys is not None else None
    if keys is not None and api_keys is not None:
        checks.append(keys)
        if not token and not issuers and certificates is None:
            await _warn_without_operator(api_keys, clock())
    sets = _add_jwt_authenticator(issuers, outbound, checks) if issuers else []
    fetching = [asyncio.create_task(one.prefetch(), name="keys of an issuer") for one in sets]
    try:
        chain = (
            CompositeAuthenticator(checks, keys, certificates.check if certificates else None)
            if checks or certificates
            else None
        )
        yield Security(chain, keys, certificates)
    finally:
        for fetch in fetching:
            fetch.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)
        for one in sets:
            await one.close()
        if keys is not None:
            await keys.close()


async def _warn_without_operator(api_keys: ApiKeys, now: int) -> None:
    """Where nobody could make the next key, somebody should know how to make the first."""
    if not any(key.identity.is_operator and not key.problem(now) for key in await api_keys.list()):
        _log.warning(
            "no API key here is an operator's, so nobody can make any; stop, and make one: "
            "dragoman keys create NAME --grant operator --store URL"
        )


def _add_jwt_authenticator(
    issuers: Sequence[Issuer], outbound: OutboundHttp | None, authenticators: list[CredentialAuthenticator]
) -> list[IssuerKeySet]:
    # Not above: cryptography takes its time to load, and most servers have no use for it.
    from dragoman.security.authenticators import jwks
    from dragoman.security.authenticators.jwt_tokens import JwtAuthenticator

    get = jwks.outbound_fetcher(outbound) if outbound is not None else jwks.no_fetcher
    sets = [jwks.IssuerKeySet(issuer, get) for issuer in issuers]
    authenticators.append(JwtAuthenticator(zip(issuers, sets, strict=True)))
    return sets
