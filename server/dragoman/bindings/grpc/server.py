"""gRPC server: both A2A packages, the admin and worker services, health and reflection.

Handlers come from the method table and get and return bytes, so responses and events of 1.0 are sent as stored, without
parsing. Errors are `google.rpc.Status` in `grpc-status-details-bin` (A2A 1.0 §10.6). A disconnected client cancels its
handler, but not the task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Never

import grpc
from google.protobuf.message import Message

from dragoman.bindings import a2a_headers, authentication, event_encoders, method_table
from dragoman.bindings.admin import handlers as admin_handlers
from dragoman.bindings.admin.handlers import AdminServices
from dragoman.bindings.cards import Cards
from dragoman.bindings.grpc import listener, worker_service
from dragoman.bindings.method_table import RpcRow, ServiceOperation
from dragoman.bindings.options import BoundAddress, ServerOptions
from dragoman.bindings.request_log import GRPC_LABEL, RequestLogEntry
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.access.identity import Caller
from dragoman.core.errors import A2AError
from dragoman.core.task.projection import cached_encoding
from dragoman.core.trace import TRACE_HEADER
from dragoman.runtime.operations.call import Call
from dragoman.runtime.operations.service import TaskService
from dragoman.supervision import Background, log_fault, start_task
from dragoman.wire import field_count
from dragoman.wire.dialects import Dialect, recorded_dialect
from dragoman.wire.errors import grpc_status

_log: Final = logging.getLogger("dragoman.bindings.grpc.server")

DEADLINE_MARGIN: Final = 0.5
"""Seconds before the caller's deadline when a blocking send returns the task in its current state."""

_MESSAGE_OVERHEAD_BYTES: Final = 1024 * 1024
"""Bytes over the message limit that gRPC still passes on, so the error for a slightly larger message names the limit.
gRPC itself rejects larger messages with RESOURCE_EXHAUSTED, before reading them."""

GrpcContext = grpc.aio.ServicerContext[bytes, bytes]


