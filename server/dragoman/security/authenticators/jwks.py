"""Key sets of token issuers (RFC 7517): fetched, cached and refreshed.

Their URL is a setting or comes from OpenID Connect Discovery (§4). A set is fetched again after JWKS_REFRESH_AGE, and
when a token names an unknown key, which is how issuers rotate; at most once in JWKS_MIN_FETCH_INTERVAL, so tokens with
made-up key ids cause no load. While an issuer is unavailable, its cached keys stay valid for a day.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWTError

from dragoman.core.access.jwt_claims import Issuer, check_url, invalid_token
from dragoman.core.errors import A2AError, Unavailable
from dragoman.ports import OutboundFailed, OutboundForbidden, OutboundHttp
from dragoman.wire.json import request as json_request

JWKS_REFRESH_AGE: Final = 600.0  # seconds after which keys are fetched again in the background
JWKS_MAX_AGE: Final = 86_400.0  # seconds after which keys that could not be fetched again are no longer valid
JWKS_MIN_FETCH_INTERVAL: Final = 10.0  # seconds between two attempts to fetch
MAX_JWKS_KEYS: Final = 100  # maximum keys of one issuer; further keys are ignored
MIN_RSA_BITS: Final = 2048

_PRIVATE_MEMBERS: Final = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth", "k"))
_KEY_TYPES: Final = {"ES256": ("EC", "P-256"), "ES384": ("EC", "P-384"), "ES512": ("EC", "P-521"), "EdDSA": ("OKP", "")}
"""Type and curve of the keys of an algorithm (RFC 7518 §3.1, RFC 8037 §3.1); for all others RSA."""

_log: Final = logging.getLogger("dragoman.security")

FetchUrl = Callable[[str], Awaitable[bytes]]
"""Fetches a URL. Raises Unavailable with the reason."""


class IssuerKeySet:
    """The key set of one issuer."""

    def __init__(self, issuer: Issuer, fetch_url: FetchUrl, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """monotonic: seconds."""
        self._issuer = issuer
        self._fetch_url = fetch_url
        self._monotonic = monotonic
        self._keys: _KeySnapshot | None = None
        self._last_attempt: float | None = None
        self._last_error = ""
        self._fetch_task: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> PyJWK:
        """The key of a token. Raises Unauthenticated if there is none, Unavailable without valid keys to search."""
        now = self._monotonic()
        if self._keys is None or now - self._keys.fetched_at >= JWKS_MAX_AGE:
            await self.fetch()
        elif now - self._keys.fetched_at >= JWKS_REFRESH_AGE:
            self.start_fetch()
        if self._keys is None or self._monotonic() - self._keys.fetched_at >= JWKS_MAX_AGE:
            raise Unavailable("the keys of the token's issuer are unavailable; try again later")
        if found := self._keys.find(kid, algorithm):
            return found
        await self.fetch()
        if found := self._keys.find(kid, algorithm):
            return found
        log_details = {"issuer": self._issuer.url, "kid": (kid or "")[:64]}
        raise invalid_token("the token's issuer publishes no key that fits the token", **log_details)

    async def close(self) -> None:
        if self._fetch_task is not None:
            self._fetch_task.cancel()
            await asyncio.wait((self._fetch_task,))

    async def fetch(self) -> None:
        """Waits for the fetch in progress, or for a new one if the minimum interval has passed. Logs failures."""
        if fetch := self.start_fetch():
            await asyncio.shield(fetch)

    def start_fetch(self) -> asyncio.Task[None] | None:
        """The fetch in progress or a new one; None before the minimum interval has passed."""
        if self._fetch_task is None or self._fetch_task.done():
            now = self._monotonic()
            if self._last_attempt is not None and now - self._last_attempt < JWKS_MIN_FETCH_INTERVAL:
                return None
            self._last_attempt = now
            self._fetch_task = asyncio.create_task(self._refresh(now), name=f"keys of {self._issuer.url}")
        return self._fetch_task

    async def _refresh(self, now: float) -> None:
        issuer = self._issuer.url
        try:
            keys = _KeySnapshot(await self._read_keys(), now)
        except A2AError as error:
            if error.message != self._last_error:
                _log.warning("the keys of an issuer cannot be fetched: %s", error.message, extra={"issuer": issuer})
            self._last_error = error.message
            return
        except Exception:
            _log.exception("the keys of an issuer cannot be read", extra={"issuer": issuer})
            return
        if self._last_error or self._keys is None or self._keys.ids != keys.ids:
            _log.info("the keys of an issuer", extra={"issuer": issuer, "kids": keys.ids})
        self._keys, self._last_error = keys, ""

    async def _read_keys(self) -> list[Any]:
        source = self._issuer.jwks
        if not source:
            source = str((await discover(self._issuer, self._fetch_url)).get("jwks_uri"))
            check_discovered(self._issuer, "jwks_uri", source)
        data = await self._fetch_url(source) if "://" in source else await asyncio.to_thread(_read_file, source)
        keys = json_object(source, data).get("keys")
        if not isinstance(keys, list):
            raise Unavailable(f"{source} has no list of keys")
        return keys


def outbound_fetcher(outbound: OutboundHttp) -> FetchUrl:
    async def get(url: str) -> bytes:
        try:
            response = await outbound.get(url, {"Accept": "application/json"})
        except (OutboundForbidden, OutboundFailed) as error:
            raise Unavailable(f"{url}: {error}") from error
        if response.status != 200:
            raise Unavailable(f"{url} responded with status {response.status}")
        return response.body

    return get


async def discover(issuer: Issuer, fetch_url: FetchUrl) -> dict[str, Any]:
    """The discovery document of an issuer (OpenID Connect Discovery §4). Raises Unavailable."""
    document = json_object(issuer.discovery, await fetch_url(issuer.discovery))
    if document.get("issuer") != issuer.url:  # §4.3: otherwise a file at this URL could give keys for another issuer
        raise Unavailable(f"{issuer.discovery} names another issuer")
    return document


def check_discovered(issuer: Issuer, name: str, url: str) -> None:
    """Checks a URL of a discovery document by the rule for configured ones. Raises Unavailable."""
    try:
        check_url(name, url, query=True)
    except ValueError as error:
        raise Unavailable(f"{issuer.discovery}: {error}") from error


class _KeySnapshot:
    """A key set as it was fetched."""

    def __init__(self, keys: list[Any], fetched_at: float) -> None:
        self.fetched_at = fetched_at
        # Public members only: a set with private or symmetric keys must not lead to signing, or to verification with a
        # shared secret.
        self._keys = [
            {name: value for name, value in key.items() if name not in _PRIVATE_MEMBERS}
            for key in keys[:MAX_JWKS_KEYS]
            if isinstance(key, dict) and _may_verify(key)
        ]
        self._parsed: dict[tuple[str | None, str], PyJWK] = {}

    @property
    def ids(self) -> list[str]:
        return [str(key.get("kid", ""))[:64] for key in self._keys]

    def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """The key for a key id and algorithm. Without a key id, the only key for the algorithm."""
        parsed = self._parsed.get((kid, algorithm))
        if parsed is None:
            matches = [key for key in self._keys if kid in (None, key.get("kid")) and _fits_algorithm(key, algorithm)]
            if len(matches) != 1:
                return None
            parsed = _parse_key(matches[0], algorithm)
            if parsed is not None:
                self._parsed[kid, algorithm] = parsed
        return parsed


def _may_verify(key: Mapping[str, Any]) -> bool:
    operations = key.get("key_ops", ["verify"])
    return key.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations


def _fits_algorithm(key: Mapping[str, Any], algorithm: str) -> bool:
    kty, curve = _KEY_TYPES.get(algorithm, ("RSA", ""))
    return key.get("kty") == kty and key.get("alg", algorithm) == algorithm and curve in ("", key.get("crv"))


def _parse_key(key: dict[str, Any], algorithm: str) -> PyJWK | None:
    try:
        jwk = PyJWK(key, algorithm)
    except (PyJWTError, ValueError, TypeError, KeyError) as error:
        _log.warning(
            "a key of an issuer cannot be used: %s", type(error).__name__, extra={"kid": str(key.get("kid"))[:64]}
        )
        return None
    if isinstance(jwk.key, RSAPublicKey) and jwk.key.key_size < MIN_RSA_BITS:
        _log.warning("a key of an issuer is too short: RSA, %d bits", jwk.key.key_size, extra={"kid": key.get("kid")})
        return None
    return jwk


def json_object(source: str, data: bytes) -> dict[str, Any]:
    """Reads what an issuer sent. Raises Unavailable."""
    try:
        document = json_request.loads(data, lossy_numbers=True)
    except A2AError as error:
        raise Unavailable(f"{source} is not valid JSON") from error
    if not isinstance(document, dict):
        raise Unavailable(f"{source} is not a JSON object")
    return document


def _read_file(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror or error}") from error
