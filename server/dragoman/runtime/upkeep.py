"""What operators do to tasks that are there already: take them away, write them out, copy the store.

Erasing tells whom it concerns: who runs a task is asked to stop, who follows one hears that it is no more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.core.audit import Kept
from dragoman.core.erasing import PURGE, Counts, Receipt, Selection
from dragoman.core.errors import InvalidParams, TaskNotFound
from dragoman.core.log import Cut, Event, Head
from dragoman.ports import Bus, Copied, Signal, Store, StoredMessage
from dragoman.runtime.auditing import Auditor
from dragoman.runtime.follow import Followers
from dragoman.runtime.redelivery import Delivery, Redelivery

EVENTS: Final = 256
"""Events of a task that are read at a time."""


@dataclass(frozen=True, slots=True)
class Exported:
    """One piece of an export: the task with its head first, then every event, every message, every push
    configuration."""

    head: Head
    task: bytes = b""
    event: Event | None = None
    message: StoredMessage | None = None
    delivery: Delivery | None = None


@dataclass(frozen=True, slots=True)
class Logged:
    """Some events of a task: the task as it is, its first event that is still there, and the events."""

    head: Head
    task: bytes
    oldest: int
    events: list[Event]


class Upkeep:
    """The operators' side of one store."""

    def __init__(self, store: Store, bus: Bus, followers: Followers, auditor: Auditor | None = None) -> None:
        self._store = store
        self._auditor = auditor
        self._bus = bus
        self._followers = followers

    async def measure(self, selection: Selection) -> Counts:
        """What `purge` would remove. Raises InvalidParams as it does."""
        await self._of_one(selection)
        return await self._store.measure(selection)

    async def purge(self, selection: Selection, *, reason: str = PURGE, limit: int | None = None) -> Receipt:
        """Erases tasks, running ones too. Raises InvalidParams when one id or context turns out to be several."""
        await self._of_one(selection)
        if self._auditor is not None:
            await self._auditor.settle()
        receipt = await self._store.erase(selection, reason=reason, limit=limit, gone=self._tell)
        if self._auditor is not None:
            await self._auditor.erased(receipt)
        return receipt

    async def export(self, selection: Selection) -> AsyncGenerator[Exported, None]:
        """Everything that is kept of one task. Raises TaskNotFound."""
        heads = await self._of_one(selection)
        snapshot = await self._store.read(heads[0].ref) if heads else None
        conversation = await self._store.conversation(heads[0].ref) if heads else None
        if snapshot is None or conversation is None:
            raise TaskNotFound
        # The log of a finished task may have been cut.
        head, at = snapshot.head, max(await self._store.oldest(heads[0].ref) - 1, 0)
        yield Exported(head, task=snapshot.task)
        while at < head.last:
            events = await self._store.events(head.ref, at, EVENTS)
            if not events:  # erased meanwhile
                raise TaskNotFound
            for event in events:
                if event.sequence <= head.last:
                    yield Exported(head, event=event)
            at = events[-1].sequence
        for message in conversation.messages:
            if message.number <= head.messages:
                yield Exported(head, message=message)
        for delivery in await Redelivery(self._store, self._bus).of(head):
            yield Exported(head, delivery=delivery)

    async def audit(self, after: int) -> AsyncGenerator[list[Kept], None]:
        """The entries of the audit log after this number."""
        while lot := await self._store.audit.read(after, EVENTS):
            yield lot
            if len(lot) < EVENTS:  # what is added meanwhile is for the next export
                return
            after = lot[-1].number

    async def log(self, selection: Selection, after: int, limit: int) -> Logged:
        """Up to `limit` events of one task after event `after`. Raises TaskNotFound, and InvalidParams as `export`."""
        heads = await self._of_one(selection)
        snapshot = await self._store.read(heads[0].ref, history=0) if heads else None
        if snapshot is None:
            raise TaskNotFound
        head = snapshot.head
        oldest = await self._store.oldest(head.ref)
        try:
            events = await self._store.events(head.ref, max(after, oldest - 1), limit)
        except Cut:  # in this moment: whoever asks again is told from where
            events = []
        return Logged(head, snapshot.task, oldest, events[:limit])

    def backup(self, destination: Path) -> AsyncGenerator[Copied, None]:
        """Copies the store to a folder that is not there yet, while it is in use."""
        return self._store.backup(destination)

    def _tell(self, gone: list[Head]) -> None:
        for head in gone:
            self._followers.gone(head.ref)
            if head.running:
                self._bus.signal(head.ref, Signal.CANCEL)

    async def _of_one(self, selection: Selection) -> list[Head]:
        """The first tasks of a selection that names one task or context, which may be the same for several owners."""
        if not (selection.task or selection.context):
            return []
        first: list[Head] = []
        async with aclosing(self._store.select(selection)) as pages:
            async for heads in pages:
                first = first or heads
                others = [head for head in heads if not _same(selection, head, first[0])]
                if others:
                    what = "task" if selection.task else "context"
                    raise InvalidParams.field(
                        what, f"belongs to several: say --agent, --principal or --scope; {_whose([first[0], *others])}"
                    )
        return first


def _same(selection: Selection, one: Head, other: Head) -> bool:
    """Whether two tasks are what an id, or a context, means to one caller."""
    return one.ref.owner == other.ref.owner and (not selection.task or one.ref.key == other.ref.key)


def _whose(heads: list[Head]) -> str:
    named = {f"{head.agent} of {head.principal} in {head.ref.owner.scope}" for head in heads}
    return "; ".join(sorted(named)[:5])