@asynccontextmanager
async def serve_grpc(
    service: TaskService,
    cards: Cards,
    options: ServerOptions,
    admin: AdminServices | None = None,
) -> AsyncIterator[BoundAddress]:
    """Serves all gRPC services while the block runs; without `admin` no worker service and no operator calls.

    At the end of the block streams end with UNAVAILABLE at once, other calls get `options.grace` seconds.
    Raises OSError if the address cannot be bound.
    """
    server = grpc.aio.server(
        options=(
            ("grpc.max_receive_message_length", options.message_bytes + _MESSAGE_OVERHEAD_BYTES),
            ("grpc.max_send_message_length", -1),
            # Off by default: a second server on the same port would silently get half of the connections.
            ("grpc.so_reuseport", int(options.shared)),
            # Streams may be idle for hours: pings detect dead peers, and clients may send them, too.
            ("grpc.keepalive_time_ms", 60_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.enable_channelz", int(options.channelz)),
            *listener.limit_options(options),
        )
    )
    streams = StreamRegistry()
    options.request_metrics.add_stream_count(GRPC_LABEL, lambda: streams.count)
    names = []
    for descriptor, rows in method_table.rpc_services():
        names.append(descriptor.full_name)
        handlers = {name: _MethodHandler(row, service, cards, options, streams).handler() for name, row in rows.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(descriptor.full_name, handlers),))
    abort = CallAborter(options)
    names.append(admin_handlers.OPS_SERVICE.full_name)
    if admin is not None:
        server.add_generic_rpc_handlers(
            (
                admin_handlers.grpc_handler(admin, cards, options, abort, streams),
                worker_service.worker_service_handler(admin.worker_hub, options, abort, streams),
            )
        )
        names.append(worker_service.WORKER_SERVICE.full_name)
    if options.channelz:
        authorize = partial(admin_handlers.authorize_grpc, options=options)
        server.add_generic_rpc_handlers((listener.channelz_handler(authorize, abort),))
        names.append(listener.CHANNELZ_SERVICE.full_name)
    health_servicer = await _add_health(server, names)
    address = str(BoundAddress(options.host, options.port))
    try:
        port = listener.add_port(server, address, options.certificates)
    except RuntimeError as error:
        raise OSError(f"gRPC cannot listen on {address}: {error}") from error
    await server.start()
    cards.grpc = bound = BoundAddress(options.host, port, tls=options.certificates is not None)
    # No TaskGroup: it would wrap exceptions of the caller's block.
    health_task = start_task(Background.GRPC_HEALTH, partial(_watch_readiness, options, health_servicer))
    credentials_task = start_task(
        Background.CREDENTIALS, partial(streams.watch_credentials, options.authenticator), "over gRPC"
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


async def _add_health(server: grpc.aio.Server, names: list[str]) -> listener.HealthServicer:
    """Adds health (grpc.health.v1) for each service, and reflection of all services."""
    health_servicer = listener.HealthServicer((*names, listener.HEALTH_SERVICE_NAME))
    server.add_generic_rpc_handlers((health_servicer.handler(),))
    await health_servicer.report(serving=True)
    listener.add_reflection(server, (*names, listener.HEALTH_SERVICE_NAME))
    return health_servicer


HEALTH_POLL_INTERVAL: Final = 0.25
"""Seconds between looks at the store's readiness."""


async def _watch_readiness(options: ServerOptions, health: listener.HealthServicer) -> None:
    """Reports NOT_SERVING while the store is not usable, and for good as soon as the process starts to shut down."""
    was_serving: bool | None = None
    while not options.draining.is_set():
        if (serving := not options.store_problem()) != was_serving:
            was_serving = serving
            await health.report(serving=serving)
        with suppress(TimeoutError):
            async with asyncio.timeout(HEALTH_POLL_INTERVAL):
                await options.draining.wait()
    await health.enter_graceful_shutdown()


class _MethodHandler:
    """Serves one row of the method table."""

    def __init__(
        self, row: RpcRow, service: TaskService, cards: Cards, options: ServerOptions, stream_registry: StreamRegistry
    ) -> None:
        self._row = row
        self._service = service
        self._cards = cards
        self._options = options
        self._stream_registry = stream_registry
        self._operation: ServiceOperation | None = row.op.operation(service) if row.op.operation else None
        self._request = row.request
        self._path = f"{row.service}/{row.name}"

    def handler(self) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Returns the handler for grpc, without serializers, so it gets and returns bytes."""
        if self._row.streaming:
            return grpc.unary_stream_rpc_method_handler(self._stream)
        return grpc.unary_unary_rpc_method_handler(self._unary)

    async def _unary(self, data: bytes, context: GrpcContext) -> bytes:
        log_entry = RequestLogEntry(self._options.request_metrics, GRPC_LABEL, self._path, self._row.dialect.value)
        try:
            call, rpc_request, agent_name, base64_files = await self._read_call(data, context, log_entry)
            if self._operation is None:
                encoded = self._card_message(call.caller).SerializeToString()
            else:
                response = await self._operation(call, rpc_request)
                if self._row.encode is None:
                    encoded = bytes(response)  # gRPC rejects subclasses of bytes
                else:
                    encoded = cached_encoding(
                        response,
                        (self._row.encode, base64_files),
                        lambda: self._row.response_message(
                            response, agent_name, base64_files=base64_files
                        ).SerializeToString(),
                    )
        except Exception as error:
            await self._abort(context, error, log_entry)
        except asyncio.CancelledError:
            log_entry.finish("CANCELLED")
            raise
        log_entry.finish("OK")
        return encoded

    def _card_message(self, caller: Caller) -> Message:
        if self._row.op.extended_card:
            return self._cards.extended_message(caller)
        return self._cards.v03_card(caller)

    async def _stream(self, data: bytes, context: GrpcContext) -> AsyncIterator[bytes]:
        log_entry = RequestLogEntry(self._options.request_metrics, GRPC_LABEL, self._path, self._row.dialect.value)
        turn = self._row.turn
        try:
            with self._stream_registry.open() as stream:
                call, rpc_request, _, base64_files = await self._read_call(data, context, log_entry)
                stream.identity = call.caller.identity
                encode = self._row.stream_encoders(base64_files=base64_files).grpc
                assert self._operation is not None
                adapt_event = a2a_headers.event_adapter(call.extensions)
                is_unchanged = encode is event_encoders.stored_bytes and adapt_event is a2a_headers.unchanged
                async with aclosing(self._operation(call, rpc_request)) as events:
                    while batch := await events.next_batch():
                        stream.is_sending = True
                        for event in batch:
                            # Skipping both calls saves 2 % of gRPC's time per event.
                            yield event.data if is_unchanged else encode(adapt_event(event), turn and event.ends)
                            if stream.end_reason is not None:
                                raise stream.end_reason
                        stream.is_sending = False
        except Exception as error:
            await self._abort(context, error, log_entry)
        except asyncio.CancelledError:
            if end_reason := self._stream_registry.take_end_reason():
                # While gRPC is still sending it rejects a status; the client then sees only the connection end.
                with suppress(grpc.aio.InternalError):
                    await self._abort(context, end_reason, log_entry)
            else:
                log_entry.finish("CANCELLED")
            raise
        log_entry.finish("OK")

    async def _read_call(
        self, data: bytes, context: GrpcContext, log_entry: RequestLogEntry
    ) -> tuple[Call, Any, str, bool]:
        """Authenticates, checks and parses a request. Raises A2AError.

        Returns the call, the 1.0 request, the agent's name, if names in the request are full, and whether the response
        has files as base64 text.
        """
        row = self._row
        metadata = [(key, value) for key, value in context.invocation_metadata() or () if isinstance(value, str)]
        headers: dict[str, list[str]] = {}
        for key, value in metadata:
            headers.setdefault(key, []).append(value)
        if log_entry.is_traced:
            log_entry.start_trace(headers.get(TRACE_HEADER, [""])[0])
        public = row.op.shows_card and not self._options.private_pages
        identity = await authentication.authenticate(metadata, self._options, context, public=public)
        a2a_headers.check_version(headers.get("a2a-version", ()))
        self._service.admission.check_rate(identity)
        if row.op.push:
            self._service.check_push()
        dialect_request = field_count.parse_message(self._request, data)
        rpc_request = row.v1_request(dialect_request)
        caller = authentication.authorize(self._service, rpc_request.tenant, identity, public=public)
        log_entry.set_caller(caller, rpc_request)
        base64_files = await row.read_files(
            rpc_request, self._options.v03_files, partial(self._service.dialect_of, caller)
        )
        timeout = None
        if row.op.blocking and (remaining := context.time_remaining()) is not None:
            timeout = max(remaining - DEADLINE_MARGIN, 0.0)
        extensions = a2a_headers.split_extensions(
            [*headers.get("a2a-extensions", ()), *headers.get("x-a2a-extensions", ())]
        )
        if activated := a2a_headers.activated_extensions(extensions, self._cards, caller.agent):
            header = "x-a2a-extensions" if row.dialect is Dialect.V03 else "a2a-extensions"
            await context.send_initial_metadata(((header, activated),))
        call = Call(
            caller,
            timeout,
            leaves_blocking_open=row.leaves_blocking_open(dialect_request),
            shows_finished=row.shows_finished,
            dialect=recorded_dialect(row.dialect, base64_files=base64_files),
            extensions=extensions,
            cursor=headers.get("dragoman-after", [""])[0],
            idempotency_key=headers.get("idempotency-key", [""])[0],
        )
        return call, rpc_request, row.agent_name(dialect_request), base64_files

    async def _abort(self, context: GrpcContext, error: Exception, log_entry: RequestLogEntry) -> Never:
        await _abort_call(context, error, log_entry, self._row.dialect, self._options)


class CallAborter:
    """Ends a failed call of Dragoman's own services, with the errors of 1.0."""

    def __init__(self, options: ServerOptions) -> None:
        self.metrics = options.request_metrics
        self._options = options

    async def __call__(self, context: GrpcContext, error: Exception, log_entry: RequestLogEntry) -> Never:
        await _abort_call(context, error, log_entry, Dialect.V1, self._options)


async def _abort_call(
    context: GrpcContext, error: Exception, log_entry: RequestLogEntry, dialect: Dialect, options: ServerOptions
) -> Never:
    if not isinstance(error, A2AError):
        log_fault(_log, f"{log_entry.method} failed", error)
    options.auth_failures.record(error, peer=context.peer(), method=log_entry.method)
    status = grpc_status(error, dialect, table=options.error_table)
    log_entry.finish(status.code.name)
    context.set_trailing_metadata((("grpc-status-details-bin", status.status_bin),))
    await context.abort(_STATUS_CODES[status.code], status.details)


_STATUS_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
