"""Who tells the audit log: entries wait here for a moment and are written together.

What a caller did to a task (`note`) never waits for the disk: it is written within LINGER seconds, and what a process
had not written when it was killed is lost. What operators do, and what takes something away for good, waits (`record`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from dragoman.core.access.identity import Identity
from dragoman.core.audit import MAX_AUDIT_TEXT_LENGTH, AuditEntry, AuditLevel
from dragoman.core.errors import PermissionDenied, Unauthenticated
from dragoman.core.task.maintenance import ErasureReceipt
from dragoman.ports import AuditLog
from dragoman.runtime.operations.call import Call
from dragoman.runtime.operations.send import SendResult
from dragoman.runtime.operations.service import TaskService
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.audit")

AUDIT_FLUSH_SECONDS: Final = 0.25
"""Seconds for which entries are gathered."""

MAX_PENDING_AUDIT_ENTRIES: Final = 10_000
"""Entries that may wait; further ones are counted, and an entry says how many."""

AUDIT_BATCH_SIZE: Final = 500
"""Entries that are written at a time."""


class Auditor:
    """The one who tells one store's log. Made on the loop."""

    def __init__(self, log: AuditLog, clock: Callable[[], int], level: AuditLevel = "all") -> None:
        """`clock` gives milliseconds since the epoch."""
        self._log = log
        self._clock = clock
        self.records_tasks = level == "all"
        """Whether what callers do to tasks is told."""
        self.enabled = level != "off"
        self._pending: list[AuditEntry] = []
        self._dropped = 0
        self._write_task: asyncio.Task[None] | None = None
        self._write_lock = asyncio.Lock()

    # What happened --------------------------------------------------------------------------------------------------

    def note_task_action(
        self, action: str, identity: Identity, scope: str, agent: str, task: str, **about: str
    ) -> None:
        """A caller did something to a task."""
        if self.records_tasks:
            particulars = {"principal": identity.principal, "task": task}
            if identity.credential_id:
                particulars["key"] = identity.credential_id
            self.note(AuditEntry(self._clock(), action, "ok", {"scope": scope, "agent": agent, **about}, particulars))

    def note_denied(self, error: BaseException, peer: str, method: str) -> None:
        """A caller was refused for what it showed, or for what that does not allow."""
        if not isinstance(error, Unauthenticated | PermissionDenied):
            return
        who = {"peer": peer, **{name: _short(value) for name, value in error.log_details.items()}}
        about = {"method": _short(method), "reason": _short(error.message)}
        self.note(AuditEntry(self._clock(), "access.denied", type(error).__name__, about, who))

    async def record_operator_action(
        self, verb: str, operator: Mapping[str, str], arguments: Mapping[str, str], **about: str
    ) -> None:
        """An operator did something. Durable when this returns."""
        particulars = {**operator, **{name: _short(value) for name, value in arguments.items()}}
        await self.record(AuditEntry(self._clock(), f"operator.{verb}", "ok", about, particulars))

    async def record_erasure(self, receipt: ErasureReceipt) -> None:
        """Tasks were erased, whoever wanted it; a receipt is kept of it. Durable when this returns."""
        if not receipt.number:
            return
        about = {"receipt": str(receipt.number), "reason": receipt.reason, "selection": receipt.selection}
        counted = {"tasks": str(receipt.counts.tasks), "bytes": str(receipt.counts.bytes), "digest": receipt.digest}
        await self.record(AuditEntry(self._clock(), "tasks.erased", "ok", {**about, **counted}))

    # Telling --------------------------------------------------------------------------------------------------------

    def note(self, entry: AuditEntry) -> None:
        """Has an entry written before long."""
        if not self.enabled:
            return
        if len(self._pending) >= MAX_PENDING_AUDIT_ENTRIES:
            self._dropped += 1
            return
        self._pending.append(entry)
        if self._write_task is None:
            self._write_task = asyncio.get_running_loop().create_task(self._write_soon(), name="audit log")

    async def record(self, entry: AuditEntry) -> None:
        """Writes an entry, and those that wait before it. Raises what the store raises."""
        if self.enabled:
            await self._write(entry)

    async def flush(self) -> None:
        """Writes what waits: before an erasure that is to find it. Raises what the store raises."""
        if self._pending:
            await self._write()

    async def truncate(self, age: int) -> int:
        """Removes what is older than so many milliseconds, by policy, and says so. Gives how many."""
        done = some = await self._log.truncate(self._clock() - age)
        while some:
            some = await self._log.truncate(self._clock() - age)
            done += some
        if done:
            await self._write(AuditEntry(self._clock(), "audit.cut", "ok", {"entries": str(done), "age_ms": str(age)}))
        return done

    async def close(self) -> None:
        """Writes what waits."""
        writing, self._write_task = self._write_task, None
        if writing is not None:
            writing.cancel()
            await asyncio.wait((writing,))
        try:
            await self._write()
        except Exception:
            log.exception("the last entries of the audit log could not be written: %d", len(self._pending))

    async def _write_soon(self) -> None:
        while self._pending:
            await asyncio.sleep(AUDIT_FLUSH_SECONDS)
            try:
                await self._write()
            except Exception:
                log.exception("the audit log could not be written; %d entries wait", len(self._pending))
        self._write_task = None

    async def _write(self, *last: AuditEntry) -> None:
        async with self._write_lock:
            if self._dropped:
                lost, self._dropped = self._dropped, 0
                self._pending.append(AuditEntry(self._clock(), "audit.lost", "ok", {"entries": str(lost)}))
            while self._pending:
                some = self._pending[:AUDIT_BATCH_SIZE]
                await self._log.append(some)
                del self._pending[: len(some)]
            if last:
                await self._log.append(last)


def _short(text: str) -> str:
    return text if len(text) <= MAX_AUDIT_TEXT_LENGTH else f"{text[: MAX_AUDIT_TEXT_LENGTH - 1]}…"


class AuditedService(TaskService):
    """Every operation on tasks, told. What only reads is not: that is what the access log is for."""

    def __init__(self, auditor: Auditor, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._auditor = auditor
        if auditor.records_tasks:
            self._send_operation.on_sent = self._on_sent

    def _on_sent(self, call: Call, result: SendResult) -> None:
        if not result.repeated and result.record.id:
            self._note("task.created" if result.created else "task.continued", call, result.record.id)

    async def cancel_task(self, call: Call, request: pb.CancelTaskRequest) -> bytes:
        answer = await super().cancel_task(call, request)
        self._note("task.canceled", call, request.id)
        return answer

    async def create_push(self, call: Call, request: pb.TaskPushNotificationConfig) -> bytes:
        answer = await super().create_push(call, request)
        self._note("push.created", call, request.task_id)
        return answer

    async def delete_push(self, call: Call, request: pb.DeleteTaskPushNotificationConfigRequest) -> bytes:
        answer = await super().delete_push(call, request)
        self._note("push.deleted", call, request.task_id)
        return answer

    def _note(self, action: str, call: Call, task: str) -> None:
        caller = call.caller
        self._auditor.note_task_action(action, caller.identity, caller.owner.scope, caller.agent, task)
