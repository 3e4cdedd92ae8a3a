"""`dragoman.ports.push.Pushes` on one SQLite file: looks on readers, changes with what else is committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any

from dragoman.core.log import TaskRef
from dragoman.core.push import Attempt, Push, Settled
from dragoman.core.webhook import PushConfig
from dragoman.ports import PushKey
from dragoman.stores.sqlite import pushes
from dragoman.stores.sqlite.writer import Writer

Read = Callable[..., Awaitable[Any]]
"""Runs a function of a reader's connection and further arguments."""


class Outbox:
    """The configurations of one store."""

    def __init__(self, read: Read, writer: Writer, clock: Callable[[], int]) -> None:
        self._read = read
        self._writer = writer
        self._clock = clock

    async def put(self, task: TaskRef, config: PushConfig) -> Push:
        kept: Push = await self._writer.submit(partial(pushes.put, ref=task, config=config, now=self._clock()))
        return kept

    async def of(self, task: TaskRef) -> list[Push]:
        found: list[Push] = await self._read(pushes.of, task)
        return found

    async def remove(self, task: TaskRef, id: str) -> bool:
        return bool(await self._writer.submit(partial(pushes.remove, ref=task, id=id)))

    async def due(self, *, each: int, hosts: int, after: str = "") -> tuple[list[Push], str]:
        found: tuple[list[Push], str] = await self._read(pushes.due, each, hosts, after, self._clock())
        return found

    async def claim(self, session: int, keys: Sequence[PushKey]) -> list[Push]:
        job = partial(pushes.claim, session=session, keys=keys, now=self._clock())
        taken: list[Push] = await self._writer.submit(job)
        return taken

    async def settle(self, said: Sequence[Settled]) -> list[Push | None]:
        after: list[Push | None] = await self._writer.submit(partial(pushes.write, said=said, now=self._clock()))
        return after

    async def attempts(self, task: TaskRef, id: str) -> list[Attempt]:
        found: list[Attempt] = await self._read(pushes.attempts, task, id)
        return found

    async def revive(self, task: TaskRef, ids: Collection[str], after: int | None = None) -> list[Push]:
        job = partial(pushes.revive, ref=task, ids=ids, after=after, now=self._clock())
        begun: list[Push] = await self._writer.submit(job)
        return begun

    async def waiting(self, limit: int) -> list[Push]:
        found: list[Push] = await self._read(pushes.waiting, limit)
        return found
