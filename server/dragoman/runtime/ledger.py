"""Writing down what came of tries: whatever waits goes into one commit, and one commit is under way at a time."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from dragoman.core.push import Push, Settled
from dragoman.ports import Pushes

log = logging.getLogger("dragoman.push")

AGAIN: Final = 1.0
"""Seconds after which what could not be written is written again: it happened, and must not be forgotten."""


class Ledger:
    """The way of deliveries into the store."""

    def __init__(self, pushes: Pushes) -> None:
        self._pushes = pushes
        self._waiting: list[tuple[Settled, asyncio.Future[Push | None]]] = []
        self._writing: asyncio.Task[None] | None = None

    def settle(self, said: Settled) -> asyncio.Future[Push | None]:
        """The push after that, once it is on disk; None when the claim no longer holds."""
        answer: asyncio.Future[Push | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((said, answer))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="push ledger")
        return answer

    async def close(self) -> None:
        """Writes what waits, if the store lets it."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=AGAIN)
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                after = await self._commit([said for said, _ in batch])
                for (_, answer), push in zip(batch, after, strict=True):
                    if not answer.done():
                        answer.set_result(push)
        finally:
            self._writing = None

    async def _commit(self, batch: list[Settled]) -> list[Push | None]:
        while True:
            try:
                return await self._pushes.settle(batch)
            except Exception:
                log.exception("what was delivered could not be written down; trying again")
                await asyncio.sleep(AGAIN)
