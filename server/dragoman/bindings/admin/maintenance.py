"""Operator calls that erase, export and back up stored tasks (`dragoman.ops.v1`).

They use the service's messages but not gRPC, so the command line can run them on a store that no server holds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.bindings.admin.actions import OperatorCall
from dragoman.bindings.admin.fields import message_from, task_selection
from dragoman.bindings.admin.tasks import event_time, push_config_message, step_message
from dragoman.core.audit import format_audit_line
from dragoman.core.errors import InvalidParams
from dragoman.core.task import states
from dragoman.core.task.maintenance import ErasureReceipt, TaskSelection
from dragoman.ids import now_ms
from dragoman.runtime.maintenance.admin import ExportEntry, Maintenance
from dragoman.version import __version__
from dragoman_pb.dragoman.ops import v1 as ops
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

BACKUP_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
EXPORT_FORMAT_VERSION: Final = 1  # version of the export format


@dataclass(frozen=True, slots=True)
class MaintenanceOperations:
    """Erases and exports stored tasks, and copies the store."""

    maintenance: Maintenance

    async def purge(self, _: OperatorCall, request: ops.PurgeRequest) -> ops.PurgeResponse:
        selection = parse_selection(request.selection)
        if request.dry_run:
            counts = await self.maintenance.measure(selection)
            receipt = ErasureReceipt(0, "", str(selection), 0, 0, counts, "")
        else:
            receipt = await self.maintenance.purge(selection)
        return ops.PurgeResponse(receipt=message_from(ops.Receipt, receipt, receipt.counts), dry_run=request.dry_run)

    async def export_task(
        self, _: OperatorCall, request: ops.ExportTaskRequest
    ) -> AsyncGenerator[ops.ExportTaskResponse, None]:
        counts: Counter[str] = Counter()
        async with aclosing(self.maintenance.export(task_selection(request))) as entries:
            async for entry in entries:
                response = _export_message(entry)
                if (kind := response.WhichOneof("entry")) == "task":
                    header = message_from(
                        ops.ExportHeader, entry.record, version=EXPORT_FORMAT_VERSION, dragoman=__version__,
                        exported=now_ms(), task_id=entry.record.id, scope=entry.record.ref.owner.scope,
                    )  # fmt: skip
                    yield ops.ExportTaskResponse(header=header)
                else:
                    counts["pushes" if kind == "push" else f"{kind}s"] += 1
                yield response
        yield ops.ExportTaskResponse(end=ops.ExportEnd(**counts))

    async def backup(
        self, operator: OperatorCall, request: ops.BackupRequest
    ) -> AsyncGenerator[ops.BackupResponse, None]:
        if not operator.is_local and not BACKUP_NAME.fullmatch(request.destination):
            text = (
                "only callers on the server's machine may give a path; others give the name of a folder, of letters, "
            )
            raise InvalidParams.field("destination", text + "digits, -, _ and ., which is created beside the store")
        async with aclosing(self.maintenance.store.backup(Path(request.destination))) as steps:
            async for step in steps:
                yield ops.BackupResponse(bytes=step.bytes, total_bytes=step.total, done=step.done)

    async def export_audit(
        self, _: OperatorCall, request: ops.ExportAuditRequest
    ) -> AsyncGenerator[ops.ExportAuditResponse, None]:
        if request.after < 0:
            raise InvalidParams.field("after", "must be 0 or more")
        async with aclosing(self.maintenance.audit(request.after)) as batches:
            async for batch in batches:
                yield ops.ExportAuditResponse(lines=map(format_audit_line, batch))


def parse_selection(message: ops.Selection) -> TaskSelection:
    """Parses the selection of a request. Raises InvalidParams."""
    if message.state and message.state not in states.STORED_STATES:
        raise InvalidParams.field("selection.state", "is not a task state")
    older_than = message.older_than.ToMilliseconds()
    if message.HasField("older_than") and older_than <= 0:
        raise InvalidParams.field("selection.olderThan", "must be more than 0")
    try:
        return TaskSelection(
            task=message.task_id, context=message.context_id, principal=message.principal, older_than=older_than,
            scope=message.scope, agent=message.agent, state=message.state,
        )  # fmt: skip
    except ValueError as error:
        raise InvalidParams.field("selection", str(error)) from error


def _export_message(entry: ExportEntry) -> ops.ExportTaskResponse:
    if entry.piece is not None:
        return ops.ExportTaskResponse(content=message_from(ops.ExportedContent, entry.piece))
    if entry.failure:
        return ops.ExportTaskResponse(failure=wk.Failure.FromString(entry.failure))
    if entry.push_history is not None:
        return ops.ExportTaskResponse(push=push_config_message(entry.push_history.push, entry.push_history.attempts))
    if entry.step is not None:
        return ops.ExportTaskResponse(step=step_message(entry.step))
    if entry.event is not None:
        event = pb.StreamResponse.FromString(entry.event.data)
        return ops.ExportTaskResponse(
            event=ops.ExportedEvent(sequence=entry.event.sequence, time=event_time(event), event=event)
        )
    if entry.message is not None:
        envelope = pb.SendMessageRequest.FromString(entry.message.envelope)
        return ops.ExportTaskResponse(
            message=ops.ExportedMessage(
                number=entry.message.number,
                message=pb.Message.FromString(entry.message.message),
                metadata=envelope.metadata if envelope.HasField("metadata") else None,
                accepted_output_modes=envelope.configuration.accepted_output_modes,
            )
        )
    return ops.ExportTaskResponse(task=pb.Task.FromString(entry.task))
