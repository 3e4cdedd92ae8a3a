"""`dragoman.ops.v1` over gRPC, second part: erasing, exporting and copying what is stored.

`Upkeeping` speaks the messages of the service and nothing of gRPC, so that the command line can do the same to a store
that no server holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from dragoman.bindings import ops_calls
from dragoman.bindings.access import Access
from dragoman.bindings.closing import Streams
from dragoman.bindings.methods import parse
from dragoman.bindings.ops_calls import SERVICE, Check, Context, Refuse
from dragoman.bindings.pushes import config
from dragoman.bindings.tally import GRPC
from dragoman.core.audit import format_audit_line
from dragoman.core.errors import InvalidParams
from dragoman.core.task import states
from dragoman.core.task.maintenance import ErasureReceipt, TaskSelection
from dragoman.release import version
from dragoman.runtime.maintenance.admin import ExportEntry, Maintenance
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

FORM: Final = 1
"""Version of the form of an export."""


class Upkeeping:
    """The operations, as messages in and messages out. All raise children of core.errors.A2AError."""

    def __init__(self, upkeep: Maintenance, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._upkeep = upkeep
        self._now = now

    async def purge(self, request: ops.PurgeRequest) -> ops.PurgeResponse:
        """Erases a selection, or tells what that would remove."""
        selection = selection_of(request.selection)
        if request.dry_run:
            counts = await self._upkeep.measure(selection)
            receipt = ErasureReceipt(0, "", str(selection), 0, 0, counts, "")
        else:
            receipt = await self._upkeep.purge(selection)
        return ops.PurgeResponse(receipt=_receipt(receipt), dry_run=request.dry_run)

    async def export_task(self, request: ops.ExportTaskRequest) -> AsyncGenerator[ops.ExportTaskResponse, None]:
        """Everything that is kept of one task."""
        if not request.task_id:
            raise InvalidParams.field("taskId", "is required")
        selection = TaskSelection(
            task=request.task_id, agent=request.agent, principal=request.principal, scope=request.scope
        )
        end = ops.ExportEnd()
        async with aclosing(self._upkeep.export(selection)) as pieces:
            async for piece in pieces:
                if piece.event is not None:
                    end.events += 1
                elif piece.push_history is not None:
                    end.pushes += 1
                elif piece.message is not None:
                    end.messages += 1
                else:
                    yield ops.ExportTaskResponse(header=self._header(piece))
                yield _entry(piece)
        yield ops.ExportTaskResponse(end=end)

    async def backup(self, request: ops.BackupRequest) -> AsyncGenerator[ops.BackupResponse, None]:
        """Copies the store, and tells how far it is."""
        async with aclosing(self._upkeep.backup(Path(request.destination))) as steps:
            async for step in steps:
                yield ops.BackupResponse(bytes=step.bytes, total_bytes=step.total, done=step.done)

    async def export_audit(self, request: ops.ExportAuditRequest) -> AsyncGenerator[ops.ExportAuditResponse, None]:
        """The audit log, some entries at a time."""
        if request.after < 0:
            raise InvalidParams.field("after", "must be 0 or more")
        async with aclosing(self._upkeep.audit(request.after)) as lots:
            async for lot in lots:
                yield ops.ExportAuditResponse(lines=map(format_audit_line, lot))

    def _header(self, piece: ExportEntry) -> ops.ExportHeader:
        head = piece.record
        header = ops.ExportHeader(
            version=FORM,
            dragoman=version(),
            task_id=head.id,
            agent=head.agent,
            principal=head.principal,
            scope=head.ref.owner.scope,
            dialect=head.dialect,
        )
        header.exported.FromDatetime(self._now())
        return header


def handler(upkeep: Maintenance, check: Check, refuse: Refuse, streams: Streams) -> grpc.GenericRpcHandler:
    """What grpc calls for these operations; the service's other ones have a handler of their own."""
    operations = Upkeeping(upkeep)

    def streaming(
        name: str, request: type[Message], operation: Callable[[Any], AsyncGenerator[Message, None]]
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def call(data: bytes, context: Context) -> AsyncIterator[bytes]:
            access = Access(refuse.tally, GRPC, f"{SERVICE.full_name}/{name}", "ops")
            try:
                with streams.open():
                    who, asked = await check(context), parse(request, data)
                    await who.did(name, asked)
                    async with aclosing(operation(asked)) as answers:
                        async for answer in answers:
                            yield answer.SerializeToString()
            except Exception as error:
                await refuse(context, error, access)
            except asyncio.CancelledError:
                if why := streams.ended_here():
                    await refuse(context, why, access)
                access.done("CANCELLED")
                raise
            access.done("OK")

        return grpc.unary_stream_rpc_method_handler(call)

    handlers = {
        **ops_calls.unary({"Purge": (ops.PurgeRequest, operations.purge)}, check, refuse),
        "ExportTask": streaming("ExportTask", ops.ExportTaskRequest, operations.export_task),
        "Backup": streaming("Backup", ops.BackupRequest, operations.backup),
        "ExportAudit": streaming("ExportAudit", ops.ExportAuditRequest, operations.export_audit),
    }
    return grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)


def selection_of(said: ops.Selection) -> TaskSelection:
    """The selection in a request. Raises InvalidParams."""
    if said.state and said.state not in states.STORED_STATES:
        raise InvalidParams.field("selection.state", "is no state of a task")
    older = said.older_than.ToMilliseconds()
    if said.HasField("older_than") and older <= 0:
        raise InvalidParams.field("selection.olderThan", "must be more than nothing")
    try:
        return TaskSelection(
            task=said.task_id,
            context=said.context_id,
            principal=said.principal,
            older_than=older,
            scope=said.scope,
            agent=said.agent,
            state=said.state,
        )
    except ValueError as error:
        raise InvalidParams.field("selection", str(error)) from error


def _receipt(receipt: ErasureReceipt) -> ops.Receipt:
    counts = receipt.counts
    made = ops.Receipt(
        number=receipt.number,
        reason=receipt.reason,
        selection=receipt.selection,
        tasks=counts.tasks,
        events=counts.events,
        messages=counts.messages,
        artifacts=counts.artifacts,
        chunks=counts.chunks,
        bytes=counts.bytes,
        digest=receipt.digest,
    )
    if receipt.ended:
        made.began.FromMilliseconds(receipt.began)
        made.ended.FromMilliseconds(receipt.ended)
    return made


def _entry(piece: ExportEntry) -> ops.ExportTaskResponse:
    if piece.push_history is not None:
        return ops.ExportTaskResponse(push=config(piece.push_history.push, piece.push_history.attempts))
    if piece.event is not None:
        event = pb.StreamResponse.FromString(piece.event.data)
        return ops.ExportTaskResponse(
            event=ops.ExportedEvent(sequence=piece.event.sequence, time=_time(event), event=event)
        )
    if piece.message is not None:
        sent = pb.SendMessageRequest.FromString(piece.message.envelope)
        return ops.ExportTaskResponse(
            message=ops.ExportedMessage(
                number=piece.message.number,
                message=pb.Message.FromString(piece.message.message),
                metadata=sent.metadata if sent.HasField("metadata") else None,
                accepted_output_modes=sent.configuration.accepted_output_modes,
            )
        )
    return ops.ExportTaskResponse(task=pb.Task.FromString(piece.task))


def _time(event: pb.StreamResponse) -> Timestamp | None:
    for status in (event.task.status, event.status_update.status):
        if status.HasField("timestamp"):
            return status.timestamp
    return None
