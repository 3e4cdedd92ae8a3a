"""An erasure from its beginning to its receipt. One at a time in a process; several processes do not disturb each
other, and complete what one of them left."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from dragoman.core.erasing import PURGE, Counts, Receipt, Selection, digest
from dragoman.core.log import Head
from dragoman.stores.postgres import erasing, selecting
from dragoman.stores.postgres.database import Database


class Erasures:
    """What `dragoman.ports.Store` says about selections."""

    def __init__(self, database: Database, slot: int) -> None:
        self._database = database
        self._slot = slot
        self._one = asyncio.Lock()
        self._begun: set[int] = set()
        """Receipts that were begun here and are not complete. Others may be somebody's who works on them now."""

    async def select(self, selection: Selection) -> AsyncGenerator[list[Head], None]:
        async with aclosing(self._select(selection, await self._now())) as pages:
            async for heads in pages:
                yield heads

    async def measure(self, selection: Selection) -> Counts:
        total = Counts()
        async with aclosing(self._select(selection, await self._now())) as pages:
            async for heads in pages:
                total += await self._database.snapshot(selecting.measure, heads)
        return total

    async def erase(
        self,
        selection: Selection,
        *,
        reason: str = PURGE,
        limit: int | None = None,
        gone: Callable[[list[Head]], None] | None = None,
    ) -> Receipt:
        async with self._one:
            await self._resume()
            now, number, left = await self._now(), 0, sys.maxsize if limit is None else limit
            async with aclosing(self._select(selection, now)) as pages:
                async for heads in pages:
                    number, taken = await self._database.change(
                        erasing.fence, number, selection, heads[:left], now, reason, self._slot
                    )
                    if taken:
                        self._begun.add(number)
                    if gone is not None and taken:
                        gone(taken)
                    left -= len(taken)
                    if left <= 0:
                        break
            receipt = await self._finish(number) if number else None
            if selection.whole_context or selection.whole_principal:
                await self._database.change_alone(erasing.drop_wholes, selection)
        return receipt or Receipt(0, reason, str(selection), now, now, Counts(), digest(()))

    async def resume(self) -> list[Receipt]:
        async with self._one:
            return await self._resume()

    async def receipts(self, limit: int) -> list[Receipt]:
        return await self._database.look(erasing.receipts, limit)

    async def resting(self) -> list[tuple[str, int]]:
        return await self._database.look(selecting.resting)

    async def _now(self) -> int:
        return await self._database.look(self._database.now)

    async def _select(self, selection: Selection, now: int) -> AsyncGenerator[list[Head], None]:
        for place in await self._database.look(selecting.ranges, selection, now):
            at = None
            while True:
                heads, at = await self._database.look(selecting.page, place, at)
                if meant := [head for head in heads if selection.holds(head, now)]:
                    yield meant
                if at is None:
                    break

    async def _resume(self) -> list[Receipt]:
        numbers = await self._database.look(erasing.unfinished, self._begun, await self._now())
        return [await self._finish(number) for number in numbers]

    async def _finish(self, number: int) -> Receipt:
        place: erasing.Left | None = erasing.START
        while place is not None:
            place = await self._database.change(erasing.sweep, number, place, await self._now())
        proof = await self._database.look(erasing.proof_of, number)
        while not await self._database.change(erasing.finish, number, proof, await self._now()):
            pass
        self._begun.discard(number)
        return await self._database.look(erasing.receipt, number)
