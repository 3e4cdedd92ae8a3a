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

from dragoman.core import apikeys
from dragoman.core.apikeys import ApiKey, Shown
from dragoman.core.errors import A2AError, Unauthenticated
from dragoman.core.identity import Identity
from dragoman.ports import ApiKeys

FRESH: Final = 5.0
"""Seconds for which a key that was looked up is taken for what it was."""

KEPT: Final = 1024
"""Keys remembered."""

COARSE: Final = 600_000
"""Milliseconds between two notes of a key's use."""

_log: Final = logging.getLogger("dragoman.security")


@dataclass(slots=True)
class _Remembered:
    key: ApiKey
    until: float


class KeyCheck:
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
        self._remembered: OrderedDict[str, _Remembered] = OrderedDict()
        self._notes: set[asyncio.Task[None]] = set()

    async def identify(self, text: str) -> Identity | None:
        """Who shows this text; None when it is no API key. Raises Unauthenticated for a key that is not good."""
        if not text.startswith(apikeys.PREFIX):
            return None
        shown = apikeys.read(text)
        if shown is None:
            raise _refused(
                "this API key is not whole, or mistyped", text.removeprefix(apikeys.PREFIX).partition("_")[0]
            )
        now = self._clock()
        key = await self._find(shown, now)
        if key is None:
            raise _refused("there is no such API key", shown.id)
        if trouble := key.trouble(now):
            raise _refused(f"this API key {trouble}", shown.id)
        self._note(key, now)
        return key.identity

    async def check(self, id: str) -> None:
        """Looks again at a key that was good. Raises Unauthenticated when it is not any more."""
        key = await self._keys.find(id)
        if key is None or (trouble := key.trouble(self._clock())):
            raise _refused("this API key was withdrawn" if key is None else f"this API key {trouble}", id)

    def forget(self, id: str) -> None:
        """Looks this key up again when it is shown next."""
        self._remembered.pop(id, None)

    async def close(self) -> None:
        """Waits until what was noted is written."""
        await asyncio.gather(*self._notes)

    async def _find(self, shown: Shown, now: int) -> ApiKey | None:
        remembered = self._remembered.get(shown.id)
        if remembered and self._monotonic() < remembered.until and remembered.key.proves(shown.digest, now):
            self._remembered.move_to_end(shown.id)
            return remembered.key
        asked = self._monotonic()
        key = await self._keys.find(shown.id)
        if key is None or not key.proves(shown.digest, now):
            return None
        if remembered:  # a note of its use may not be written yet
            key = replace(key, used=max(key.used, remembered.key.used))
        self._remembered[shown.id] = _Remembered(key, asked + FRESH)
        self._remembered.move_to_end(shown.id)
        if len(self._remembered) > KEPT:
            self._remembered.popitem(last=False)
        return key

    def _note(self, key: ApiKey, now: int) -> None:
        if now - key.used < COARSE:
            return
        if remembered := self._remembered.get(key.id):
            remembered.key = replace(key, used=now)
        note = asyncio.create_task(self._write(key.id, now), name="the use of an API key")
        self._notes.add(note)
        note.add_done_callback(self._notes.discard)

    async def _write(self, id: str, now: int) -> None:
        try:
            await self._keys.touch(id, now=now)
        except (A2AError, RuntimeError) as error:  # the store is in trouble, or closed: somebody else says so
            _log.debug("the use of an API key was not noted: %s", error, extra={"key": id})


def _refused(reason: str, id: str) -> Unauthenticated:
    about = {"key": id} if apikeys.ID.fullmatch(id) else {}
    return Unauthenticated(reason, error="invalid_token", about=about)
