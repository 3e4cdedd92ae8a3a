"""Retention and compaction: background jobs that end, erase and compact old tasks.

A task that waited too long for its caller ends by an ordinary append, so subscribers see it; one that ended long enough
ago is erased. Both go in small batches and depend on the store's clock only.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from dragoman.core.durations import format_age
from dragoman.core.task import states
from dragoman.core.task.log import Append, AppendRejected, TaskRecord, Version
from dragoman.core.task.maintenance import RETENTION_REASON, RetentionPolicy, TaskSelection
from dragoman.ports import Store
from dragoman.runtime.log import EventLog
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.runtime.observe.audit import Auditor
from dragoman.runtime.turn.status import EXPIRED, system_status

log = logging.getLogger("dragoman.retention")

RETENTION_INTERVAL: Final = 60.0
"""Seconds between two rounds."""

ERASE_BATCH_SIZE: Final = 512
"""Tasks erased before other writers may use the store."""


@dataclass(slots=True)
class RetentionCounters:
    """Counters of this process. They only grow and may be read at any time."""

    rounds: int = 0
    failed: int = 0
    """Rounds that failed."""
    expired: int = 0
    """Tasks ended because they got no answer in time."""
    erased: int = 0
    """Tasks erased at the end of their retention time."""
    bytes: int = 0
    """Bytes of content erased with them."""


class Retention:
    """Applies the retention policy to one store."""

    def __init__(
        self,
        store: Store,
        event_log: EventLog,
        maintenance: Maintenance,
        rules: RetentionPolicy,
        *,
        auditor: Auditor | None = None,
        audit_retention_ms: int = 0,
    ) -> None:
        """`audit_retention_ms`: milliseconds after which entries of the audit log are removed; 0: never."""
        self._auditor = auditor
        self._audit_retention_ms = audit_retention_ms
        self._store = store
        self._log = event_log
        self._maintenance = maintenance
        self._rules = rules
        self.counts = RetentionCounters()

    async def run_forever(self) -> None:
        """Runs round after round, until canceled."""
        while True:
            try:
                await self.run_once()
            except Exception:
                self.counts.failed += 1
                raise
            await asyncio.sleep(RETENTION_INTERVAL)

    async def run_once(self) -> None:
        """Ends tasks that waited too long, and erases those that ended too long ago."""
        await self._store.resume_erasures()
        for agent, state in await self._store.inactive_states():
            age = self._rules.age(agent, state)
            if not age:
                continue
            selection = TaskSelection(older_than=age, agent=agent, state=state)
            if state in states.INTERRUPTED:
                await self._expire(selection)
            else:
                await self._erase(selection)
        if (
            self._auditor is not None
            and self._audit_retention_ms
            and (removed := await self._auditor.truncate(self._audit_retention_ms))
        ):
            log.info("expired entries of the audit log were removed: %d", removed)
        self.counts.rounds += 1

    async def _expire(self, selection: TaskSelection) -> None:
        before = self.counts.expired
        async with aclosing(self._store.select(selection)) as batches:
            async for records in batches:
                results = await asyncio.gather(*(self._end(record, selection) for record in records))
                self.counts.expired += sum(results)
        self._report("tasks without an answer in time, ended as FAILED", selection, self.counts.expired - before)

    async def _end(self, record: TaskRecord, selection: TaskSelection) -> bool:
        """Ends a waiting task. False when it has changed meanwhile, or is running."""
        if record.has_open_turn:
            return False
        events = [system_status(EXPIRED, record, f"({format_age(selection.older_than)})")]
        try:
            await self._log.append(
                Append(task=record.ref, guard=Version(record.last_sequence), events=events, release=True)
            )
        except AppendRejected:
            return False
        return True

    async def _erase(self, selection: TaskSelection) -> None:
        before = self.counts.erased
        while True:
            # Pending webhooks are delivered first; those that fail are given up in time.
            receipt = await self._maintenance.purge(
                replace(selection, without_pending_push=True), reason=RETENTION_REASON, limit=ERASE_BATCH_SIZE
            )
            self.counts.erased += receipt.counts.tasks
            self.counts.bytes += receipt.counts.bytes
            if receipt.counts.tasks < ERASE_BATCH_SIZE:
                break
        self._report("tasks past their retention time, erased", selection, self.counts.erased - before)

    def _report(self, text: str, selection: TaskSelection, tasks: int) -> None:
        if tasks:
            state = states.name(selection.state).removeprefix("TASK_STATE_")
            log.info(
                "%s: %d of %s in %s",
                text,
                tasks,
                selection.agent,
                state,
                extra={
                    "tasks": tasks,
                    "agent": selection.agent,
                    "state": state,
                    "after": format_age(selection.older_than),
                },
            )


compaction_log = logging.getLogger("dragoman.runtime")

COMPACTION_INTERVAL: Final = 5.0
"""Seconds between two rounds. A round without work costs two reads."""


async def compact_forever(store: Store) -> None:
    """Compacts the store at once, then every COMPACTION_INTERVAL seconds. Runs until canceled."""
    while True:
        await store.compact()
        await asyncio.sleep(COMPACTION_INTERVAL)
