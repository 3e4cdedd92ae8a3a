"""What operators see of push notifications, and how they have them delivered once more, or after all."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.core.erasing import Selection
from dragoman.core.errors import InvalidParams, TaskNotFound
from dragoman.core.log import Head
from dragoman.core.push import Attempt, Push
from dragoman.ports import Bus, Signal, Store


@dataclass(frozen=True, slots=True)
class Delivery:
    """A configuration and its last tries, newest first."""

    push: Push
    attempts: list[Attempt]


class Redelivery:
    """The operators' side of one store's pushes."""

    def __init__(self, store: Store, bus: Bus) -> None:
        self._store = store
        self._bus = bus

    async def of(self, head: Head) -> list[Delivery]:
        """Every configuration of a task, the oldest first."""
        pushes = self._store.pushes
        return [Delivery(push, await pushes.attempts(head.ref, push.config.id)) for push in await pushes.of(head.ref)]

    async def of_tasks(self, selection: Selection) -> list[Delivery]:
        """Every configuration of the tasks of an id. Raises TaskNotFound."""
        return [one for head in await self._heads(selection) for one in await self.of(head)]

    async def waiting(self, limit: int) -> list[Push]:
        """What has something to deliver, or was given up: what fails for longest first."""
        return await self._store.pushes.waiting(limit)

    async def redeliver(self, selection: Selection, id: str = "", after: int | None = None) -> list[Push]:
        """Begins again to deliver to one configuration of a task, or to all: what it has not taken, or everything
        after event `after`. Gives them as they stand then.

        Raises TaskNotFound for a task or a configuration that is not there, InvalidParams for an id that several tasks
        have, and for an event that lies beyond the task's last.
        """
        first, *others = await self._heads(selection)
        if others:
            raise InvalidParams.field("taskId", "belongs to several tasks: say which agent, principal or scope")
        if after is not None and not 0 <= after < first.last:
            raise InvalidParams.field("from", f"must be an event of the task, 1 to {first.last}")
        begun = await self._store.pushes.revive(first.ref, [id] if id else [], after)
        if not begun:
            raise TaskNotFound("the task has no such push notification configuration")
        self._bus.signal(first.ref, Signal.PUSHES)
        return begun

    async def _heads(self, selection: Selection) -> list[Head]:
        heads = [head for head in await self._store.locate(selection.task) if selection.holds(head, 0)]
        if not heads:
            raise TaskNotFound
        return heads
