"""Operations on stored tasks for operators: erase, export, read the log, back up.

An erasure also stops the runner and notifies subscribers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from dragoman.core.audit import AuditRecord
from dragoman.core.errors import InvalidParams, PushConfigNotFound, TaskNotFound
from dragoman.core.push.delivery import DeliveryAttempt, PushRecord
from dragoman.core.task.blob_references import BLOB_NAME
from dragoman.core.task.contents import READ_BYTES, ContentMissing
from dragoman.core.task.log import Event, LogTruncated, TaskRecord, TaskRef
from dragoman.core.task.maintenance import PURGE_REASON, RETENTION_REASON, ErasureCounts, ErasureReceipt, TaskSelection
from dragoman.core.task.steps import StepRecord
from dragoman.ports import Bus, Store, StoredMessage, TaskSignal
from dragoman.runtime.feeds import TaskFeeds
from dragoman.runtime.observe.audit import Auditor
from dragoman.runtime.observe.explain import read_failure
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

EXPORT_READ_EVENTS: Final = 256  # events of a task, or audit entries, read at a time


@dataclass(frozen=True, slots=True)
class ContentPiece:
    """A piece of the content that a link in the task stands for."""

    url: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class PushHistory:
    """A push configuration and its last attempts, newest first."""

    push: PushRecord
    attempts: list[DeliveryAttempt]


@dataclass(frozen=True, slots=True)
class ExportEntry:
    """One entry of an export: the task, then contents, failure, events, messages, steps and push configurations."""

    record: TaskRecord
    task: bytes = b""
    piece: ContentPiece | None = None
    failure: bytes = b""  # why it failed: a serialized `Failure`
    event: Event | None = None
    message: StoredMessage | None = None
    step: StepRecord | None = None
    push_history: PushHistory | None = None


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some events of a task, with the current task and its oldest event still in the log."""

    record: TaskRecord
    task: bytes
    oldest: int
    events: list[Event]


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Operator operations on one store."""

    store: Store
    bus: Bus
    feeds: TaskFeeds
    auditor: Auditor | None = None

    async def measure(self, selection: TaskSelection) -> ErasureCounts:
        """Counts what `purge` would remove. Raises InvalidParams as it does."""
        await self._select_one(selection)
        return await self.store.erasures.measure(selection)

    async def purge(
        self, selection: TaskSelection, *, reason: str = PURGE_REASON, limit: int | None = None
    ) -> ErasureReceipt:
        """Erases tasks, running ones too. Raises InvalidParams when an id or context belongs to several owners."""
        await self._select_one(selection)
        await self.resume_erasures()
        if self.auditor is not None:
            await self.auditor.flush()
        receipt = await self.store.erasures.erase(
            selection, reason=reason, limit=limit, on_erased=self._announce_erased
        )
        if self.auditor is not None:
            await self.auditor.record_erasure(receipt)
        return receipt

    async def resume_erasures(self, age: Callable[[str, int], int] | None = None) -> int:
        """Completes interrupted erasures, and records them. Returns the tasks that expired. age: see `Erasures`."""
        for receipt in (receipts := await self.store.erasures.resume(age)):
            if self.auditor is not None:
                await self.auditor.record_erasure(receipt)
        return sum(receipt.counts.tasks for receipt in receipts if receipt.reason == RETENTION_REASON)

    async def export(self, selection: TaskSelection) -> AsyncGenerator[ExportEntry, None]:
        """All stored data of one task. Raises TaskNotFound, and InvalidParams as `purge`."""
        records = await self._select_one(selection)
        snapshot = await self.store.read(records[0].ref) if records else None
        conversation = await self.store.messages(records[0].ref) if records else None
        if snapshot is None or conversation is None:
            raise TaskNotFound
        # The log of a finished task may have been truncated.
        record, position = snapshot.record, max(await self.store.oldest_sequence(records[0].ref) - 1, 0)
        yield ExportEntry(record, task=snapshot.task)
        async with aclosing(self._contents(snapshot.task)) as pieces:
            async for piece in pieces:
                yield ExportEntry(record, piece=piece)
        if failed := await read_failure(self.store, record):
            yield ExportEntry(record, failure=failed.failure)
        while position < record.last_sequence:
            events = await self.store.events(record.ref, position, EXPORT_READ_EVENTS)
            if not events:  # erased meanwhile
                raise TaskNotFound
            for event in events:
                if event.sequence <= record.last_sequence:
                    yield ExportEntry(record, event=event)
            position = events[-1].sequence
        for message in conversation.messages:
            if message.number <= record.message_count:
                yield ExportEntry(record, message=message)
        for step in await self.store.steps(record.ref, results=True):
            yield ExportEntry(record, step=step)
        for push_history in await self.push_histories(record):
            yield ExportEntry(record, push_history=push_history)

    async def _contents(self, task: bytes) -> AsyncGenerator[ContentPiece, None]:
        """The contents that a task has as links to this store. Raises TaskNotFound when one was replaced meanwhile."""
        blobs = self.store.blobs
        sources = dict[str, AsyncGenerator[bytes, None]]()
        for url in _links(pb.Task.FromString(task)):
            link = urlsplit(url)
            name, query = link.path.rpartition("/")[2], dict(parse_qsl(link.query))
            try:
                if (content := blobs.content(name, query)) is not None:
                    sources[url] = content.pieces()
                elif BLOB_NAME.fullmatch(name) and (path := await asyncio.to_thread(blobs.find, name, query)):
                    sources[url] = _file_pieces(path)
            except PermissionError:  # a link of somebody else, which the agent returned
                continue
        for url, source in sources.items():
            offset = 0
            async with aclosing(source) as pieces:
                try:
                    async for data in pieces:
                        yield ContentPiece(url, offset, data)
                        offset += len(data)
                except ContentMissing:
                    raise TaskNotFound from None

    async def audit(self, after: int) -> AsyncGenerator[list[AuditRecord], None]:
        """The entries of the audit log after this number, in batches."""
        while batch := await self.store.audit.read(after, EXPORT_READ_EVENTS):
            yield batch
            if len(batch) < EXPORT_READ_EVENTS:  # entries added meanwhile belong to the next export
                return
            after = batch[-1].number

    async def log(self, selection: TaskSelection, after: int, limit: int, *, history: int = 0) -> LogPage:
        """Up to `limit` events of one task after event `after`, with its newest `history` messages in the task.

        Raises TaskNotFound, and InvalidParams as `export`.
        """
        records = await self._select_one(selection)
        snapshot = await self.store.read(records[0].ref, history=history) if records else None
        if snapshot is None:
            raise TaskNotFound
        record = snapshot.record
        oldest = await self.store.oldest_sequence(record.ref)
        try:
            events = await self.store.events(record.ref, max(after, oldest - 1), limit)
        except LogTruncated:  # truncated meanwhile: `oldest` tells the caller where to continue
            events = []
        return LogPage(record, snapshot.task, oldest, events[:limit])

    async def steps(self, selection: TaskSelection) -> tuple[TaskRef, list[StepRecord]]:
        """One task and its steps, without results. Raises TaskNotFound, and InvalidParams as `export`."""
        records = await self._select_one(selection)
        if not records:
            raise TaskNotFound
        return records[0].ref, await self.store.steps(records[0].ref)

    # Push configurations ----------------------------------------------------------------------------------------

    async def push_histories(self, record: TaskRecord) -> list[PushHistory]:
        """Every push configuration of a task, oldest first."""
        pushes = self.store.pushes
        configs = await pushes.list_configs(record.ref)
        return [PushHistory(push, await pushes.attempts(record.ref, push.config.id)) for push in configs]

    async def push_histories_of(self, selection: TaskSelection) -> list[PushHistory]:
        """Every push configuration of the tasks with an id. Raises TaskNotFound."""
        return [history for record in await self._located(selection) for history in await self.push_histories(record)]

    async def redeliver(self, selection: TaskSelection, id: str = "", after: int | None = None) -> list[PushRecord]:
        """Restarts delivery to one configuration of a task, or to all: undelivered events, or all after event `after`.

        Returns the restarted push records. Raises TaskNotFound for an unknown task or configuration, InvalidParams for
        an id shared by several tasks and for an event beyond the task's last.
        """
        first, *more = await self._located(selection)
        if more:
            raise InvalidParams.field("taskId", "belongs to several tasks; name the agent, principal or scope")
        if after is not None and not 0 <= after < first.last_sequence:
            raise InvalidParams.field("from", f"must be an event of the task, 1 to {first.last_sequence}")
        restarted = await self.store.pushes.restart(first.ref, [id] if id else [], after)
        if not restarted:
            raise PushConfigNotFound
        self.bus.publish_signal(first.ref, TaskSignal.PUSH_CONFIGS)
        return restarted

    async def _located(self, selection: TaskSelection) -> list[TaskRecord]:
        records = [record for record in await self.store.locate(selection.task) if selection.matches(record, 0)]
        if not records:
            raise TaskNotFound
        return records

    def _announce_erased(self, erased: list[TaskRecord]) -> None:
        for record in erased:
            self.feeds.mark_deleted(record.ref)
            if record.running:
                self.bus.publish_signal(record.ref, TaskSignal.CANCEL)

    async def _select_one(self, selection: TaskSelection) -> list[TaskRecord]:
        """The first tasks of a selection. Raises InvalidParams when its task or context belongs to several owners."""
        if not (selection.task or selection.context):
            return []
        first: list[TaskRecord] = []
        target = attrgetter("ref" if selection.task else "ref.owner")
        async with aclosing(self.store.erasures.select(selection)) as pages:
            async for records in pages:
                first = first or records
                others = [one for one in records if target(one) != target(first[0])]
                if others:
                    owners = {f"{one.agent} of {one.principal} in {one.ref.owner.scope}" for one in (first[0], *others)}
                    text = "belongs to several owners; choose one by --agent, --principal or --scope: "
                    field = "task" if selection.task else "context"
                    raise InvalidParams.field(field, text + "; ".join(sorted(owners)[:5]))
        return first


def _links(task: pb.Task) -> Iterator[str]:
    messages = (task.status.message, *task.history)
    for parts in (*(one.parts for one in task.artifacts), *(one.parts for one in messages)):
        yield from (part.url for part in parts if part.url)


async def _file_pieces(path: Path) -> AsyncGenerator[bytes, None]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while data := await asyncio.to_thread(file.read, READ_BYTES):
            yield data
