"""Verifies push notifications of a Dragoman server (docs/how-to/push.md).

    receiver = Receiver("https://agents.example", "https://client.example/hook")

    async def hook(request):
        try:
            notification = await receiver.verify(request.headers, await request.read())
        except VerificationFailed as error:
            return Response(status=401, text=error.message)
        except ServerUnavailable as error:  # the server's keys are unavailable: it will retry
            return Response(status=503, text=error.message)
        if notification.is_new:
            ...
            receiver.acknowledge(notification)
        return Response(status=200)

A notification is genuine if a published key of the server signed it, for this receiver and this body, less than five
minutes ago, and the signature was not seen before.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import threading
import time
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, cast

import jwt

from dragoman.calling import tls
from dragoman.calling.errors import ClientError, ProtocolError, ServerUnavailable
from dragoman.calling.retry import pop_cursor
from dragoman.core.errors import A2AError
from dragoman.wire import client_operations
from dragoman.wire.json import remote_values
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

WEBHOOK_CLOCK_SKEW: Final = 60  # seconds by which the server's clock and ours may differ
WEBHOOK_KEYS_MAX_BYTES: Final = 1024 * 1024
WEBHOOK_KEYS_TIMEOUT: Final = 10.0
WEBHOOK_KEYS_MAX_AGE: Final = 300.0
WEBHOOK_KEYS_MIN_INTERVAL: Final = 10.0
"""Limits of the server's key set: its size, and seconds for a response, until the next fetch, and between two fetches
for an unknown key."""

MAX_REMEMBERED_TASKS: Final = 100_000  # tasks whose last event `InMemorySequences` remembers

_REQUIRED_CLAIMS: Final = [
    "iss", "aud", "iat", "exp", "jti", "taskId", "configId", "event", "sequence", "request_body_sha256",
]  # fmt: skip
_TOKEN_HEADERS: Final = ("x-a2a-notification-token", "a2a-notification-token")

KeyFetcher = Callable[[], Mapping[str, Any]]
"""Returns the server's keys as a JSON Web Key Set. Raises OSError when they are unavailable."""


class VerificationFailed(ClientError):
    """The notification is not genuine. Respond with 401."""

    def __init__(self, reason: str) -> None:
        super().__init__("UNAUTHENTICATED", reason)


@dataclass(frozen=True, slots=True)
class Notification:
    """One event of a task."""

    task_id: str
    config_id: str  # the id of the push configuration
    cursor: str
    """The cursor of the event: the same in each delivery. A stream can resume after it."""
    sequence: int
    """The number of the event. Deliveries are in order: a receiver of one event has received all before it."""
    is_new: bool
    """Whether it is later than all acknowledged events. Respond with 200 to repeats and late requests too."""
    body: bytes = field(repr=False)

    @property
    def sequence_key(self) -> tuple[str, str]:
        """The series of sequence numbers: the push configuration, and its task in the server's store."""
        return self.config_id, self.cursor.rpartition(".")[0]

    @property
    def response(self) -> pb.StreamResponse:
        """The event in A2A 1.0, from any dialect. Raises ProtocolError."""
        try:
            payload, dialect, name = remote_values.loads(self.body), "1.0", "SendStreamingMessage"
            if isinstance(payload, dict) and not payload.keys().isdisjoint(("kind", "status")):
                dialect, name = "0.3" if "kind" in payload else "0.1", "GetTask"
            response = client_operations.JSONRPC_OPERATIONS[dialect][name].decode_response(payload)
        except (ValueError, A2AError) as error:
            raise ProtocolError(f"the notification is not in any dialect of A2A: {error}") from error
        event = response if isinstance(response, pb.StreamResponse) else pb.StreamResponse(task=cast(pb.Task, response))
        pop_cursor(event)
        return event


class SequenceStore(Protocol):
    """Stores acknowledged sequence numbers; in production a table of the receiver's database."""

    def last_sequence(self, key: tuple[str, str]) -> int:
        """Returns the number of the last acknowledged event of a series; 0 for none."""

    def record(self, key: tuple[str, str], sequence: int) -> None:
        """Records an acknowledged event."""


class InMemorySequences:
    """Implements `SequenceStore` in memory: a restart forgets the acknowledgements."""

    def __init__(self) -> None:
        self._sequences: OrderedDict[tuple[str, str], int] = OrderedDict()

    def last_sequence(self, key: tuple[str, str]) -> int:
        return self._sequences.get(key, 0)

    def record(self, key: tuple[str, str], sequence: int) -> None:
        self._sequences[key] = max(sequence, self.last_sequence(key))
        self._sequences.move_to_end(key)
        if len(self._sequences) > MAX_REMEMBERED_TASKS:
            self._sequences.popitem(last=False)


