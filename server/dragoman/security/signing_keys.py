"""The keys with which this server signs: kept in its store, and looked at anew every few seconds, as others share it.

The first one follows from the store's own secret, so that a store which was never told anything signs from its first
day on. Those that come later are made up, and kept as the vault has it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from dragoman.core import signing
from dragoman.core.errors import A2AError, InvalidParams, KeyNotFound, Unavailable
from dragoman.core.signing import ALGORITHMS, Algorithm, SigningKey, State
from dragoman.ports import Papers
from dragoman.security.vault import Vault

if TYPE_CHECKING:
    from dragoman.security.keypairs import KeyPair

PAPER: Final = "signing keys"

FRESH: Final = 5.0
"""Seconds for which the keys are taken for what they were."""

SEED: Final = 32
"""Bytes of a seed."""

_log: Final = logging.getLogger("dragoman.signing")


class SigningKeys:
    """Implements `dragoman.ports.SigningKeys`."""

    def __init__(
        self,
        papers: Papers,
        secret: bytes,
        vault: Vault,
        *,
        clock: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        entropy: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        """`secret`: what the first key is made of. `clock` gives milliseconds since the epoch, `monotonic` seconds
        since any moment."""
        self._papers = papers
        self._secret = secret
        self._vault = vault
        self._clock = clock
        self._monotonic = monotonic
        self._entropy = entropy
        self._kept: tuple[SigningKey, ...] = ()
        self._looked = 0.0
        self._pairs: dict[str, KeyPair] = {}
        self._signed = ""
        self._reading = asyncio.Lock()
        self._begun = self._read = 0  # looks: the last one that was begun, and that succeeded
        self.changed: list[Callable[[], None]] = []
        """Told when another key signs than before."""

    async def current(self) -> KeyPair:
        """The pair that signs."""
        await self._fresh()
        return self._pairs[signing.signing(self._kept, self._clock()).id]

    @property
    def at_hand(self) -> KeyPair:
        """The pair that signs, as far as it is known; the keys must have been looked at."""
        return self._pairs[signing.signing(self._kept, self._clock()).id]

    async def public(self) -> bytes:
        """The public halves, as a JWK set. Read anew each time: who asks has met a signature that another server of
        the store may have made a moment ago."""
        await self._fresh(now=True)
        shown = [self._pairs[key.id].public for key in signing.shown(self._kept, self._clock())]
        return json.dumps({"keys": shown}, separators=(",", ":")).encode()

    async def list(self) -> Sequence[tuple[SigningKey, State]]:
        await self._fresh(now=True)
        now = self._clock()
        return [(key, signing.state(key, self._kept, now)) for key in signing.shown(self._kept, now)]

    async def rotate(self, algorithm: str, *, lead: int, keep: int) -> SigningKey:
        for field, value in (("lead", lead), ("keep", keep)):
            if not 0 <= value <= signing.LONGEST:
                raise InvalidParams.field(field, "must be 0 or more, and at most a year")
        await self._fresh(now=True)
        now = self._clock()
        meant = _algorithm(algorithm) if algorithm else signing.signing(self._kept, now).algorithm
        seed = self._entropy(SEED)
        pair = await _made(meant, seed)
        fresh = SigningKey(
            id=pair.id,
            algorithm=meant,
            seed=self._vault.seal(seed.hex(), pair.id),
            made=now,
            signs=now + lead,
        )
        try:
            await self._write(signing.rotated(self._kept, fresh, keep=keep, now=now))
        except ValueError as error:
            raise InvalidParams(str(error)) from error
        _log.info("a new signing key is shown", extra={"kid": pair.id, "alg": meant, "signs_in": lead // 1000})
        return fresh

    async def withdraw(self, id: str) -> None:
        await self._fresh(now=True)
        try:
            await self._write(signing.withdrawn(self._kept, id, self._clock()))
        except KeyError:
            raise KeyNotFound(f'id: no signing key "{id[:100]}" is shown; ListSigningKeys has those that are') from None
        except ValueError as error:
            raise InvalidParams.field("id", str(error)) from error
        _log.warning("a signing key was withdrawn", extra={"kid": id})

    async def watch(self) -> None:
        """Looks at the keys every few seconds, until it is cancelled: one may begin to sign."""
        while True:
            await asyncio.sleep(FRESH)
            try:
                await self._fresh(now=True)
            except (A2AError, RuntimeError) as error:  # the store is in trouble: somebody else says so
                _log.debug("the signing keys cannot be looked at: %s", error)

    async def _write(self, keys: tuple[SigningKey, ...]) -> None:
        former = await self._papers.read(PAPER)
        same = not former or signing.read(former) == self._kept
        if not same or not await self._papers.write(PAPER, signing.write(keys), former=former):
            raise Unavailable("the signing keys were changed by somebody else in this moment; look, and try again")
        await self._fresh(now=True)

    async def _fresh(self, *, now: bool = False) -> None:
        """Reads the keys, unless that was done just now, and makes their pairs."""
        if self._kept and not now and self._monotonic() - self._looked < FRESH:
            self._tell()
            return
        begun = self._begun
        async with self._reading:
            if self._read > begun:  # somebody else has looked since
                return
            self._begun = number = self._begun + 1
            looked = self._monotonic()
            text = await self._papers.read(PAPER)
            kept = signing.read(text) if text else (await self._original(),)
            pairs = {}
            for key in signing.shown(kept, self._clock()):
                pairs[key.id] = self._pairs.get(key.id) or await self._pair(key)
            self._kept, self._pairs, self._looked, self._read = kept, pairs, looked, number
        self._tell()

    def _tell(self) -> None:
        """Tells who wants to know when another key signs than before."""
        current = signing.signing(self._kept, self._clock()).id
        if current != self._signed:
            was, self._signed = self._signed, current
            if was:
                _log.info("another key signs now", extra={"kid": current, "before": was})
                for tell in self.changed:
                    tell()

    async def _original(self) -> SigningKey:
        """The one that follows from the store."""
        pair = await _made("ES256", self._secret)
        return SigningKey(id=pair.id, algorithm="ES256", seed="", made=0, signs=0)

    async def _pair(self, key: SigningKey) -> KeyPair:
        seed = bytes.fromhex(self._vault.open(key.seed, key.id)) if key.seed else self._secret
        return await _made(key.algorithm, seed)


async def _made(algorithm: Algorithm, seed: bytes) -> KeyPair:
    def make() -> KeyPair:
        # Not above: most servers never sign anything, and loading cryptography takes a tenth of a second, in which no
        # stream shall stand still.
        from dragoman.security.keypairs import KeyPair

        return KeyPair(algorithm, seed)

    return await asyncio.to_thread(make)


def _algorithm(said: str) -> Algorithm:
    for one in ALGORITHMS:
        if said == one:
            return one
    raise InvalidParams.field("algorithm", f"must be one of {', '.join(ALGORITHMS)}")
