"""Signatures of webhooks and agent cards, with keys in the store that its servers share.

Keys are random, and stored encrypted by the secret box. A box without keys encrypts nothing: then the first key is
derived from the store's secret, which is in each of its backups, too. Servers read the keys every few seconds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256, sha512
from typing import TYPE_CHECKING, Any, Final

from dragoman.core.access import signing_keys
from dragoman.core.access.signing_keys import SIGNING_ALGORITHMS, SigningAlgorithm, SigningKey, SigningKeyState
from dragoman.core.errors import A2AError, InvalidParams, KeyNotFound, Unavailable
from dragoman.ids import IDS
from dragoman.ports import KeyValues
from dragoman.security.secret_box import AesGcmSecretBox

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

SIGNING_KEYS_ENTRY: Final = "signing keys"

SIGNING_KEYS_CACHE_TTL: Final = 5.0  # seconds for which keys are cached
SIGNING_SEED_BYTES: Final = 32

SIGNATURE_LIFETIME: Final = 300  # seconds until a webhook's signature expires

_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of P-256's group (SEC 2 §2.4.2): private keys are smaller."""

_log: Final = logging.getLogger("dragoman.signing")


class KeyPair:
    """A signing key pair, derived from a seed."""

    def __init__(self, algorithm: SigningAlgorithm, seed: bytes) -> None:
        """seed: 32 secret bytes. The same seed gives the same pair."""
        # Imported here: loading cryptography takes 0.1 s, and most servers never sign.
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519
        from jwt import PyJWS
        from jwt.algorithms import ECAlgorithm, OKPAlgorithm

        self.algorithm = algorithm
        self._signer = PyJWS(algorithms=[algorithm])
        self._private: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
        jwk: Mapping[str, Any]
        if algorithm == "ES256":
            # A digest of 512 bits makes the bias of the remainder negligible.
            number = int.from_bytes(sha512(seed).digest()) % (_P256_ORDER - 1) + 1
            self._private = private = ec.derive_private_key(number, ec.SECP256R1())
            jwk = ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
        else:
            self._private = edwards = ed25519.Ed25519PrivateKey.from_private_bytes(sha256(seed).digest())
            jwk = OKPAlgorithm.to_jwk(edwards.public_key(), as_dict=True)
        members: dict[str, str] = {name: str(jwk[name]) for name in ("crv", "kty", "x", "y") if name in jwk}
        canonical = json.dumps(members, separators=(",", ":"), sort_keys=True).encode()
        self.id = urlsafe_b64encode(sha256(canonical).digest()).rstrip(b"=").decode()  # a thumbprint (RFC 7638)
        self.public = {**members, "kid": self.id, "alg": algorithm, "use": "sig"}  # the public key as a JWK

    def sign(self, payload: bytes, header: Mapping[str, str]) -> str:
        """Returns a compact JWS (RFC 7515 §7.1) with the key's id in the header."""
        return self._signer.encode(
            payload, self._private, algorithm=self.algorithm, headers={**header, "kid": self.id}, sort_headers=True
        )


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
        """secret: without keys of the box, the first key is derived from it. clock: milliseconds since the epoch.

        monotonic: seconds.
        """
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
        self.change_listeners: list[Callable[[], None]] = []  # called when the signing key changes

    async def current(self) -> KeyPair:
        await self._refresh()
        return self.cached_current

    @property
    def cached_current(self) -> KeyPair:
        """The key pair that signs now, from the cache; the keys must have been read before."""
        return self._pairs[signing_keys.active_key(self._keys, self._clock()).id]

    async def public(self) -> bytes:
        # Always reads the store: the caller may have a signature that another server made with a new key.
        await self._refresh(force=True)
        published = [self._pairs[key.id].public for key in signing_keys.published_keys(self._keys, self._clock())]
        return json.dumps({"keys": published}, separators=(",", ":")).encode()

    async def list(self) -> Sequence[tuple[SigningKey, SigningKeyState]]:
        await self._refresh(force=True)
        now = self._clock()
        return [
            (key, signing_keys.key_state(key, self._keys, now)) for key in signing_keys.published_keys(self._keys, now)
        ]

    async def rotate(self, algorithm: str, *, lead: int, retention: int) -> SigningKey:
        for field, milliseconds in (("lead", lead), ("keep", retention)):
            if not 0 <= milliseconds <= signing_keys.MAX_KEY_PERIOD_MS:
                raise InvalidParams.field(field, "must be 0 or more, and at most a year")
        await self._refresh(force=True)
        now = self._clock()
        chosen = _parse_algorithm(algorithm) if algorithm else signing_keys.active_key(self._keys, now).algorithm
        new_key = await self._random_key(chosen, now, now + lead)
        try:
            await self._write(signing_keys.rotate_keys(self._keys, new_key, retention=retention, now=now))
        except ValueError as error:
            raise InvalidParams(str(error)) from error
        _log.info("a new signing key is published", extra={"kid": new_key.id, "alg": chosen, "signs_in": lead // 1000})
        return new_key

    async def withdraw(self, id: str) -> None:
        await self._refresh(force=True)
        try:
            await self._write(signing_keys.withdraw_key(self._keys, id, self._clock()))
        except KeyError:
            raise KeyNotFound(f'id: no signing key "{id[:100]}" is published; see ListSigningKeys') from None
        except ValueError as error:
            raise InvalidParams.field("id", str(error)) from error
        _log.warning("a signing key was withdrawn", extra={"kid": id})

    async def watch(self) -> None:
        """Reads the keys every SIGNING_KEYS_CACHE_TTL seconds, until canceled, to notice changes."""
        while True:
            await asyncio.sleep(SIGNING_KEYS_CACHE_TTL)
            try:
                await self._refresh(force=True)
            except (A2AError, RuntimeError) as error:  # reported by the store
                _log.debug("the signing keys cannot be read: %s", error)

    async def _write(self, keys: tuple[SigningKey, ...]) -> None:
        stored = await self._key_values.get(SIGNING_KEYS_ENTRY)
        unchanged = not stored or signing_keys.signing_keys_from_json(stored) == self._keys
        if not unchanged or not await self._key_values.compare_and_set(
            SIGNING_KEYS_ENTRY, signing_keys.signing_keys_to_json(keys), expected=stored
        ):
            raise Unavailable("the signing keys were changed by another call at the same time; list them and retry")
        await self._refresh(force=True)

    async def _refresh(self, *, force: bool = False) -> None:
        """Reads the keys and derives their pairs, unless the cache is fresh."""
        if self._keys and not force and self._monotonic() - self._read_at < SIGNING_KEYS_CACHE_TTL:
            self._notify_change()
            return
        begun = self._reads_started
        async with self._read_lock:
            if self._last_read > begun:  # another task has read them meanwhile
                return
            self._reads_started = number = self._reads_started + 1
            read_at = self._monotonic()
            text = await self._key_values.get(SIGNING_KEYS_ENTRY)
            keys = signing_keys.signing_keys_from_json(text) if text else await self._first_keys()
            pairs = {}
            for key in signing_keys.published_keys(keys, self._clock()):
                pairs[key.id] = self._pairs.get(key.id) or await self._key_pair(key)
            self._keys, self._pairs, self._read_at, self._last_read = keys, pairs, read_at, number
        self._notify_change()

    def _notify_change(self) -> None:
        current = signing_keys.active_key(self._keys, self._clock()).id
        if current != self._current_id:
            previous, self._current_id = self._current_id, current
            if previous:
                _log.info("another key signs now", extra={"kid": current, "before": previous})
                for listener in self.change_listeners:
                    listener()

    async def _first_keys(self) -> tuple[SigningKey, ...]:
        """The first key: random and stored if it can be encrypted, otherwise derived from the store's secret."""
        if not self._secret_box.has_keys:
            pair = await _make_key_pair("ES256", self._secret)
            return (SigningKey(id=pair.id, algorithm="ES256", seed="", made=0, signs=0),)
        key = await self._random_key("ES256", self._clock(), 0)
        await self._key_values.compare_and_set(
            SIGNING_KEYS_ENTRY, signing_keys.signing_keys_to_json((key,)), expected=""
        )  # another server may have been faster
        return signing_keys.signing_keys_from_json(await self._key_values.get(SIGNING_KEYS_ENTRY))

    async def _random_key(self, algorithm: SigningAlgorithm, made: int, signs: int) -> SigningKey:
        seed = self._random_bytes(SIGNING_SEED_BYTES)
        pair = await _make_key_pair(algorithm, seed)
        sealed = self._secret_box.encrypt(seed.hex(), pair.id)
        return SigningKey(id=pair.id, algorithm=algorithm, seed=sealed, made=made, signs=signs)

    async def _key_pair(self, key: SigningKey) -> KeyPair:
        seed = bytes.fromhex(self._secret_box.decrypt(key.seed, key.id)) if key.seed else self._secret
        return await _make_key_pair(key.algorithm, seed)


async def _make_key_pair(algorithm: SigningAlgorithm, seed: bytes) -> KeyPair:
    # In a thread: the first pair imports cryptography, which would block the event loop for 0.1 s.
    return await asyncio.to_thread(KeyPair, algorithm, seed)


def _parse_algorithm(name: str) -> SigningAlgorithm:
    for algorithm in SIGNING_ALGORITHMS:
        if name == algorithm:
            return algorithm
    raise InvalidParams.field("algorithm", f"must be one of {', '.join(SIGNING_ALGORITHMS)}")


@dataclass(eq=False, repr=False)
class WebhookSigner:
    """Signs webhook requests with a JWT. Implements `dragoman.ports.WebhookRequestSigner`."""

    keys: StoredSigningKeys
    issuer: Callable[[], str]  # returns the public URL of this server
    clock: Callable[[], float] = time.time  # seconds since the epoch
    ids: Callable[[], str] = IDS.uuid

    async def sign(self, audience: str, task: str, config: str, event: str, body: bytes) -> str:
        key, now = await self.keys.current(), int(self.clock())
        claims = {
            "iss": self.issuer(),
            "aud": audience,
            "iat": now,
            "exp": now + SIGNATURE_LIFETIME,
            "jti": self.ids(),
            "taskId": task,
            "configId": config,
            "event": event,
            "sequence": int(event.rpartition(".")[2]),
            "request_body_sha256": sha256(body).hexdigest(),
        }
        return key.sign(json.dumps(claims, separators=(",", ":")).encode(), {"typ": "JWT"})


@dataclass(eq=False, repr=False)
class JwsCardSigner:
    """Signs agent cards (A2A 1.0 §8.4). Implements `dragoman.ports.CardSigner`."""

    keys: StoredSigningKeys  # which must have been read before

    def sign(self, texts: Iterable[bytes], keys_url: str) -> list[tuple[str, str]]:
        key, header = self.keys.cached_current, {"typ": "JOSE", "jku": keys_url}
        parts = (key.sign(text, header).split(".") for text in texts)
        return [(protected, signature) for protected, _, signature in parts]
