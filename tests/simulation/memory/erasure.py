"""Erasure in the store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tests.simulation.memory import usage
from tests.simulation.memory.database import MemoryDatabase, TaskRows
from tests.simulation.memory.tables import MemoryTables

from dragoman.core.audit import audited_principal
from dragoman.core.names import Owner
from dragoman.core.task import states
from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import (
    PURGE_REASON,
    ErasureCounts,
    ErasureReceipt,
    TaskSelection,
    task_ids_digest,
)

Run = Callable[[Callable[[], Any]], asyncio.Future[Any]]
"""Runs a function of the database."""


def size_of(rows: TaskRows) -> ErasureCounts:
    """What a task holds."""
    chunks = [chunk for _, chunks in rows.artifacts.values() for chunk in chunks]
    total = sum(len(chunk.data) for chunk in chunks) + sum(len(head) for head, _ in rows.artifacts.values())
    total += sum(len(message.data) + len(message.envelope) for message in rows.messages)
    total += sum(len(event.data) + 1 for batch in rows.log for event in batch)
    total += sum(len(step.result) for step in rows.steps.values())
    events = sum(len(batch) for batch in rows.log)
    return ErasureCounts(1, events, len(rows.messages), len(rows.artifacts), len(chunks), total)


class MemoryEraser:
    """Implements `ports.Erasures`: a task and its content are removed at once, their receipt is completed later."""

    def __init__(self, database: MemoryDatabase, tables: MemoryTables, read: Run, write: Run) -> None:
        self._database = database
        self._tables = tables
        self._read = read
        self._write = write
        self._ids: dict[int, list[str]] = {}
        """The ids of the tasks of unfinished receipts."""

    async def select(self, selection: TaskSelection) -> AsyncGenerator[list[TaskRecord], None]:
        records: list[TaskRecord] = await self._read(lambda: [rows.record for rows in self._database.tasks.values()])
        now = self._database.clock()
        if matching := [record for record in records if selection.matches(record, now)]:
            yield matching

    async def measure(self, selection: TaskSelection) -> ErasureCounts:
        total = ErasureCounts()
        async for records in self.select(selection):
            for record in records:
                if (rows := self._database.tasks.get(record.ref)) is not None:
                    total += size_of(rows)
        return total

    async def erase(
        self,
        selection: TaskSelection,
        *,
        reason: str = PURGE_REASON,
        limit: int | None = None,
        on_erased: Callable[[list[TaskRecord]], None] | None = None,
    ) -> ErasureReceipt:
        now, number = self._database.clock(), 0
        async for records in self.select(selection):
            work = partial(self._delete, number, selection, records[:limit], now, reason)
            number, erased = await self._write(work)
            if erased and on_erased is not None:
                on_erased(erased)
        receipt = await self._finish(number) if number else None
        if selection.covers_context or selection.covers_owners:
            await self._write(lambda: self._delete_rest(selection))
        return receipt or ErasureReceipt(0, reason, str(selection), now, now, ErasureCounts(), task_ids_digest(()))

    async def resume(self, age: Callable[[str, int], int] | None = None) -> list[ErasureReceipt]:
        unfinished = [receipt.number for receipt in self._tables.receipts if not receipt.digest]
        return [await self._finish(number) for number in unfinished]

    async def receipts(self, limit: int = 100) -> list[ErasureReceipt]:
        return self._tables.receipts[::-1][:limit]

    def _delete(
        self, number: int, selection: TaskSelection, records: list[TaskRecord], now: int, reason: str
    ) -> tuple[int, list[TaskRecord]]:
        database, receipts, erased = self._database, self._tables.receipts, list[TaskRecord]()
        for selected in records:
            rows = database.tasks.get(selected.ref)
            if rows is None or not selection.matches(rows.record, now):
                continue
            if not number:
                number = len(receipts) + 1
                receipts.append(ErasureReceipt(number, reason, str(selection), now, now, ErasureCounts(), ""))
                self._ids[number] = []
            receipt = receipts[number - 1]
            receipts[number - 1] = replace(receipt, counts=receipt.counts + size_of(rows))
            self._ids[number].append(rows.record.id)
            database.clear_keys(selected.ref)
            database.remove(selected.ref)
            erased.append(rows.record)
        for owner, context in {(record.ref.owner, record.context) for record in erased}:
            if not any(
                rows.record.visible and (rows.record.ref.owner, rows.record.context) == (owner, context)
                for rows in database.tasks.values()
            ):
                self._delete_context(owner, context)
        return number, erased

    def _delete_context(self, owner: Owner, context: str) -> None:
        database = self._database
        for place in [place for place in database.contexts if place[:2] == (owner, context)]:
            del database.contexts[place]

    async def _finish(self, number: int) -> ErasureReceipt:
        def finish() -> ErasureReceipt:
            receipt = self._tables.receipts[number - 1]
            ended = max(receipt.began, self._database.clock())
            digest = task_ids_digest(sorted(self._ids.pop(number, ())))
            self._tables.receipts[number - 1] = finished = replace(receipt, digest=digest, ended=ended)
            return finished

        receipt: ErasureReceipt = await self._write(finish)
        return receipt

    def _delete_rest(self, selection: TaskSelection) -> None:
        database, principal = self._database, selection.principal
        owners = {place[0] for place in database.contexts} | {ref.owner for ref in database.tasks}
        owners |= {place[0] for place in database.keys}
        selected = [
            owner for owner in owners if selection.scope in ("", owner.scope) and principal in ("", owner.principal)
        ]
        if selection.covers_context:
            for owner in selected:
                self._delete_context(owner, selection.context)
        if selection.covers_principal:
            for id in [id for id, key in self._tables.api_keys.items() if key.principal == principal and key.revoked]:
                del self._tables.api_keys[id]
            for number, record in enumerate(self._tables.audit):
                if audited_principal(record.entry) == principal:
                    self._tables.audit[number] = replace(record, salt=None, entry=replace(record.entry, who={}))
        if selection.covers_owners:
            usage.erase_principal(database, principal, selection.scope)
            for owner in selected:
                if not any(ref.owner == owner for ref in database.tasks):
                    for place in [place for place in database.keys if place[0] == owner]:
                        del database.keys[place]

    async def inactive_states(self) -> list[tuple[str, int]]:
        def inactive() -> list[tuple[str, int]]:
            records = [rows.record for rows in self._database.tasks.values()]
            pairs = {(one.agent, one.state) for one in records if one.state in states.TERMINAL | states.INTERRUPTED}
            return sorted(pairs)

        found: list[tuple[str, int]] = await self._read(inactive)
        return found
