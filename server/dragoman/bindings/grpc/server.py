"""gRPC server: both A2A packages, the admin and worker services, health and reflection.

Handlers come from the method table and get and return bytes, so responses and events of 1.0 are sent as stored, without
parsing. Errors are `google.rpc.Status` in `grpc-status-details-bin` (A2A 1.0 §10.6). A disconnected client cancels its
handler, but not the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Never

import grpc

from dragoman.bindings import event_encoders, method_table
from dragoman.bindings.admin import handlers as admin_handlers
from dragoman.bindings.admin.table import OPS_SERVICE, AdminTable
from dragoman.bindings.cards import Cards
from dragoman.bindings.grpc import connections, listener, messages, worker_service
from dragoman.bindings.grpc.messages import GrpcContext, MessageReader, text_metadata
from dragoman.bindings.method_table import RpcRow
from dragoman.bindings.options import BoundAddress, ServerOptions
from dragoman.bindings.pipeline import (
    Pipeline,
    RequestExchange,
    RequestLogEntry,
    event_adapter,
    log_call_fault,
    unchanged,
)
from dragoman.bindings.stream_registry import OpenStream, StreamRegistry
from dragoman.core import exceptions
from dragoman.core.errors import Unavailable
from dragoman.core.task.projection import cached_encoding
from dragoman.runtime import Operations
from dragoman.runtime.access import Call
from dragoman.runtime.feeds import EventStream
from dragoman.runtime.read import ends_stream
from dragoman.supervision import Background, start_task
from dragoman.wire import field_count
from dragoman.wire.dialects import Dialect
from dragoman.wire.errors import GrpcStatus, grpc_status

DEADLINE_MARGIN: Final = 0.5  # seconds before the caller's deadline when a blocking send returns the task as it is


@asynccontextmanager
async def serve_grpc(
    operations: Operations, cards: Cards, options: ServerOptions, admin: AdminTable | None = None
) -> AsyncIterator[BoundAddress]:
    """Serves all gRPC services while the block runs; without `admin` no worker service and no operator calls.

    At the end of the block streams end with UNAVAILABLE at once, other calls get `options.grace` seconds.
    Raises OSError if the address cannot be bound.
    """
    server = grpc.aio.server(options=listener.channel_options(options))
    streams = StreamRegistry()
    options.request_metrics.add_stream_count("grpc", lambda: streams.count)
    pipeline = Pipeline(operations, cards, options, streams)
    reader = messages.caller_messages(options.message_bytes)
    names = []
    for descriptor, rows in method_table.rpc_services():
        names.append(descriptor.full_name)
        handlers = {name: _method_handler(row, pipeline, reader) for name, row in rows.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(descriptor.full_name, handlers),))
    names.append(OPS_SERVICE.full_name)
    if admin is not None:
        server.add_generic_rpc_handlers(
            (
                admin_handlers.grpc_handler(admin, options, abort_call, streams, reader),
                worker_service.worker_service_handler(admin.worker_hub, pipeline, abort_call, reader),
            )
        )
        names.append(worker_service.WORKER_SERVICE.full_name)
    # Health (grpc.health.v1) of each service, and reflection of all. Both need no credentials.
    names.append(listener.HEALTH_SERVICE_NAME)
    public_reader = messages.public_messages(options.message_bytes)
    health_servicer = listener.HealthServicer(names, public_reader)
    server.add_generic_rpc_handlers((health_servicer.handler(),))
    await health_servicer.report(serving=True)
    listener.add_reflection(server, names, public_reader)
    address = str(BoundAddress(options.host, options.port))
    try:
        port = listener.add_port(server, address, options.certificates)
    except RuntimeError as error:
        raise OSError(f"gRPC cannot listen on {address}: {error}") from error
    await server.start()
    cards.grpc = bound = BoundAddress(options.host, port, tls=options.certificates is not None)
    # No TaskGroup: it would wrap exceptions of the caller's block.
    readers = (reader, public_reader)
    health_task = start_task(Background.GRPC_HEALTH, partial(_watch, options, health_servicer, port, readers))
    credentials_task = start_task(
        Background.CREDENTIALS,
        partial(streams.watch_credentials, options.authenticator, options.credential_check_interval),
        "over gRPC",
    )
    try:
        yield bound
    finally:
        health_task.cancel()
        credentials_task.cancel()
        await health_servicer.enter_graceful_shutdown()
        streams.close()
        await server.stop(options.grace)
        cards.grpc = None


HEALTH_POLL_INTERVAL: Final = 0.25  # seconds between looks at the store's readiness, and at the connections


async def _watch(
    options: ServerOptions, health: listener.HealthServicer, port: int, readers: Sequence[MessageReader]
) -> None:
    """Reports NOT_SERVING while the store is not usable, and for good as soon as the process starts to shut down.
    Closes idle connections beyond the limit, so that gRPC accepts further ones, of health checks too."""
    was_serving: bool | None = None
    pause = 0
    while not options.draining.is_set():
        if (serving := not options.store_problem()) != was_serving:
            was_serving = serving
            await health.report(serving=serving)
        pause -= pause > 0
        if not pause and connections.exceeds(options.connections):
            busy = {context.peer() for one in readers for context in one.open_calls}
            closed = await asyncio.to_thread(connections.close_idle, port, options.connections, busy)
            pause = 0 if closed else 4  # it takes 20 ms for 4096 connections
        with suppress(TimeoutError):
            async with asyncio.timeout(HEALTH_POLL_INTERVAL):
                await options.draining.wait()
    await health.enter_graceful_shutdown()


class GrpcExchange(RequestExchange[bytes]):
    """One gRPC call. The answer to a stream is empty: its events have been written."""

    DISCONNECTED_STATUS = "CANCELLED"

    row: RpcRow

    def __init__(self, pipeline: Pipeline, row: RpcRow, path: str, reader: MessageReader, context: GrpcContext) -> None:
        """`path`: service and method, for the request log."""
        log_entry = RequestLogEntry(pipeline.options, "grpc", path, row.dialect.value)
        super().__init__(pipeline, log_entry, text_metadata(context), context)
        self.row = row
        self.is_public = row.op.operation is None and row.op.shows_card and not pipeline.options.private_pages
        self._context = context
        self._reader = reader
        self._data = b""  # the serialized request, known after `read`
        self._dialect_request: Any = None
        self._base64_files = False

    @property
    def peer(self) -> str:
        return str(self._context.peer())

    async def read(self) -> None:
        self._data = await self._reader.read(self._context, self.identity.principal)

    async def decode(self) -> Any:
        row = self.row
        if row.op.push:
            self.pipeline.operations.push_configs.check_enabled()
        request = self._dialect_request = field_count.parse_message(row.request, self._data)
        if row.decode is None:
            return request
        v1_request = row.decode(request)
        tenant = self.tenant or v1_request.tenant
        self._base64_files = row.read_files(v1_request, self.pipeline.options.v03_files, tenant, self.extensions)
        return v1_request

    def call(self) -> Call:
        row, headers = self.row, self.headers
        timeout = None
        if row.op.blocking and (remaining := self._context.time_remaining()) is not None:
            timeout = max(remaining - DEADLINE_MARGIN, 0.0)
        return Call(
            self.caller,
            timeout,
            leaves_blocking_open=row.leaves_blocking_open is not None
            and row.leaves_blocking_open(self._dialect_request),
            shows_finished=row.shows_finished,
            waits_for_auth=row.turn and row.waits_for_auth(self.caller),
            dialect=row.dialect.value,
            extensions=self.extensions,
            cursor=headers.get("dragoman-after", ""),
            idempotency_key=headers.get("idempotency-key", ""),
        )

    async def describe(self) -> bytes:
        cards = self.pipeline.cards
        if self.row.op.extended_card:
            return cards.extended_card(self.caller, None, Dialect.V1, as_message=True)
        return cards.v03_card(self.caller, None, as_message=True).body

    async def respond(self, response: bytes) -> bytes:
        row, base64_files = self.row, self._base64_files
        if self.extensions:
            await self._send_activated_extensions()
        if row.encode is None:
            return bytes(response)  # gRPC rejects subclasses of bytes
        agent_name = row.agent_name(self._dialect_request)

        def encode() -> bytes:
            return row.response_message(response, agent_name, base64_files=base64_files).SerializeToString()

        return cached_encoding(response, (row.encode, base64_files), encode)

    async def stream(self, events: EventStream, registration: OpenStream) -> bytes:
        if self.extensions:
            await self._send_activated_extensions()
        row, write, turn = self.row, self._context.write, self.row.turn
        encode = row.stream_encoders(base64_files=self._base64_files).grpc
        adapt_event, call = event_adapter(self.extensions), self.call()
        is_unchanged = encode is event_encoders.stored_bytes and adapt_event is unchanged
        try:
            async with aclosing(events):
                async for batch in events:
                    registration.is_sending = True
                    for event in batch:
                        # Skipping both calls saves 2 % of gRPC's time per event.
                        is_last = turn and event.ends and ends_stream(call, event.state, turn_ended=True)
                        await write(event.data if is_unchanged else encode(adapt_event(event), is_last))
                        if registration.end_reason is not None:
                            raise registration.end_reason
                    registration.is_sending = False
        except grpc.aio.InternalError as error:
            raise Unavailable("the connection ended before gRPC took an event; subscribe to the task again") from error
        return b""

    async def _send_activated_extensions(self) -> None:
        if headers := self.activation_headers():
            await self._context.send_initial_metadata(tuple((name.lower(), value) for name, value in headers.items()))

    async def reject(self, error: Exception) -> bytes:
        status = grpc_status(error, self.row.dialect, table=self.pipeline.options.error_table)
        self.status = status.code.name
        try:
            await abort_with(self._context, status)
        except grpc.aio.InternalError:
            # gRPC is sending an event, and rejects a status: the client sees only that the connection ends.
            raise asyncio.CancelledError from None


def _method_handler(row: RpcRow, pipeline: Pipeline, reader: MessageReader) -> grpc.RpcMethodHandler[bytes, bytes]:
    """Returns the handler of one row for grpc. It has no serializers, so it gets and returns bytes."""
    path, open_calls = f"{row.service}/{row.name}", reader.open_calls

    async def serve(requests: object, context: GrpcContext) -> bytes:
        open_calls.add(context)
        try:
            return await pipeline.serve(GrpcExchange(pipeline, row, path, reader, context))
        except grpc.aio.AbortError as error:
            # gRPC keeps the error with the call, and its traceback refers to the call and the message: a cycle, which
            # would keep 16 MiB until garbage is collected.
            exceptions.forget_frames(error)
            raise
        finally:
            open_calls.discard(context)
            del requests, context

    if row.streaming:
        return grpc.stream_stream_rpc_method_handler(serve)
    return grpc.stream_unary_rpc_method_handler(serve)


async def abort_call(
    options: ServerOptions, context: GrpcContext, error: Exception, log_entry: RequestLogEntry
) -> Never:
    """Ends a failed call of Dragoman's own services, with the errors of 1.0."""
    log_call_fault(error, log_entry.method)
    options.rejections.record(error, peer=context.peer(), method=log_entry.method)
    status = grpc_status(error, Dialect.V1, table=options.error_table)
    log_entry.finish(status.code.name)
    await abort_with(context, status)


async def abort_with(context: GrpcContext, status: GrpcStatus) -> Never:
    context.set_trailing_metadata((("grpc-status-details-bin", status.status_bin),))
    await context.abort(_STATUS_CODES[status.code], status.details)


_STATUS_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
