"""Writes the audit log: entries are gathered for a moment and written in batches.

Actions of callers (`note`) never wait for the disk: they are written within a flush interval, and a killed process
loses those not written. Calls of operators (`record`) wait until they are durable. What has been done already
(`settle`) is written at once, and again if the store is unavailable.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from dragoman.core.access.identity import Identity
from dragoman.core.audit import MAX_AUDIT_TEXT_LENGTH, OPERATOR_ACTION_PREFIX, AuditEntry, AuditLevel
from dragoman.core.errors import PermissionDenied, Unauthenticated
from dragoman.core.task.maintenance import ErasureReceipt
from dragoman.ports import AuditLog
from dragoman.runtime.access import Call
from dragoman.runtime.timings import DEFAULT_TIMINGS
from dragoman.supervision import Background, log_fault, start_task

log = logging.getLogger("dragoman.audit")

MAX_PENDING_AUDIT_ENTRIES: Final = 10_000  # entries that may be pending by default
AUDIT_BATCH_SIZE: Final = 500  # entries written at a time

MAX_COUNTED_CALLERS: Final = 1000
"""Principals whose rejections are counted apart; those of further ones are counted together."""

CallOutcome = Literal["ok", "begun", "done", "failed", "canceled"]
"""`ok`: a call that only read, or the change of one task of many. Others have `begun`, then one of the rest."""


@dataclass(eq=False, repr=False)
class Auditor:
    """Writes the audit log of one store. Create it on the event loop."""

    log: AuditLog
    clock: Callable[[], int]  # milliseconds since the epoch
    level: AuditLevel = "all"
    flush_interval: float = DEFAULT_TIMINGS.audit_flush_interval  # seconds for which entries are gathered
    count_interval: float = DEFAULT_TIMINGS.audit_count_interval
    """Seconds for which rejections without an entry of their own are counted."""
    max_pending: int = MAX_PENDING_AUDIT_ENTRIES
    """Entries that may be pending; further ones are dropped, and one entry has their number."""
    _pending: list[AuditEntry] = field(default_factory=list, init=False)
    _dropped: int = field(default=0, init=False)
    _write_task: asyncio.Task[None] | None = field(default=None, init=False)
    _denied: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)
    """Rejections without an entry, by error and principal."""
    _counting: asyncio.Task[None] | None = field(default=None, init=False)
    _write_lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    # Events ---------------------------------------------------------------------------------------------------------

    def note_call(self, action: str, call: Call, task: str) -> None:
        if self.level != "all":
            return
        caller, identity = call.caller, call.operator or call.caller.identity
        personal = {"principal": identity.principal, "task": task}
        if identity.credential_id:
            personal["key"] = identity.credential_id
        self.note(
            AuditEntry(self.clock(), action, "ok", {"scope": caller.owner.scope, "agent": caller.agent}, personal)
        )

    def note_denied(self, error: BaseException, peer: str, method: str) -> None:
        """Notes a rejected request, if it failed authentication or authorization."""
        if not isinstance(error, Unauthenticated | PermissionDenied):
            return
        personal = {"peer": peer, **{name: _short(value) for name, value in error.log_details.items()}}
        fields = {"method": _short(method), "reason": _short(error.message)}
        self.note(AuditEntry(self.clock(), "access.denied", type(error).__name__, fields, personal))

    def count_denied(self, error: BaseException, principal: str) -> None:
        """Counts a rejected request that gets no entry of its own: one entry a minute has the number.

        `principal`: who was rejected; empty for callers without valid credentials.
        """
        if self.level == "off":
            return
        key = (type(error).__name__, principal)
        known = key in self._denied or len(self._denied) < MAX_COUNTED_CALLERS
        self._denied[key if known else (key[0], "")] += 1
        if self._counting is None:
            self._counting = start_task(Background.AUDIT, self._note_counts_soon, "of rejected callers")

    async def _note_counts_soon(self) -> None:
        await asyncio.sleep(self.count_interval)
        self._note_counts()
        self._counting = None

    def _note_counts(self) -> None:
        denied, self._denied = self._denied, Counter()
        for (outcome, principal), others in denied.items():
            personal = {"principal": principal} if principal else {}
            self.note(AuditEntry(self.clock(), "access.denied", outcome, {"others": str(others)}, personal))

    def note_operator_action(self, verb: str, identity: Identity, arguments: Mapping[str, str]) -> None:
        """Notes a part of what an operator's call did. Durable with the next entry that is recorded."""
        personal = {"principal": identity.principal, **{name: _short(value) for name, value in arguments.items()}}
        if identity.credential_id:
            personal["key"] = identity.credential_id
        self.note(AuditEntry(self.clock(), f"{OPERATOR_ACTION_PREFIX}{verb}", "ok", {}, personal))

    async def record_operator_call(
        self, verb: str, who: Mapping[str, str], about: Mapping[str, str], outcome: CallOutcome
    ) -> None:
        """Records an operator's call. `begun` and `ok` are durable when this returns, which raises the store's errors;
        an outcome is recorded as by `settle`, which raises nothing."""
        personal = {name: _short(value) for name, value in who.items()}
        entry = AuditEntry(self.clock(), f"{OPERATOR_ACTION_PREFIX}{verb}", outcome, about, personal)
        await (self.record(entry) if outcome in ("ok", "begun") else self.settle(entry))

    async def record_erasure(self, receipt: ErasureReceipt) -> None:
        """Records an erasure of tasks that has a receipt, as `settle`."""
        if not receipt.number:
            return
        fields = {"receipt": str(receipt.number), "reason": receipt.reason, "selection": receipt.selection}
        counts = {"tasks": str(receipt.counts.tasks), "bytes": str(receipt.counts.bytes), "digest": receipt.digest}
        await self.settle(AuditEntry(self.clock(), "tasks.erased", "ok", {**fields, **counts}))

    # Writing --------------------------------------------------------------------------------------------------------

    def note(self, entry: AuditEntry) -> None:
        """Has an entry written soon."""
        if self.level == "off":
            return
        if len(self._pending) >= self.max_pending:
            self._dropped += 1
            return
        self._pending.append(entry)
        if self._write_task is None:
            self._write_task = start_task(Background.AUDIT, self._write_soon)

    async def record(self, entry: AuditEntry) -> None:
        """Writes an entry after the pending ones. Raises the store's errors."""
        if self.level != "off":
            await self._write(entry)

    async def settle(self, entry: AuditEntry) -> None:
        """Writes an entry of something that has happened. Raises nothing: a failed write is repeated like others."""
        self.note(entry)
        try:
            await self.flush()
        except Exception as error:
            log_fault(log, f"the audit entry of {entry.action} waits for the store", error)

    async def flush(self) -> None:
        """Writes pending entries, so that an erasure covers them. Raises the store's errors."""
        if self._pending:
            await self._write()

    async def truncate(self, age: int) -> int:
        """Removes entries older than `age` milliseconds and records that. Returns how many."""
        removed = batch = await self.log.truncate(self.clock() - age)
        while batch:
            batch = await self.log.truncate(self.clock() - age)
            removed += batch
        if removed:
            fields = {"entries": str(removed), "age_ms": str(age)}
            await self.settle(AuditEntry(self.clock(), "audit.cut", "ok", fields))
        return removed

    async def close(self) -> None:
        self._note_counts()
        running = [task for task in (self._counting, self._write_task) if task is not None]
        self._counting = self._write_task = None
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        try:
            await self._write()
        except Exception as error:
            log_fault(log, f"the last entries of the audit log could not be written: {len(self._pending)}", error)

    async def _write_soon(self) -> None:
        while self._pending:
            await asyncio.sleep(self.flush_interval)
            await self._write()
        self._write_task = None

    async def _write(self, *last: AuditEntry) -> None:
        async with self._write_lock:
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                self._pending.append(AuditEntry(self.clock(), "audit.lost", "ok", {"entries": str(dropped)}))
            remaining = len(self._pending)  # what comes meanwhile is gathered for the next time
            while remaining:
                batch = self._pending[: min(remaining, AUDIT_BATCH_SIZE)]
                await self.log.append(batch)
                del self._pending[: len(batch)]
                remaining -= len(batch)
            if last:
                await self.log.append(last)


def _short(text: str) -> str:
    return text if len(text) <= MAX_AUDIT_TEXT_LENGTH else f"{text[: MAX_AUDIT_TEXT_LENGTH - 1]}…"
