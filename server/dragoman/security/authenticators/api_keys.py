"""API keys as callers show them: looked up in the store, and remembered for a few seconds.

A key that is revoked or rotated through this process is forgotten at once; through another one sharing the store, at
most `FRESH` seconds later. Only keys that proved to be good are remembered, so strangers fill nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from dragoman.core.access import caller_credentials
from dragoman.core.access.caller_credentials import ApiKey, PresentedKey
from dragoman.core.access.identity import Identity
from dragoman.core.errors import A2AError, Unauthenticated
from dragoman.ports import ApiKeys

API_KEY_CACHE_TTL: Final = 5.0
"""Seconds for which a key that was looked up is taken for what it was."""

MAX_CACHED_API_KEYS: Final = 1024
"""Keys remembered."""

API_KEY_USE_INTERVAL_MS: Final = 600_000
"""Milliseconds between two notes of a key's use."""

_log: Final = logging.getLogger("dragoman.security")


@dataclass(slots=True)
class _CachedKey:
    key: ApiKey
    expires: float


class ApiKeyAuthenticator:
    """Knows callers by their API keys."""

    def __init__(
        self,
        keys: ApiKeys,
        *,
        clock: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` gives milliseconds since the epoch, `monotonic` seconds since any moment."""
        self._keys = keys
        self._clock = clock
        self._monotonic = monotonic
        self._cache: OrderedDict[str, _CachedKey] = OrderedDict()
        self._use_writes: set[asyncio.Task[None]] = set()

    async def identify(self, text: str) -> Identity | None:
        """Who shows this text; None when it is no API key. Raises Unauthenticated for a key that is not good."""
        if not text.startswith(caller_credentials.API_KEY_PREFIX):
            return None
        shown = caller_credentials.parse_api_key(text)
        if shown is None:
            raise _unauthenticated(
                "this API key is not whole, or mistyped",
                text.removeprefix(caller_credentials.API_KEY_PREFIX).partition("_")[0],
            )
        now = self._clock()
        key = await self._find(shown, now)
        if key is None:
            raise _unauthenticated("there is no such API key", shown.id)
        if trouble := key.problem(now):
            raise _unauthenticated(f"this API key {trouble}", shown.id)
        self._record_use(key, now)
        return key.identity

    async def check(self, id: str) -> None:
        """Looks again at a key that was good. Raises Unauthenticated when it is not any more."""
        key = await self._keys.find(id)
        if key is None or (trouble := key.problem(self._clock())):
            raise _unauthenticated("this API key was withdrawn" if key is None else f"this API key {trouble}", id)

    def forget(self, id: str) -> None:
        """Looks this key up again when it is shown next."""
        self._cache.pop(id, None)

    async def close(self) -> None:
        """Waits until what was noted is written."""
        await asyncio.gather(*self._use_writes)

    async def _find(self, presented: PresentedKey, now: int) -> ApiKey | None:
        remembered = self._cache.get(presented.id)
        if remembered and self._monotonic() < remembered.expires and remembered.key.matches(presented.digest, now):
            self._cache.move_to_end(presented.id)
            return remembered.key
        started = self._monotonic()
        key = await self._keys.find(presented.id)
        if key is None or not key.matches(presented.digest, now):
            return None
        if remembered:  # a note of its use may not be written yet
            key = replace(key, used=max(key.used, remembered.key.used))
        self._cache[presented.id] = _CachedKey(key, started + API_KEY_CACHE_TTL)
        self._cache.move_to_end(presented.id)
        if len(self._cache) > MAX_CACHED_API_KEYS:
            self._cache.popitem(last=False)
        return key

    def _record_use(self, key: ApiKey, now: int) -> None:
        if now - key.used < API_KEY_USE_INTERVAL_MS:
            return
        if remembered := self._cache.get(key.id):
            remembered.key = replace(key, used=now)
        note = asyncio.create_task(self._write_use(key.id, now), name="the use of an API key")
        self._use_writes.add(note)
        note.add_done_callback(self._use_writes.discard)

    async def _write_use(self, id: str, now: int) -> None:
        try:
            await self._keys.touch(id, now=now)
        except (A2AError, RuntimeError) as error:  # the store is in trouble, or closed: somebody else says so
            _log.debug("the use of an API key was not noted: %s", error, extra={"key": id})


def _unauthenticated(reason: str, id: str) -> Unauthenticated:
    about = {"key": id} if caller_credentials.API_KEY_ID.fullmatch(id) else {}
    return Unauthenticated(reason, error="invalid_token", log_details=about)
