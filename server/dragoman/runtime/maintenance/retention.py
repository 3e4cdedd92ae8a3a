"""The end of what nobody needs any more: a job of its own, in small steps, in the writer's spare time.

A task that has waited too long for its caller ends by the one door, so whoever follows it sees that; what has ended
long enough ago is erased. Nothing depends on when a round comes, only on the store's clock.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from dragoman.core.clock import format_age
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
"""Tasks that are erased before others may have the store's spare time."""


@dataclass(slots=True)
class RetentionCounters:
    """What this process has done so far. Counters only grow; read them whenever you like."""

    rounds: int = 0
    failed: int = 0
    """Rounds that could not be completed."""
    expired: int = 0
    """Tasks that ended because nobody answered them."""
    erased: int = 0
    """Tasks erased because their time was over."""
    bytes: int = 0
    """Bytes of content erased with them."""


class Retention:
    """Sees to one store. `counts` is for whoever shows them."""

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
        """`audit`: milliseconds after which entries of the audit log go; 0: never."""
        self._auditor = auditor
        self._audit_retention_ms = audit_retention_ms
        self._store = store
        self._log = event_log
        self._maintenance = maintenance
        self._rules = rules
        self.counts = RetentionCounters()

    async def run_forever(self) -> None:
        """Round after round. Runs until cancelled."""
        while True:
            try:
                await self.run_once()
            except Exception:
                self.counts.failed += 1
                log.exception("tasks whose time is over could not be removed; the next round tries again")
            await asyncio.sleep(RETENTION_INTERVAL)

    async def run_once(self) -> None:
        """Ends what has waited too long, and erases what has ended too long ago."""
        await self._store.resume_erasures()
        for agent, state in await self._store.inactive_states():
            age = self._rules.age(agent, state)
            if not age:
                continue
            meant = TaskSelection(older_than=age, agent=agent, state=state)
            if state in states.INTERRUPTED:
                await self._expire(meant)
            else:
                await self._erase(meant)
        if (
            self._auditor is not None
            and self._audit_retention_ms
            and (cut := await self._auditor.truncate(self._audit_retention_ms))
        ):
            log.info("entries of the audit log whose time was over are gone: %d", cut)
        self.counts.rounds += 1

    async def _expire(self, selection: TaskSelection) -> None:
        before = self.counts.expired
        async with aclosing(self._store.select(selection)) as lots:
            async for heads in lots:
                results = await asyncio.gather(*(self._end(head, selection) for head in heads))
                self.counts.expired += sum(results)
        self._report("nobody answered these tasks in time; they end as FAILED", selection, self.counts.expired - before)

    async def _end(self, record: TaskRecord, selection: TaskSelection) -> bool:
        """Ends a task that waits. False when something happened to it meanwhile, or when it is running after all."""
        if record.running or record.ready:
            return False
        events = [system_status(EXPIRED, f"({format_age(selection.older_than)})")]
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
            # Whoever is to be told of a task gets the time for it; what nobody takes is given up before long.
            receipt = await self._maintenance.purge(
                replace(selection, without_pending_push=True), reason=RETENTION_REASON, limit=ERASE_BATCH_SIZE
            )
            self.counts.erased += receipt.counts.tasks
            self.counts.bytes += receipt.counts.bytes
            if receipt.counts.tasks < ERASE_BATCH_SIZE:
                break
        self._report("the time of these tasks was over; they are erased", selection, self.counts.erased - before)

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
"""Seconds between two rounds. One that finds nothing costs two reads."""


async def compact_forever(store: Store) -> None:
    """Tidies the store at once, then every EVERY seconds. Runs until cancelled."""
    while True:
        try:
            await store.compact()
        except Exception:
            compaction_log.exception("could not tidy the store; the next round tries again")
        await asyncio.sleep(COMPACTION_INTERVAL)
