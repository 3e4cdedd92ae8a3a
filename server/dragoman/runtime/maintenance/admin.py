"""What operators do to tasks that are there already: take them away, write them out, copy the store.

Erasing tells whom it concerns: who runs a task is asked to stop, who follows one hears that it is no more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.core.audit import AuditRecord
from dragoman.core.errors import InvalidParams, TaskNotFound
from dragoman.core.task.log import Event, LogTruncated, TaskRecord
from dragoman.core.task.maintenance import PURGE_REASON, ErasureCounts, ErasureReceipt, TaskSelection
from dragoman.ports import BackupProgress, Bus, Store, StoredMessage, TaskSignal
from dragoman.runtime.feeds import TaskFeeds
from dragoman.runtime.observe.audit import Auditor
from dragoman.runtime.push.scheduler import PushHistory, Redelivery

EXPORT_READ_EVENTS: Final = 256
"""Events of a task that are read at a time."""


@dataclass(frozen=True, slots=True)
class ExportEntry:
    """One piece of an export: the task with its head first, then every event, every message, every push
    configuration."""

    record: TaskRecord
    task: bytes = b""
    event: Event | None = None
    message: StoredMessage | None = None
    push_history: PushHistory | None = None


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some events of a task: the task as it is, its first event that is still there, and the events."""

    record: TaskRecord
    task: bytes
    oldest: int
    events: list[Event]


class Maintenance:
    """The operators' side of one store."""

    def __init__(self, store: Store, bus: Bus, feeds: TaskFeeds, auditor: Auditor | None = None) -> None:
        self._store = store
        self._auditor = auditor
        self._bus = bus
        self._feeds = feeds

    async def measure(self, selection: TaskSelection) -> ErasureCounts:
        """What `purge` would remove. Raises InvalidParams as it does."""
        await self._select_one(selection)
        return await self._store.measure(selection)

    async def purge(
        self, selection: TaskSelection, *, reason: str = PURGE_REASON, limit: int | None = None
    ) -> ErasureReceipt:
        """Erases tasks, running ones too. Raises InvalidParams when one id or context turns out to be several."""
        await self._select_one(selection)
        if self._auditor is not None:
            await self._auditor.flush()
        receipt = await self._store.erase(selection, reason=reason, limit=limit, on_erased=self._announce_erased)
        if self._auditor is not None:
            await self._auditor.record_erasure(receipt)
        return receipt

    async def export(self, selection: TaskSelection) -> AsyncGenerator[ExportEntry, None]:
        """Everything that is kept of one task. Raises TaskNotFound."""
        heads = await self._select_one(selection)
        snapshot = await self._store.read(heads[0].ref) if heads else None
        conversation = await self._store.messages(heads[0].ref) if heads else None
        if snapshot is None or conversation is None:
            raise TaskNotFound
        # The log of a finished task may have been cut.
        head, at = snapshot.record, max(await self._store.oldest_sequence(heads[0].ref) - 1, 0)
        yield ExportEntry(head, task=snapshot.task)
        while at < head.last_sequence:
            events = await self._store.events(head.ref, at, EXPORT_READ_EVENTS)
            if not events:  # erased meanwhile
                raise TaskNotFound
            for event in events:
                if event.sequence <= head.last_sequence:
                    yield ExportEntry(head, event=event)
            at = events[-1].sequence
        for message in conversation.messages:
            if message.number <= head.message_count:
                yield ExportEntry(head, message=message)
        for delivery in await Redelivery(self._store, self._bus).of_task(head):
            yield ExportEntry(head, push_history=delivery)

    async def audit(self, after: int) -> AsyncGenerator[list[AuditRecord], None]:
        """The entries of the audit log after this number."""
        while lot := await self._store.audit.read(after, EXPORT_READ_EVENTS):
            yield lot
            if len(lot) < EXPORT_READ_EVENTS:  # what is added meanwhile is for the next export
                return
            after = lot[-1].number

    async def log(self, selection: TaskSelection, after: int, limit: int) -> LogPage:
        """Up to `limit` events of one task after event `after`. Raises TaskNotFound, and InvalidParams as
        `export`.
        """
        heads = await self._select_one(selection)
        snapshot = await self._store.read(heads[0].ref, history=0) if heads else None
        if snapshot is None:
            raise TaskNotFound
        head = snapshot.record
        oldest = await self._store.oldest_sequence(head.ref)
        try:
            events = await self._store.events(head.ref, max(after, oldest - 1), limit)
        except LogTruncated:  # in this moment: whoever asks again is told from where
            events = []
        return LogPage(head, snapshot.task, oldest, events[:limit])

    def backup(self, destination: Path) -> AsyncGenerator[BackupProgress, None]:
        """Copies the store to a folder that is not there yet, while it is in use."""
        return self._store.backup(destination)

    def _announce_erased(self, erased: list[TaskRecord]) -> None:
        for head in erased:
            self._feeds.mark_deleted(head.ref)
            if head.running:
                self._bus.publish_signal(head.ref, TaskSignal.CANCEL)

    async def _select_one(self, selection: TaskSelection) -> list[TaskRecord]:
        """The first tasks of a selection that names one task or context, which may be the same for several owners."""
        if not (selection.task or selection.context):
            return []
        first: list[TaskRecord] = []
        async with aclosing(self._store.select(selection)) as pages:
            async for heads in pages:
                first = first or heads
                others = [head for head in heads if not _same_target(selection, head, first[0])]
                if others:
                    what = "task" if selection.task else "context"
                    raise InvalidParams.field(
                        what,
                        f"belongs to several: say --agent, --principal or --scope; {_describe_owners([first[0], *others])}",
                    )
        return first


def _same_target(selection: TaskSelection, one: TaskRecord, other: TaskRecord) -> bool:
    """Whether two tasks are what an id, or a context, means to one caller."""
    return one.ref.owner == other.ref.owner and (not selection.task or one.ref.key == other.ref.key)


def _describe_owners(records: list[TaskRecord]) -> str:
    named = {f"{head.agent} of {head.principal} in {head.ref.owner.scope}" for head in records}
    return "; ".join(sorted(named)[:5])