class Receiver:
    """Verifies notifications, and detects repeats. Thread-safe."""

    def __init__(
        self,
        issuer: str,
        audience: str,
        *,
        token: str = "",
        sequences: SequenceStore | None = None,
        ca: Path | None = None,
        fetch: KeyFetcher | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """issuer: the server's public address. audience: this receiver's URL, as registered. token: the token
        registered with it, if any; notifications must contain it. ca: a file (PEM) of the authorities to trust. fetch:
        the source of the keys, by default `ISSUER/.well-known/jwks.json`."""
        self._issuer = issuer
        self._audience = audience
        self._token = token
        self._sequences = sequences or InMemorySequences()
        self._fetch = fetch or _fetcher_of(f"{issuer.rstrip('/')}/.well-known/jwks.json", ca)
        self._clock = clock
        self._fetched_at = float("-inf")
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetch_lock = threading.Lock()
        self._used_ids: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    async def verify(self, headers: Mapping[str, str], body: bytes) -> Notification:
        """Returns the notification in a request. Raises VerificationFailed if it is not genuine, and ServerUnavailable
        while the server's keys are unavailable: respond with 503, and the server retries."""
        return await asyncio.to_thread(self.verify_blocking, headers, body)

    def verify_blocking(self, headers: Mapping[str, str], body: bytes) -> Notification:
        """`verify` without asyncio. May wait for the server's keys."""
        received = {name.lower(): value for name, value in headers.items()}
        if self._token and not any(_equal(received.get(name, ""), self._token) for name in _TOKEN_HEADERS):
            raise VerificationFailed("the token is not the registered one")
        claims = self._verify_signature(
            received.get("dragoman-signature") or received.get("authorization", "").removeprefix("Bearer ")
        )
        if not _equal(claims["request_body_sha256"], hashlib.sha256(body).hexdigest()):
            raise VerificationFailed("the body is not the signed one")
        self._reject_replay(claims["jti"], claims["exp"])
        series = claims["configId"], str(claims["event"]).rpartition(".")[0]
        with self._lock:
            is_new = claims["sequence"] > self._sequences.last_sequence(series)
        return Notification(claims["taskId"], claims["configId"], claims["event"], claims["sequence"], is_new, body)

    def acknowledge(self, notification: Notification) -> None:
        """Records that an event was processed: later deliveries of it and of earlier events are repeats."""
        with self._lock:
            self._sequences.record(notification.sequence_key, notification.sequence)

    def _verify_signature(self, signature: str) -> dict[str, Any]:
        if not signature.isascii():
            raise VerificationFailed("the signature is invalid: not ASCII")
        try:
            key = self._key(str(jwt.get_unverified_header(signature).get("kid")))
            claims: dict[str, Any] = jwt.decode(
                signature,
                key,
                algorithms=["ES256", "EdDSA"],
                issuer=self._issuer,
                audience=self._audience,
                leeway=WEBHOOK_CLOCK_SKEW,
                options={"require": _REQUIRED_CLAIMS},
            )
        except jwt.PyJWTError as error:
            raise VerificationFailed(f"the signature is invalid: {error}") from error
        return claims

    def _key(self, id: str) -> jwt.PyJWK:
        """Returns the key with this id. Keys are fetched again when they are old, since one may have been withdrawn,
        and for an unknown id, since a new one may be in use; at most every 10 s, since anyone can send ids."""
        with self._fetch_lock:
            age = self._clock() - self._fetched_at
            if age > WEBHOOK_KEYS_MAX_AGE or (id not in self._keys and age > WEBHOOK_KEYS_MIN_INTERVAL):
                try:
                    key_set = jwt.PyJWKSet.from_dict(dict(self._fetch()))
                except (OSError, ValueError, jwt.PyJWTError) as error:
                    raise ServerUnavailable.for_address(self._issuer, f"its keys are unavailable: {error}") from error
                self._keys = {key.key_id: key for key in key_set.keys if key.key_id}
                self._fetched_at = self._clock()
            if id not in self._keys:
                raise VerificationFailed("it is signed with a key that the server does not publish")
            return self._keys[id]

    def _reject_replay(self, id: str, expires: float) -> None:
        with self._lock:
            # Each delivery has a new signature, so a second use is a replay.
            if id in self._used_ids:
                raise VerificationFailed("this signature was already used")
            self._used_ids[id] = expires
            while self._used_ids and next(iter(self._used_ids.values())) < time.time() - 2 * WEBHOOK_CLOCK_SKEW:
                self._used_ids.popitem(last=False)  # expired by now, and rejected for that


def _fetcher_of(url: str, ca: Path | None) -> KeyFetcher:
    """Returns a fetcher of keys from a URL. Raises ValueError for a URL without http(s)."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f'issuer: "{url}" must be http(s)://HOST[:PORT]')

    def fetch() -> Mapping[str, Any]:
        context = tls.ssl_context(ca) if url.startswith("https:") else None
        with urllib.request.urlopen(url, timeout=WEBHOOK_KEYS_TIMEOUT, context=context) as response:
            keys = remote_values.loads(response.read(WEBHOOK_KEYS_MAX_BYTES))
        if not isinstance(keys, dict):
            raise ValueError("the document is not a key set")
        return keys

    return fetch


def _equal(one: object, other: str) -> bool:
    # A header may contain bytes that are not UTF-8; web frameworks pass them as surrogates.
    return isinstance(one, str) and hmac.compare_digest(one.encode(errors="surrogateescape"), other.encode())
