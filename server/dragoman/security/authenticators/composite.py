"""Authenticates callers by static token, API key, JWT or client certificate, as the settings say."""

from __future__ import annotations

import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from dragoman.core.access import caller_credentials
from dragoman.core.access.identity import OPERATOR_GRANT, STATIC_TOKEN_PRINCIPAL, WORKER_GRANT, Identity
from dragoman.core.access.jwt_claims import Issuer
from dragoman.core.errors import Unauthenticated
from dragoman.ports import ApiKeys, Authenticator, OutboundHttp
from dragoman.security.authenticators.api_keys import ApiKeyAuthenticator

if TYPE_CHECKING:
    from dragoman.security.authenticators.jwks import IssuerKeySet
    from dragoman.security.tls.client_certificates import CertificateAuthenticator


Identify = Callable[[str], Awaitable[Identity | None]]
"""Returns the identity of one kind of credential; None for another kind. Raises Unauthenticated."""


@dataclass(eq=False, repr=False)
class CompositeAuthenticator:
    """Tries kinds of credentials in order. Implements `dragoman.ports.Authenticator`."""

    kinds: Sequence[Identify]
    clock: Callable[[], int]  # milliseconds since the epoch
    api_keys: ApiKeyAuthenticator | None = None  # one of `kinds`, the only one for X-API-Key
    check_certificate: Callable[[str], None] | None = None
    """Raises Unauthenticated for the credential id of a certificate that is no longer valid."""

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        credentials = read_credentials(headers, keys=self.api_keys is not None)
        if credentials is None:
            return None
        kinds = (self.api_keys.identify,) if credentials.key and self.api_keys else self.kinds
        for identify in kinds:
            if (identity := await identify(credentials.key or credentials.bearer)) is not None:
                return identity
        source = "X-API-Key" if credentials.key else "the bearer token"
        raise Unauthenticated(f"{source} is not known to this server", error="invalid_token")

    async def recheck(self, identity: Identity) -> None:
        """Checks a key, a certificate or the end of a token (RFC 7519 §4.1.4) again, for streams."""
        if identity.expires and self.clock() >= identity.expires:
            raise Unauthenticated("the token has expired", error="invalid_token")
        if identity.credential_id.startswith(caller_credentials.CERTIFICATE_ID_PREFIX):
            if self.check_certificate is not None:
                self.check_certificate(identity.credential_id)
        elif identity.credential_id and self.api_keys is not None:
            await self.api_keys.check(identity.credential_id)


MAX_CREDENTIAL_HEADER_BYTES: Final = 8192  # maximum size of one header value
API_KEY_HEADER_NAME: Final = "x-api-key"


class Credentials(NamedTuple):
    """Credentials of a request; one of them is empty."""

    bearer: str = ""
    key: str = ""


def read_credentials(headers: Iterable[tuple[str, str]], *, keys: bool) -> Credentials | None:
    """The credentials in headers; None without any. keys: also read X-API-Key.

    Other schemes than Bearer, which a proxy may use, count as none. Raises Unauthenticated.
    """
    fields = [(name.lower(), value) for name, value in headers]
    authorization = _single_value("Authorization", [value for name, value in fields if name == "authorization"])
    key = _single_value("X-API-Key", [value for name, value in fields if keys and name == API_KEY_HEADER_NAME])
    scheme, _, token = (authorization or "").strip().partition(" ")
    is_bearer = scheme.lower() == "bearer"
    if key is None:
        return Credentials(_credential_text("Authorization", token)) if is_bearer else None
    if is_bearer:
        raise _malformed("give credentials once: in Authorization or in X-API-Key")
    return Credentials(key=_credential_text("X-API-Key", key))


def _single_value(name: str, values: list[str]) -> str | None:
    if len(values) > 1:
        raise _malformed(f"{name}: must be given once, but is given {len(values)} times")
    if values and len(values[0].encode(errors="replace")) > MAX_CREDENTIAL_HEADER_BYTES:
        raise _malformed(f"{name}: must have at most {MAX_CREDENTIAL_HEADER_BYTES} bytes")
    return values[0] if values else None


def _credential_text(name: str, value: str) -> str:
    value = value.strip()
    if not value or not value.isascii() or not value.isprintable():
        raise _malformed(f"{name}: must contain a credential in printable ASCII")
    return value


def _malformed(reason: str) -> Unauthenticated:
    return Unauthenticated(reason, error="invalid_request")


def static_token(token: str) -> Identify:
    """Authenticates all callers with the static token as principal `token`, operator and worker."""
    expected, identity = token.encode(), Identity(STATIC_TOKEN_PRINCIPAL, frozenset((OPERATOR_GRANT, WORKER_GRANT)))

    async def identify(credential: str) -> Identity | None:
        return identity if hmac.compare_digest(credential.encode(errors="replace"), expected) else None

    return identify


_log: Final = logging.getLogger("dragoman.security")


class Security(NamedTuple):
    """The authentication of a server; without an authenticator it is off."""

    authenticator: Authenticator | None
    forget: Callable[[str], None]  # removes a rotated or revoked API key from the cache


@asynccontextmanager
async def open_security(
    *,
    token: str,
    api_keys: ApiKeys | None,
    issuers: Sequence[Issuer],
    outbound: OutboundHttp,
    clock: Callable[[], int],
    certificates: CertificateAuthenticator | None = None,
) -> AsyncIterator[Security]:
    """Opens the authenticators of the given kinds of credentials, while the block runs.

    Fetches the keys of issuers at once, in the background. certificates: called by the bindings, with the connection's
    certificate. clock: milliseconds since the epoch.
    """
    kinds: list[Identify] = [static_token(token)] if token else []
    keys = ApiKeyAuthenticator(api_keys, clock=clock) if api_keys is not None else None
    if keys is not None and api_keys is not None:
        kinds.append(keys.identify)
        if not token and not issuers and certificates is None:
            await _warn_without_operator(api_keys, clock())
    key_sets: list[IssuerKeySet] = []
    if issuers:
        # Imported here: cryptography is slow to import, and most servers do not need it.
        from dragoman.security.authenticators import jwks
        from dragoman.security.authenticators.jwt_tokens import JwtAuthenticator

        key_sets = [jwks.IssuerKeySet(issuer, jwks.outbound_fetcher(outbound)) for issuer in issuers]
        kinds.append(JwtAuthenticator(zip(issuers, key_sets, strict=True)).identify)
    for key_set in key_sets:
        key_set.start_fetch()
    try:
        check_certificate = certificates.check if certificates else None
        composite = CompositeAuthenticator(kinds, clock, keys, check_certificate) if kinds or certificates else None
        yield Security(composite, keys.forget if keys else lambda _: None)
    finally:
        for key_set in key_sets:
            await key_set.close()
        if keys is not None:
            await keys.close()


async def _warn_without_operator(api_keys: ApiKeys, now: int) -> None:
    if not any(key.identity.is_operator and not key.problem(now) for key in await api_keys.list()):
        _log.warning(
            "no API key has the operator grant, so no key can be created; stop the server and create one: "
            "dragoman keys create NAME --grant operator --store URL"
        )
