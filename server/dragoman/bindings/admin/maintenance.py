"""Operator calls that erase, export and back up stored tasks (`dragoman.ops.v1`).

`MaintenanceOperations` uses the messages of the service but not gRPC, so the command line can do the same to a store
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

from dragoman import __version__
from dragoman.bindings.admin import rpc_handler
from dragoman.bindings.admin.rpc_handler import OPS_SERVICE, AbortCall, AuthorizeOperator, GrpcContext
from dragoman.bindings.admin.tasks import push_config_message
from dragoman.bindings.method_table import parse_message
from dragoman.bindings.request_log import GRPC_LABEL, RequestLogEntry
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.audit import format_audit_line
from dragoman.core.errors import InvalidParams
from dragoman.core.task import states
from dragoman.core.task.maintenance import ErasureReceipt, TaskSelection
from dragoman.runtime.maintenance.admin import ExportEntry, Maintenance
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

EXPORT_FORMAT_VERSION: Final = 1
"""Version of the export format."""


class MaintenanceOperations:
    """Operator calls from request message to response message. They raise A2AError."""

    def __init__(self, maintenance: Maintenance, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._maintenance = maintenance
        self._now = now

    async def purge(self, request: ops.PurgeRequest) -> ops.PurgeResponse:
        """Erases a selection of tasks, or reports what it would remove."""
        selection = parse_selection(request.selection)
        if request.dry_run:
            counts = await self._maintenance.measure(selection)
            receipt = ErasureReceipt(0, "", str(selection), 0, 0, counts, "")
        else:
            receipt = await self._maintenance.purge(selection)
        return ops.PurgeResponse(receipt=_receipt_message(receipt), dry_run=request.dry_run)

    async def export_task(self, request: ops.ExportTaskRequest) -> AsyncGenerator[ops.ExportTaskResponse, None]:
        """Exports everything stored about one task."""
        if not request.task_id:
            raise InvalidParams.field("taskId", "is required")
        selection = TaskSelection(
            task=request.task_id, agent=request.agent, principal=request.principal, scope=request.scope
        )
        end = ops.ExportEnd()
        async with aclosing(self._maintenance.export(selection)) as pieces:
            async for piece in pieces:
                if piece.event is not None:
                    end.events += 1
                elif piece.push_history is not None:
                    end.pushes += 1
                elif piece.message is not None:
                    end.messages += 1
                else:
                    yield ops.ExportTaskResponse(header=self._header(piece))
                yield _export_message(piece)
        yield ops.ExportTaskResponse(end=end)

    async def backup(self, request: ops.BackupRequest) -> AsyncGenerator[ops.BackupResponse, None]:
        """Backs up the store and streams the progress."""
        async with aclosing(self._maintenance.backup(Path(request.destination))) as steps:
            async for step in steps:
                yield ops.BackupResponse(bytes=step.bytes, total_bytes=step.total, done=step.done)

    async def export_audit(self, request: ops.ExportAuditRequest) -> AsyncGenerator[ops.ExportAuditResponse, None]:
        """Returns a page of the audit log."""
        if request.after < 0:
            raise InvalidParams.field("after", "must be 0 or more")
        async with aclosing(self._maintenance.audit(request.after)) as batches:
            async for lot in batches:
                yield ops.ExportAuditResponse(lines=map(format_audit_line, lot))

    def _header(self, entry: ExportEntry) -> ops.ExportHeader:
        head = entry.record
        header = ops.ExportHeader(
            version=EXPORT_FORMAT_VERSION,
            dragoman=__version__,
            task_id=head.id,
            agent=head.agent,
            principal=head.principal,
            scope=head.ref.owner.scope,
            dialect=head.dialect,
        )
        header.exported.FromDatetime(self._now())
        return header


def maintenance_handler(
    maintenance: Maintenance, authorize: AuthorizeOperator, abort: AbortCall, streams: StreamRegistry
) -> grpc.GenericRpcHandler:
    """The handler for grpc; other operations of the service have their own handlers."""
    operations = MaintenanceOperations(maintenance)

    def streaming(
        name: str, request: type[Message], operation: Callable[[Any], AsyncGenerator[Message, None]]
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def call(data: bytes, context: GrpcContext) -> AsyncIterator[bytes]:
            access = RequestLogEntry(abort.metrics, GRPC_LABEL, f"{OPS_SERVICE.full_name}/{name}", "ops")
            try:
                with streams.open():
                    who, message = await authorize(context), parse_message(request, data)
                    await who.record(name, message)
                    async with aclosing(operation(message)) as answers:
                        async for answer in answers:
                            yield answer.SerializeToString()
            except Exception as error:
                await abort(context, error, access)
            except asyncio.CancelledError:
                if why := streams.take_end_reason():
                    await abort(context, why, access)
                access.finish("CANCELLED")
                raise
            access.finish("OK")

        return grpc.unary_stream_rpc_method_handler(call)

    handlers = {
        **rpc_handler.unary_handlers({"Purge": (ops.PurgeRequest, operations.purge)}, authorize, abort),
        "ExportTask": streaming("ExportTask", ops.ExportTaskRequest, operations.export_task),
        "Backup": streaming("Backup", ops.BackupRequest, operations.backup),
        "ExportAudit": streaming("ExportAudit", ops.ExportAuditRequest, operations.export_audit),
    }
    return grpc.method_handlers_generic_handler(OPS_SERVICE.full_name, handlers)


def parse_selection(message: ops.Selection) -> TaskSelection:
    """Parses the selection of a request. Raises InvalidParams."""
    if message.state and message.state not in states.STORED_STATES:
        raise InvalidParams.field("selection.state", "is no state of a task")
    older = message.older_than.ToMilliseconds()
    if message.HasField("older_than") and older <= 0:
        raise InvalidParams.field("selection.olderThan", "must be more than nothing")
    try:
        return TaskSelection(
            task=message.task_id,
            context=message.context_id,
            principal=message.principal,
            older_than=older,
            scope=message.scope,
            agent=message.agent,
            state=message.state,
        )
    except ValueError as error:
        raise InvalidParams.field("selection", str(error)) from error


def _receipt_message(receipt: ErasureReceipt) -> ops.Receipt:
    counts = receipt.counts
    created_receipt = ops.Receipt(
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
        created_receipt.began.FromMilliseconds(receipt.began)
        created_receipt.ended.FromMilliseconds(receipt.ended)
    return created_receipt


def _export_message(entry: ExportEntry) -> ops.ExportTaskResponse:
    if entry.push_history is not None:
        return ops.ExportTaskResponse(push=push_config_message(entry.push_history.push, entry.push_history.attempts))
    if entry.event is not None:
        event = pb.StreamResponse.FromString(entry.event.data)
        return ops.ExportTaskResponse(
            event=ops.ExportedEvent(sequence=entry.event.sequence, time=_event_time(event), event=event)
        )
    if entry.message is not None:
        sent = pb.SendMessageRequest.FromString(entry.message.envelope)
        return ops.ExportTaskResponse(
            message=ops.ExportedMessage(
                number=entry.message.number,
                message=pb.Message.FromString(entry.message.message),
                metadata=sent.metadata if sent.HasField("metadata") else None,
                accepted_output_modes=sent.configuration.accepted_output_modes,
            )
        )
    return ops.ExportTaskResponse(task=pb.Task.FromString(entry.task))


def _event_time(event: pb.StreamResponse) -> Timestamp | None:
    for status in (event.task.status, event.status_update.status):
        if status.HasField("timestamp"):
            return status.timestamp
    return None
