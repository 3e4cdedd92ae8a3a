"""Push notifications of a Dragoman, checked before they are believed (docs/how-to/push.md).

    receiver = Receiver("https://agents.example", "https://client.example/hook")

    async def hook(request):
        try:
            told = await receiver.take(request.headers, await request.read())
        except NotGenuine as error:
            return Response(status=401, text=error.message)
        except Unreachable as error:  # the server's keys cannot be had now: it comes again
            return Response(status=503, text=error.message)
        if told.is_new:
            ...
            receiver.done(told)
        return Response(status=200)

A notification is genuine if its signature is, by a key that the server shows; if it is for us, and the very body that
was signed; if it is not older than five minutes, and was not here before.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
import time
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, cast

import jwt
import orjson

from dragoman.calling import tls as trust
from dragoman.calling.errors import ClientError, ProtocolError, ServerUnavailable
from dragoman.calling.retry import pop_cursor
from dragoman.core.errors import A2AError
from dragoman.wire import client_operations
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

WEBHOOK_CLOCK_SKEW: Final = 60
"""Seconds by which the server's clock and ours may differ."""

WEBHOOK_KEYS_MAX_BYTES: Final = 1024 * 1024
WEBHOOK_KEYS_TIMEOUT: Final = 10.0
WEBHOOK_KEYS_MAX_AGE: Final = 300.0
WEBHOOK_KEYS_MIN_INTERVAL: Final = 10.0
"""Of the server's keys: their most bytes, the seconds for an answer, after which they are fetched anew, and between two
looks for one that nobody knows."""

MAX_REMEMBERED_TASKS: Final = 100_000
"""Tasks that are remembered, where nothing else remembers them."""

_REQUIRED_CLAIMS: Final = [
    "iss",
    "aud",
    "iat",
    "exp",
    "jti",
    "taskId",
    "configId",
    "event",
    "sequence",
    "request_body_sha256",
]
_TOKEN_HEADERS: Final = ("x-a2a-notification-token", "a2a-notification-token")

KeyFetcher = Callable[[], Mapping[str, Any]]
"""Gives the server's keys, as a JSON Web Key Set. Raises OSError when they cannot be had."""


class VerificationFailed(ClientError):
    """A notification that is not to be believed. Answer 401."""

    def __init__(self, reason: str) -> None:
        super().__init__("UNAUTHENTICATED", reason)


@dataclass(frozen=True, slots=True)
class Notification:
    """One event of a task, told by its server."""

    task_id: str
    config_id: str
    """Of the webhook."""
    cursor: str
    """The event: the same for each try, and where a stream can be taken up after it."""
    sequence: int
    """The number of the event. Those of a webhook grow, so who has taken one has taken those before."""
    is_new: bool
    """Whether it was not taken yet. A repeat is answered with 200, too."""
    body: bytes = field(repr=False)

    @property
    def sequence_key(self) -> tuple[str, str]:
        """Whose numbers belong together: the webhook, and its task in the server's store."""
        return self.config_id, self.cursor.rpartition(".")[0]

    @property
    def response(self) -> pb.StreamResponse:
        """What it says, in the messages of A2A 1.0, in whatever dialect the webhook was asked for. Raises Nonsense."""
        try:
            value = orjson.loads(self.body)
            if isinstance(value, dict) and "kind" in value:
                said = pb.StreamResponse(
                    task=cast(pb.Task, client_operations.JSONRPC_OPERATIONS["0.3"]["GetTask"].decode_response(value))
                )
            elif isinstance(value, dict) and "status" in value:
                said = pb.StreamResponse(
                    task=cast(pb.Task, client_operations.JSONRPC_OPERATIONS["0.1"]["GetTask"].decode_response(value))
                )
            else:
                said = cast(
                    pb.StreamResponse,
                    client_operations.JSONRPC_OPERATIONS["1.0"]["SendStreamingMessage"].decode_response(value),
                )
        except (orjson.JSONDecodeError, A2AError) as error:
            raise ProtocolError(f"the notification is in no dialect of A2A: {error}") from error
        for holder in (said.task, said.status_update, said.artifact_update):
            pop_cursor(holder)
        return said


class SequenceStore(Protocol):
    """What was taken already. In earnest it is a table in the database in which what was told goes."""

    def last_sequence(self, key: tuple[str, str]) -> int:
        """The number of the last event that was taken there; 0 for none."""
        ...

    def record(self, key: tuple[str, str], sequence: int) -> None:
        """An event was taken."""
        ...


