"""`dragoman.ports.push.Pushes` on a database."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dragoman.core.log import TaskRef
from dragoman.core.push import Attempt, Push, Settled
from dragoman.core.webhook import PushConfig
from dragoman.ports import PushKey
from dragoman.stores.postgres import pushes
from dragoman.stores.postgres.database import Database


class Outbox:
    """The configurations of one store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, task: TaskRef, config: PushConfig) -> Push:
        return await self._database.change(pushes.put, task, config, self._database.at)

    async def of(self, task: TaskRef) -> list[Push]:
        return await self._database.look(pushes.of, task)

    async def remove(self, task: TaskRef, id: str) -> bool:
        return await self._database.change(pushes.remove, task, id)

    async def due(self, *, each: int, hosts: int, after: str = "") -> tuple[list[Push], str]:
        return await self._database.look(pushes.due, each, hosts, after, self._database.at)

    async def claim(self, session: int, keys: Sequence[PushKey]) -> list[Push]:
        return await self._database.change(pushes.claim, session, keys, self._database.at)

    async def settle(self, said: Sequence[Settled]) -> list[Push | None]:
        return await self._database.change(pushes.write, said, self._database.at)

    async def attempts(self, task: TaskRef, id: str) -> list[Attempt]:
        return await self._database.look(pushes.attempts, task, id)

    async def revive(self, task: TaskRef, ids: Collection[str], after: int | None = None) -> list[Push]:
        return await self._database.change(pushes.revive, task, ids, after, self._database.at)

    async def waiting(self, limit: int) -> list[Push]:
        return await self._database.look(pushes.waiting, limit)
