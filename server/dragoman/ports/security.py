"""The ports of security: authentication, API keys, audit, signing, secrets and TLS."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any, NamedTuple, Protocol

from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.access.identity import Identity
from dragoman.core.access.signing_keys import SigningKey, SigningKeyState
from dragoman.core.audit import AuditEntry, AuditRecord


class CertificateIdentifier(Protocol):
    """Authenticates callers by their client certificates."""

    def identify(self, certificate: bytes) -> Identity:
        """The identity of a certificate (DER or PEM) with a verified chain. Raises Unauthenticated."""


class Authenticator(Protocol):
    """Authenticates callers by HTTP headers or gRPC metadata."""

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        """The identity in headers (names in any case, repeated if sent repeatedly); None without credentials.

        Raises core.errors.Unauthenticated for invalid credentials, PermissionDenied for valid ones that allow nothing
        here, Unavailable when they cannot be checked now.
        """

    async def recheck(self, identity: Identity) -> None:
        """Checks a caller again. Raises Unauthenticated when its credentials were withdrawn since."""


IdentifyCaller = Callable[[MutableMapping[str, Any]], Identity | str | Awaitable[Identity | str | None] | None]
"""A host application's function: the caller of an ASGI scope, as a principal or an Identity; None if it is unknown."""


class SignInProvider(NamedTuple):
    """An issuer at which people sign in, as the console needs it."""

    issuer: str
    name: str  # for people: its alias, or its host
    authorization_url: str
    client_id: str
    scope: str


class SignInToken(NamedTuple):
    """A token for calls, and the seconds until it expires; 0 if the issuer does not say."""

    token: str
    expires_in: int


class SignIn(Protocol):
    """Sign-in of people by OpenID Connect: authorization code with PKCE (RFC 6749 §4.1, RFC 7636)."""

    async def providers(self) -> list[SignInProvider]:
        """The issuers that are available now."""

    async def exchange(
        self, issuer_url: str, code: str, verifier: str, redirect_uri: str, *, address: str
    ) -> SignInToken:
        """Exchanges an authorization code for a caller at `address`.

        Raises InvalidParams, Unavailable, RateLimited, Unauthenticated for a refused code.
        """


class ApiKeys(Protocol):
    """The stored API keys. Times are the caller's, in milliseconds since the epoch."""

    async def add(self, key: ApiKey) -> None:
        """Stores a new key. Raises ValueError when its id is taken."""

    async def find(self, id: str) -> ApiKey | None:
        """The key with this id, valid or not."""

    async def list(self) -> list[ApiKey]:
        """All keys, newest first."""

    async def rotate(
        self, id: str, digest: bytes, *, now: int, until: int, expires: int | None = None
    ) -> ApiKey | None:
        """Replaces the digest; only the one before stays valid, until `until`. `expires`: the new end of the key.

        Returns the updated key; None when it does not exist or is revoked.
        """

    async def revoke(self, id: str, *, now: int) -> ApiKey | None:
        """Revokes a key. Returns it, revoked before or now; None when it does not exist."""

    async def touch(self, id: str, *, now: int) -> None:
        """Records the use of a key, with lower priority than other writes."""


class AuditLog(Protocol):
    """The stored audit log: one chain for all servers, of which only personal data can be erased (`Erasures`)."""

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        """Appends entries in this order. They are durable when this returns."""

    async def read(self, after: int, limit: int = 256) -> list[AuditRecord]:
        """Up to `limit` entries with numbers above `after`, in order."""

    async def truncate(self, before: int, limit: int = 1024) -> int:
        """Removes up to `limit` of the oldest entries before `before` (milliseconds), never the last one.

        It stops at the first one that is not older. Returns their number.
        """


class SigningKeys(Protocol):
    """The keys that sign webhook calls and cards. Methods raise subclasses of core.errors.A2AError."""

    async def public(self) -> bytes:
        """The published keys as JSON: a JWK set (RFC 7517)."""

    async def list(self) -> Sequence[tuple[SigningKey, SigningKeyState]]:
        """The published keys with their states, newest first."""

    async def rotate(self, algorithm: str, *, lead: int, retention: int) -> SigningKey:
        """Creates a key that is published at once and signs after `lead` milliseconds.

        The key before stays published for `retention` milliseconds after that.
        algorithm: empty for that of the current key. Raises InvalidParams, and Unavailable when the keys were changed
        concurrently.
        """

    async def withdraw(self, id: str) -> None:
        """Withdraws a key, which invalidates its signatures. Raises KeyNotFound, InvalidParams for the current key."""


class CardSigner(Protocol):
    """Signs cards with the server's current signing key."""

    def sign(self, payloads: Iterable[bytes], keys_url: str) -> list[tuple[str, str]]:
        """The protected header and signature of each payload (AgentCardSignature). `keys_url`: of the public keys."""


class SecretBox(Protocol):
    """Encrypts secrets, so that read access to the store does not reveal them."""

    def encrypt(self, text: str, context: str) -> str:
        """Encrypts a text, which can be decrypted with the same `context` only. Empty texts stay empty."""

    def decrypt(self, value: str, context: str) -> str:
        """Decrypts a text; one that is not encrypted is returned unchanged. Raises ValueError when that fails."""


class CertificatePair(NamedTuple):
    """A certificate chain and the private key of its first certificate, both in PEM."""

    chain: bytes
    key: bytes


class ServerCertificates(Protocol):
    """The server's certificate, which can be replaced while connections are open."""

    @property
    def pair(self) -> CertificatePair:
        """The current pair. May be read from any thread."""

    @property
    def client_authorities(self) -> bytes:
        """Certificates (PEM) of the authorities of clients; empty: no client certificates are requested."""

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The context of new connections for servers that use `ssl`; after a change another one."""
