"""Authenticates callers by API key, with a cache of a few seconds before the store.

A key revoked or rotated through this process leaves the cache at once; through another process of the store, at most
API_KEY_CACHE_TTL later. Only valid keys are cached, so unauthenticated callers cannot fill the cache.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from dragoman.core.access import caller_credentials
from dragoman.core.access.caller_credentials import ApiKey, PresentedKey
from dragoman.core.access.identity import Identity
from dragoman.core.errors import A2AError, Unauthenticated
from dragoman.ports import ApiKeys

API_KEY_CACHE_TTL: Final = 5.0  # seconds for which keys are cached
MAX_CACHED_API_KEYS: Final = 1024

API_KEY_USE_INTERVAL_MS: Final = 600_000  # milliseconds between two writes of a key's last use
_log: Final = logging.getLogger("dragoman.security")


@dataclass(slots=True)
class _CachedKey:
    key: ApiKey
    expires: float


@dataclass(eq=False, repr=False)
class ApiKeyAuthenticator:
    """Authenticates callers by API key."""

    keys: ApiKeys
    clock: Callable[[], int]  # milliseconds since the epoch
    monotonic: Callable[[], float] = time.monotonic
    max_cached: int = MAX_CACHED_API_KEYS
    _cache: OrderedDict[str, _CachedKey] = field(default_factory=OrderedDict, init=False)
    _use_writes: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def identify(self, credential: str) -> Identity | None:
        """The identity of an API key; None for other texts. Raises Unauthenticated for an invalid key."""
        if not credential.startswith(caller_credentials.API_KEY_PREFIX):
            return None
        presented = caller_credentials.parse_api_key(credential)
        if presented is None:
            raise _unauthenticated(
                "this API key is truncated or mistyped",
                credential.removeprefix(caller_credentials.API_KEY_PREFIX).partition("_")[0],
            )
        now = self.clock()
        key = await self._find(presented, now)
        if key is None:
            raise _unauthenticated("this API key does not exist", presented.id)
        if problem := key.problem(now):
            raise _unauthenticated(f"this API key {problem}", presented.id)
        self._record_use(key, now)
        return key.identity

    async def check(self, id: str) -> None:
        """Checks again a key that was valid. Raises Unauthenticated if it no longer is."""
        key = await self.keys.find(id)
        if key is None or (problem := key.problem(self.clock())):
            raise _unauthenticated("this API key was withdrawn" if key is None else f"this API key {problem}", id)

    def forget(self, id: str) -> None:
        self._cache.pop(id, None)

    async def close(self) -> None:
        await asyncio.gather(*self._use_writes)

    async def _find(self, presented: PresentedKey, now: int) -> ApiKey | None:
        cached = self._cache.get(presented.id)
        if cached and self.monotonic() < cached.expires and cached.key.matches(presented.digest, now):
            self._cache.move_to_end(presented.id)
            return cached.key
        started = self.monotonic()
        key = await self.keys.find(presented.id)
        if key is None or not key.matches(presented.digest, now):
            return None
        if cached:  # its last use may not be written yet
            key = replace(key, used=max(key.used, cached.key.used))
        self._cache[presented.id] = _CachedKey(key, started + API_KEY_CACHE_TTL)
        self._cache.move_to_end(presented.id)
        if len(self._cache) > self.max_cached:
            self._cache.popitem(last=False)
        return key

    def _record_use(self, key: ApiKey, now: int) -> None:
        if now - key.used < API_KEY_USE_INTERVAL_MS:
            return
        if cached := self._cache.get(key.id):
            cached.key = replace(key, used=now)
        write = asyncio.create_task(self._write_use(key.id, now), name="last use of an API key")
        self._use_writes.add(write)
        write.add_done_callback(self._use_writes.discard)

    async def _write_use(self, id: str, now: int) -> None:
        try:
            await self.keys.touch(id, now=now)
        except (A2AError, RuntimeError) as error:  # the store fails, which it reports itself, or is closed
            _log.debug("the last use of an API key was not written: %s", error, extra={"key": id})


def _unauthenticated(reason: str, id: str) -> Unauthenticated:
    log_details = {"key": id} if caller_credentials.API_KEY_ID.fullmatch(id) else {}
    return Unauthenticated(reason, error="invalid_token", log_details=log_details)
