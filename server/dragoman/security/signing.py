"""Signing keys in the store, shared by its servers and read again every few seconds.

The first key is derived from the store's secret, so a new store can sign at once. Later keys are random and stored
encrypted by the secret box.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from dragoman.core.access import signing_keys
from dragoman.core.access.signing_keys import SIGNING_ALGORITHMS, SigningAlgorithm, SigningKey, SigningKeyState
from dragoman.core.errors import A2AError, InvalidParams, KeyNotFound, Unavailable
from dragoman.ids import IDS
from dragoman.ports import KeyValues
from dragoman.security.secret_box import AesGcmSecretBox

if TYPE_CHECKING:
    from dragoman.security.key_pairs import KeyPair


SIGNING_KEYS_ENTRY: Final = "signing keys"

SIGNING_KEYS_CACHE_TTL: Final = 5.0
"""Seconds for which keys are cached."""

SIGNING_SEED_BYTES: Final = 32
"""Bytes of a seed."""

_log: Final = logging.getLogger("dragoman.signing")


class StoredSigningKeys:
    """Signing keys in the key-value table. Implements `dragoman.ports.SigningKeys`."""

    def __init__(
        self,
        key_values: KeyValues,
        secret: bytes,
        secret_box: AesGcmSecretBox,
        *,
        clock: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        """secret: the first key is derived from it. clock: milliseconds since the epoch. monotonic: seconds."""
        self._key_values = key_values
        self._secret = secret
        self._secret_box = secret_box
        self._clock = clock
        self._monotonic = monotonic
        self._random_bytes = random_bytes
        self._keys: tuple[SigningKey, ...] = ()
        self._read_at = 0.0
        self._pairs: dict[str, KeyPair] = {}
        self._current_id = ""
        self._read_lock = asyncio.Lock()
        self._reads_started = self._last_read = 0  # numbers of the last read started, and of the last that succeeded
        self.change_listeners: list[Callable[[], None]] = []
        """Called when the signing key changes."""

    async def current(self) -> KeyPair:
        """Returns the key pair that signs now."""
        await self._refresh()
        return self._pairs[signing_keys.active_key(self._keys, self._clock()).id]

    @property
    def cached_current(self) -> KeyPair:
        """The key pair that signs now, from the cache; the keys must have been read before."""
        return self._pairs[signing_keys.active_key(self._keys, self._clock()).id]

    async def public(self) -> bytes:
        """Returns the public keys as a JWK set.

        Always reads the store: the caller may have a signature that another server made with a new key.
        """
        await self._refresh(force=True)
        shown = [self._pairs[key.id].public for key in signing_keys.published_keys(self._keys, self._clock())]
        return json.dumps({"keys": shown}, separators=(",", ":")).encode()

    async def list(self) -> Sequence[tuple[SigningKey, SigningKeyState]]:
        await self._refresh(force=True)
        now = self._clock()
        return [
            (key, signing_keys.key_state(key, self._keys, now)) for key in signing_keys.published_keys(self._keys, now)
        ]

    async def rotate(self, algorithm: str, *, lead: int, retention: int) -> SigningKey:
        for field, value in (("lead", lead), ("keep", retention)):
            if not 0 <= value <= signing_keys.MAX_KEY_PERIOD_MS:
                raise InvalidParams.field(field, "must be 0 or more, and at most a year")
        await self._refresh(force=True)
        now = self._clock()
        chosen = _parse_algorithm(algorithm) if algorithm else signing_keys.active_key(self._keys, now).algorithm
        seed = self._random_bytes(SIGNING_SEED_BYTES)
        pair = await _make_key_pair(chosen, seed)
        fresh = SigningKey(
            id=pair.id,
            algorithm=chosen,
            seed=self._secret_box.encrypt(seed.hex(), pair.id),
            made=now,
            signs=now + lead,
        )
        try:
            await self._write(signing_keys.rotate_keys(self._keys, fresh, retention=retention, now=now))
        except ValueError as error:
            raise InvalidParams(str(error)) from error
        _log.info("a new signing key is published", extra={"kid": pair.id, "alg": chosen, "signs_in": lead // 1000})
        return fresh

    async def withdraw(self, id: str) -> None:
        await self._refresh(force=True)
        try:
            await self._write(signing_keys.withdraw_key(self._keys, id, self._clock()))
        except KeyError:
            raise KeyNotFound(f'id: no signing key "{id[:100]}" is shown; ListSigningKeys has those that are') from None
        except ValueError as error:
            raise InvalidParams.field("id", str(error)) from error
        _log.warning("a signing key was withdrawn", extra={"kid": id})

    async def watch(self) -> None:
        """Reads the keys every few seconds, until canceled: another key may start to sign."""
        while True:
            await asyncio.sleep(SIGNING_KEYS_CACHE_TTL)
            try:
                await self._refresh(force=True)
            except (A2AError, RuntimeError) as error:  # the store is in trouble: somebody else says so
                _log.debug("the signing keys cannot be looked at: %s", error)

    async def _write(self, keys: tuple[SigningKey, ...]) -> None:
        former = await self._key_values.get(SIGNING_KEYS_ENTRY)
        same = not former or signing_keys.signing_keys_from_json(former) == self._keys
        if not same or not await self._key_values.compare_and_set(
            SIGNING_KEYS_ENTRY, signing_keys.signing_keys_to_json(keys), expected=former
        ):
            raise Unavailable("the signing keys were changed by somebody else in this moment; look, and try again")
        await self._refresh(force=True)

    async def _refresh(self, *, force: bool = False) -> None:
        """Reads the keys, unless that was done just now, and makes their pairs."""
        if self._keys and not force and self._monotonic() - self._read_at < SIGNING_KEYS_CACHE_TTL:
            self._notify_change()
            return
        begun = self._reads_started
        async with self._read_lock:
            if self._last_read > begun:  # somebody else has looked since
                return
            self._reads_started = number = self._reads_started + 1
            looked = self._monotonic()
            text = await self._key_values.get(SIGNING_KEYS_ENTRY)
            kept = signing_keys.signing_keys_from_json(text) if text else (await self._first_key(),)
            pairs = {}
            for key in signing_keys.published_keys(kept, self._clock()):
                pairs[key.id] = self._pairs.get(key.id) or await self._key_pair(key)
            self._keys, self._pairs, self._read_at, self._last_read = kept, pairs, looked, number
        self._notify_change()

    def _notify_change(self) -> None:
        """Tells who wants to know when another key signs than before."""
        current = signing_keys.active_key(self._keys, self._clock()).id
        if current != self._current_id:
            was, self._current_id = self._current_id, current
            if was:
                _log.info("another key signs now", extra={"kid": current, "before": was})
                for tell in self.change_listeners:
                    tell()

    async def _first_key(self) -> SigningKey:
        """The one that follows from the store."""
        pair = await _make_key_pair("ES256", self._secret)
        return SigningKey(id=pair.id, algorithm="ES256", seed="", made=0, signs=0)

    async def _key_pair(self, key: SigningKey) -> KeyPair:
        seed = bytes.fromhex(self._secret_box.decrypt(key.seed, key.id)) if key.seed else self._secret
        return await _make_key_pair(key.algorithm, seed)


async def _make_key_pair(algorithm: SigningAlgorithm, seed: bytes) -> KeyPair:
    def make() -> KeyPair:
        # Not above: most servers never sign anything, and loading cryptography takes a tenth of a second, in which no
        # stream shall stand still.
        from dragoman.security.key_pairs import KeyPair

        return KeyPair(algorithm, seed)

    return await asyncio.to_thread(make)


def _parse_algorithm(name: str) -> SigningAlgorithm:
    for one in SIGNING_ALGORITHMS:
        if name == one:
            return one
    raise InvalidParams.field("algorithm", f"must be one of {', '.join(SIGNING_ALGORITHMS)}")


SIGNATURE_LIFETIME: Final = 300
"""Seconds for which a signature is good."""


class WebhookSigner:
    """Implements `dragoman.ports.Signer`."""

    def __init__(
        self,
        keys: StoredSigningKeys,
        issuer: Callable[[], str],
        *,
        clock: Callable[[], float] = time.time,
        ids: Callable[[], str] = IDS.uuid,
    ) -> None:
        """`issuer` gives the public address of this server, `clock` seconds since the epoch."""
        self._keys = keys
        self._issuer = issuer
        self._clock = clock
        self._ids = ids

    async def sign(self, audience: str, task: str, config: str, event: str, body: bytes) -> str:
        key, now = await self._keys.current(), int(self._clock())
        claims = {
            "iss": self._issuer(),
            "aud": audience,
            "iat": now,
            "exp": now + SIGNATURE_LIFETIME,
            "jti": self._ids(),
            "taskId": task,
            "configId": config,
            "event": event,
            "sequence": int(event.rpartition(".")[2]),
            "request_body_sha256": sha256(body).hexdigest(),
        }
        return key.sign(json.dumps(claims, separators=(",", ":")).encode(), {"typ": "JWT"})


class JwsCardSigner:
    """Implements `dragoman.ports.CardSigner`."""

    def __init__(self, keys: StoredSigningKeys) -> None:
        """`_keys` have been looked at before."""
        self._keys = keys

    def sign(self, texts: Iterable[bytes], keys_url: str) -> list[tuple[str, str]]:
        key, header = self._keys.cached_current, {"typ": "JOSE", "jku": keys_url}
        signed = (key.sign(text, header).split(".") for text in texts)
        return [(protected, signature) for protected, _, signature in signed]