class InMemorySequences:
    """Implements `Memory` for as long as the process lives."""

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
    """Knows what is genuine, and what is new. May be used from several threads."""

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
        """issuer: the server's public address. audience: our own URL, as it was registered. token: what was registered
        with it, if anything, and has to come along. ca: a file (PEM) of the authorities to trust. fetch: gets the keys
        from elsewhere than `ISSUER/.well-known/jwks.json`."""
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
        """The notification in a request that is genuine. Raises NotGenuine; and Unreachable when that cannot be found
        out now: answer 503 then, and it comes again."""
        return await asyncio.to_thread(self.verify_blocking, headers, body)

    def verify_blocking(self, headers: Mapping[str, str], body: bytes) -> Notification:
        """The same without asyncio. It may wait for the server's keys."""
        given = {name.lower(): value for name, value in headers.items()}
        if self._token and not any(_equal(given.get(name, ""), self._token) for name in _TOKEN_HEADERS):
            raise VerificationFailed("its token is not the one that was registered")
        said = self._verify_signature(
            given.get("dragoman-signature") or given.get("authorization", "").removeprefix("Bearer ")
        )
        if not _equal(said["request_body_sha256"], hashlib.sha256(body).hexdigest()):
            raise VerificationFailed("its body is not the one that was signed")
        self._reject_replay(said["jti"], said["exp"])
        place = said["configId"], str(said["event"]).rpartition(".")[0]
        with self._lock:
            is_new = said["sequence"] > self._sequences.last_sequence(place)
        return Notification(said["taskId"], said["configId"], said["event"], said["sequence"], is_new, body)

    def acknowledge(self, notification: Notification) -> None:
        """Notes that an event was taken: it is not new when it comes again, and nor are those before it."""
        with self._lock:
            self._sequences.record(notification.sequence_key, notification.sequence)

    def _verify_signature(self, signature: str) -> dict[str, Any]:
        if not signature.isascii():
            raise VerificationFailed("its signature is not good: not ASCII")
        try:
            key = self._key(str(jwt.get_unverified_header(signature).get("kid")))
            said: dict[str, Any] = jwt.decode(
                signature,
                key,
                algorithms=["ES256", "EdDSA"],
                issuer=self._issuer,
                audience=self._audience,
                leeway=WEBHOOK_CLOCK_SKEW,
                options={"require": _REQUIRED_CLAIMS},
            )
        except jwt.PyJWTError as error:
            raise VerificationFailed(f"its signature is not good: {error}") from error
        return said

    def _key(self, id: str) -> jwt.PyJWK:
        """The key of this name. They are fetched again when they are old, since one may have been withdrawn, and when
        one is not among them, since a new one may have begun to sign; but not at every stranger's word."""
        with self._fetch_lock:
            age = self._clock() - self._fetched_at
            if age > WEBHOOK_KEYS_MAX_AGE or (id not in self._keys and age > WEBHOOK_KEYS_MIN_INTERVAL):
                try:
                    found = jwt.PyJWKSet.from_dict(dict(self._fetch()))
                except (OSError, ValueError, jwt.PyJWTError) as error:
                    raise ServerUnavailable.for_address(self._issuer, f"its keys cannot be had: {error}") from error
                self._keys = {key.key_id: key for key in found.keys if key.key_id}
                self._fetched_at = self._clock()
            if id not in self._keys:
                raise VerificationFailed("it is signed with a key that the server does not show")
            return self._keys[id]

    def _reject_replay(self, id: str, expires: float) -> None:
        with self._lock:
            # Every try is signed anew, so the same signature twice is somebody who has listened.
            if id in self._used_ids:
                raise VerificationFailed("this very signature was here already")
            self._used_ids[id] = expires
            while self._used_ids and next(iter(self._used_ids.values())) < time.time() - 2 * WEBHOOK_CLOCK_SKEW:
                self._used_ids.popitem(last=False)  # refused for its age from now on


def _fetcher_of(url: str, ca: Path | None) -> KeyFetcher:
    """Fetches keys from a URL. Raises ValueError for one that is not on the web."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f'issuer: "{url}" must be http(s)://HOST[:PORT]')

    def fetch() -> Mapping[str, Any]:
        tls = trust.ssl_context(ca) if url.startswith("https:") else None
        with urllib.request.urlopen(url, timeout=WEBHOOK_KEYS_TIMEOUT, context=tls) as answer:
            found = json.loads(answer.read(WEBHOOK_KEYS_MAX_BYTES))
        if not isinstance(found, dict):
            raise ValueError("they are no key set")
        return found

    return fetch


def _equal(one: object, other: str) -> bool:
    # A header may hold bytes that are no UTF-8; web frameworks give them as surrogates.
    return isinstance(one, str) and hmac.compare_digest(one.encode(errors="surrogateescape"), other.encode())
