"""An erasure from its beginning to its receipt: found on readers, done in the writer's spare time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from dragoman.core.erasing import PURGE, Counts, Receipt, Selection, digest
from dragoman.core.log import Head
from dragoman.stores.sqlite import erasing, reads, selecting
from dragoman.stores.sqlite.writer import Writer

T = TypeVar("T")

Read = Callable[..., Awaitable[Any]]
"""Runs a function of a reader's connection and further arguments."""


class Erasures:
    """What `dragoman.ports.Store` says about selections, on one SQLite file. One erasure at a time."""

    def __init__(self, read: Read, writer: Writer, clock: Callable[[], int]) -> None:
        self._read = read
        self._writer = writer
        self._clock = clock
        self._one = asyncio.Lock()

    async def select(self, selection: Selection) -> AsyncGenerator[list[Head], None]:
        async with aclosing(self._select(selection, self._clock())) as pages:
            async for heads in pages:
                yield heads

    async def measure(self, selection: Selection) -> Counts:
        total = Counts()
        async with aclosing(self._select(selection, self._clock())) as pages:
            async for heads in pages:
                total += await self._read(selecting.measure, heads)
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
            now, number, left = self._clock(), 0, sys.maxsize if limit is None else limit
            async with aclosing(self._select(selection, now)) as pages:
                async for heads in pages:
                    number, taken = await self._fence(number, selection, heads[:left], now, reason)
                    if gone is not None and taken:
                        gone(taken)
                    left -= len(taken)
                    if left <= 0:
                        break
            receipt = await self._finish(number) if number else None
            if selection.whole_context or selection.whole_principal:
                await self._background(self._drop_wholes, selection)
        return receipt or Receipt(0, reason, str(selection), now, now, Counts(), digest(()))

    async def resume(self) -> list[Receipt]:
        async with self._one:
            return await self._resume()

    async def receipts(self, limit: int) -> list[Receipt]:
        found: list[Receipt] = await self._read(erasing.receipts, limit)
        return found

    async def resting(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = await self._read(selecting.resting)
        return found

    async def _select(self, selection: Selection, now: int) -> AsyncGenerator[list[Head], None]:
        for place in await self._read(selecting.ranges, selection, now):
            at = None
            while True:
                heads, at = await self._read(selecting.page, place, at)
                if meant := [head for head in heads if selection.holds(head, now)]:
                    yield meant
                if at is None:
                    break

    async def _resume(self) -> list[Receipt]:
        return [await self._finish(number) for number in await self._read(erasing.unfinished)]

    async def _finish(self, number: int) -> Receipt:
        place: erasing.Left | None = erasing.START
        while place is not None:
            place = await self._background(erasing.sweep, number, place)
        proof = await self._read(erasing.proof_of, number)
        while not await self._background(erasing.finish, number, proof, self._clock()):
            pass
        receipt: Receipt = await self._read(erasing.receipt, number)
        return receipt

    async def _fence(self, *arguments: Any) -> tuple[int, list[Head]]:
        def fence(connection: Any) -> tuple[int, list[Head]]:
            number, taken = erasing.fence(connection, *arguments)
            for head in taken:
                owner = reads.owner_number(connection, head.ref.owner)
                assert owner is not None, "the task was there"
                self._writer.counters.left(connection, owner, head)
            return number, taken

        return await self._background(fence)

    def _drop_wholes(self, connection: Any, selection: Selection) -> None:
        if erasing.drop_wholes(connection, selection):
            self._writer.forget_owners()
            self._writer.counters.forget()

    def _background(self, job: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        return self._writer.submit(lambda connection: job(connection, *arguments), low=True)
