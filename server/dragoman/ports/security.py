"""What the bindings need to know callers."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.access.identity import Identity
from dragoman.core.access.signing_keys import SigningKey, SigningKeyState
from dragoman.core.audit import AuditEntry, AuditRecord


class CertificateIdentifier(Protocol):
    """Knows callers by the certificates with which their connections were opened."""

    def identify(self, certificate: bytes) -> Identity:
        """Who holds this certificate (DER or PEM), which the handshake found to be of an authority that is trusted.

        Raises core.errors.Unauthenticated for one that counts no more, or that names nobody.
        """
        ...


class Authenticator(Protocol):
    """Knows callers by what their transport carries."""

    async def authenticate(self, headers: Iterable[tuple[str, str]]) -> Identity | None:
        """Who is behind HTTP headers or gRPC metadata (names in any case, each as often as it was sent); None when
        they show no credentials.

        Raises core.errors.Unauthenticated for credentials that are not good, PermissionDenied for those that are and
        are of no use here, Unavailable when it cannot be found out now.
        """
        ...

    async def recheck(self, identity: Identity) -> None:
        """Looks again at a caller who was known a while ago. Raises Unauthenticated when its credentials were
        withdrawn since."""
        ...


class ApiKeys(Protocol):
    """API keys on disk. Times are milliseconds since the epoch, and the caller's."""

    async def add(self, key: ApiKey) -> None:
        """Keeps a new key. Raises ValueError when its id is taken."""
        ...

    async def find(self, id: str) -> ApiKey | None:
        """The key of an id, good or not."""
        ...

    async def list(self) -> list[ApiKey]:
        """Every key, the newest first."""
        ...

    async def rotate(
        self, id: str, digest: bytes, *, now: int, until: int, expires: int | None = None
    ) -> ApiKey | None:
        """Puts another digest in the place of the present one, which stays good until `until`; that of an earlier
        rotation stops. `expires` sets the key's end anew. Gives the key as it is then; None when there is none, or
        it is revoked."""
        ...

    async def revoke(self, id: str, *, now: int) -> ApiKey | None:
        """Ends a key for good. Gives the key as it is then, revoked before or now; None when there is none."""
        ...

    async def touch(self, id: str, *, now: int) -> None:
        """Notes that a key is in use. Waits for whatever else has to be written."""
        ...


class AuditLog(Protocol):
    """The audit log on disk: entries are added at its end and leave at its beginning, and nothing else is done to them
    but to take away who a principal was. All servers of the store write one chain."""

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        """Adds entries, in this order, durably when this returns."""
        ...

    async def read(self, after: int, limit: int = 256) -> list[AuditRecord]:
        """Up to `limit` entries with numbers after `after`, in order."""
        ...

    async def truncate(self, before: int, limit: int = 1024) -> int:
        """Removes the oldest entries (`limit`: so many at most) up to the first that is not older than `before`
        (milliseconds since the epoch), never the last one. Gives how many."""
        ...


class SigningKeys(Protocol):
    """The keys with which this server signs letters and cards. All raise children of core.errors.A2AError."""

    async def public(self) -> bytes:
        """A JWK set as JSON: what signatures are checked with."""
        ...

    async def list(self) -> Sequence[tuple[SigningKey, SigningKeyState]]:
        """Those that are shown, and what each is, the newest first."""
        ...

    async def rotate(self, algorithm: str, *, lead: int, retention: int) -> SigningKey:
        """Makes a key that is shown at once and signs after `lead`; the one before is shown for `keep` after that.

        Both are milliseconds. algorithm: empty for that of the key that signs. Raises InvalidParams, and Unavailable
        when somebody else changed the keys in the same moment.
        """
        ...

    async def withdraw(self, id: str) -> None:
        """Shows a key no more, so that what it signed counts no more. Raises KeyNotFound, InvalidParams for the one
        that signs."""
        ...


class CardSigner(Protocol):
    """Signs cards with the key of the server that signs at the time."""

    def sign(self, payloads: Iterable[bytes], keys_url: str) -> list[tuple[str, str]]:
        """A signature for each text: its protected header, and the signature itself, as AgentCardSignature has them.
        `keys_url`: where everybody finds the keys."""
        ...


class SecretBox(Protocol):
    """Keeps secrets from who can read the store."""

    def encrypt(self, text: str, context: str) -> str:
        """The text as it is kept, which opens for the same `about` only. Empty texts stay empty."""
        ...

    def decrypt(self, value: str, context: str) -> str:
        """The text that was sealed; one that was not is given as it is. Raises ValueError when it cannot be opened."""
        ...


class CertificatePair(NamedTuple):
    """A certificate with what leads to its authority, and the key of the first, both in PEM."""

    chain: bytes
    key: bytes


class ServerCertificates(Protocol):
    """The server's certificate, which may become another one while connections are open."""

    @property
    def pair(self) -> CertificatePair:
        """The pair in use. May be asked from any thread."""
        ...

    @property
    def client_authorities(self) -> bytes:
        """Certificates (PEM) of the authorities whose clients are asked for theirs; empty: nobody is asked."""
        ...

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """For the servers that use `ssl`: one object for good, which shows new connections the pair in use."""
        ...
