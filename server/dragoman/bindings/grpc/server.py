"""gRPC: both packages, health and reflection over grpc.aio, in bytes.

Handlers come from the method table and do their own (de)serialising, so that an answer or event of 1.0 goes out
as the bytes the store gave. Errors are `google.rpc.Status` in `grpc-status-details-bin` (A2A 1.0 §10.6). A
client that goes away cancels its handler, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final, Never

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection, reflection_pb2  # type: ignore[import-untyped]

from dragoman.bindings import a2a_headers, authentication, event_encoders, method_table
from dragoman.bindings.admin import agents, keys, maintenance, rpc_handler, tasks
from dragoman.bindings.admin.tasks import ServerOperations
from dragoman.bindings.cards import Cards
from dragoman.bindings.grpc import listener
from dragoman.bindings.grpc import worker_service as dialling
from dragoman.bindings.method_table import RpcRow, ServiceOperation
from dragoman.bindings.options import BoundAddress, ServerOptions
from dragoman.bindings.request_log import GRPC_LABEL, RequestLogEntry
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.access.identity import Caller
from dragoman.core.errors import A2AError
from dragoman.core.task.projection import cached_encoding
from dragoman.core.trace import TRACE_HEADER
from dragoman.ports import SigningKeys, UpstreamRegistry, WorkerHub
from dragoman.runtime.api_keys import ApiKeyService
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.runtime.observe.explain import Explainer
from dragoman.runtime.operations.call import Call
from dragoman.runtime.operations.service import TaskService
from dragoman.runtime.push.scheduler import Redelivery
from dragoman.wire.dialects import Dialect
from dragoman.wire.errors import grpc_status
from dragoman_pb import _pool

_log: Final = logging.getLogger("dragoman.bindings.grpc.server")

DEADLINE_MARGIN: Final = 0.5
"""Seconds before a caller's deadline at which a blocking send answers with the task as it is."""

_MESSAGE_OVERHEAD_BYTES: Final = 1024 * 1024
"""Bytes over the limit that gRPC still hands to us, so that the refusal of a message a little too large names the
limit. What is larger never enters the process: gRPC answers RESOURCE_EXHAUSTED itself."""

GrpcContext = grpc.aio.ServicerContext[bytes, bytes]


@asynccontextmanager
async def serve_grpc(
    service: TaskService,
    cards: Cards,
    options: ServerOptions,
    explainer: Explainer | None = None,
    store_maintenance: Maintenance | None = None,
    api_keys: ApiKeyService | None = None,
    redelivery: Redelivery | None = None,
    worker_hub: WorkerHub | None = None,
    signing_keys: SigningKeys | None = None,
    upstreams: UpstreamRegistry | None = None,
) -> AsyncIterator[BoundAddress]:
    """Serves both packages, health and reflection over gRPC.

    On the way out streams end with UNAVAILABLE at once, other calls after `options.grace` seconds. Raises
    OSError when the address cannot be had.
    """
    server = grpc.aio.server(
        options=(
            ("grpc.max_receive_message_length", options.message_bytes + _MESSAGE_OVERHEAD_BYTES),
            ("grpc.max_send_message_length", -1),
            # A second server on the same port would silently get half of the connections, which has to be meant.
            ("grpc.so_reuseport", int(options.shared)),
            # Streams may be silent for hours: notice dead peers, and let clients do the same.
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
    operations, refuse = ServerOperations(cards, explainer, options), CallAborter(options)
    server.add_generic_rpc_handlers((operations.handler(refuse),))
    if redelivery is not None:
        server.add_generic_rpc_handlers((tasks.push_handler(redelivery, operations.authorize_local, refuse),))
    if store_maintenance is not None:
        server.add_generic_rpc_handlers(
            (maintenance.maintenance_handler(store_maintenance, operations.authorize_local, refuse, streams),)
        )
        server.add_generic_rpc_handlers((tasks.event_handler(store_maintenance, operations.authorize_local, refuse),))
    if api_keys is not None:
        server.add_generic_rpc_handlers((keys.api_key_handler(api_keys, operations.authorize_local, refuse),))
    if signing_keys is not None:
        server.add_generic_rpc_handlers((keys.signing_key_handler(signing_keys, operations.authorize_local, refuse),))
    if upstreams is not None:
        server.add_generic_rpc_handlers((agents.upstream_handler(upstreams, operations.authorize_local, refuse),))
    names.append(rpc_handler.OPS_SERVICE.full_name)
    if worker_hub is not None:
        server.add_generic_rpc_handlers((dialling.worker_service_handler(worker_hub, options, refuse, streams),))
        server.add_generic_rpc_handlers((agents.worker_handler(worker_hub, operations.authorize_local, refuse),))
        names.append(dialling.WORKER_SERVICE.full_name)
    if options.channelz:
        server.add_generic_rpc_handlers((listener.channelz_handler(operations.authorize_local, refuse),))
        names.append(listener.CHANNELZ_SERVICE.full_name)
    health_servicer = await _add_health(server, names)
    address = str(BoundAddress(options.host, options.port))
    try:
        port = listener.add_port(server, address, options.certificates)
    except RuntimeError as error:
        raise OSError(f"gRPC cannot listen on {address}: {error}") from error
    await server.start()
    cards.grpc = bound = BoundAddress(options.host, port, tls=options.certificates is not None)
    # No TaskGroup: it would wrap what the caller's block raises.
    watching = asyncio.create_task(_watch_draining(options.draining, health_servicer), name="grpc-health")
    looking = asyncio.create_task(streams.watch_credentials(options.authenticator), name="grpc-credentials")
    try:
        yield bound
    finally:
        watching.cancel()
        looking.cancel()
        await health_servicer.enter_graceful_shutdown()
        streams.close()
        await server.stop(options.grace)
        cards.grpc = None


async def _add_health(server: grpc.aio.Server, names: list[str]) -> listener.HealthServicer:
    """Health (grpc.health.v1) for each service, and reflection that shows them all."""
    health_servicer = listener.HealthServicer((*names, listener.HEALTH_SERVICE_NAME))
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    for name in (*names, listener.HEALTH_SERVICE_NAME):
        await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    # Our packages live in a pool of their own; a reflection client needs one that has everything it is shown.
    for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR, listener.CHANNELZ_FILE):
        _pool.adopt(file)  # type: ignore[no-untyped-call]  # generated
    reflection.enable_server_reflection(
        (*names, listener.HEALTH_SERVICE_NAME, reflection.SERVICE_NAME), server, pool=_pool.POOL
    )
    return health_servicer


async def _watch_draining(draining: asyncio.Event, health: listener.HealthServicer) -> None:
    """Tells health checks when the process begins to stop."""
    await draining.wait()
    await health.enter_graceful_shutdown()


class _MethodHandler:
    """One row, served."""

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
        self._encode_event = row.stream_encoders.grpc
        self._path = f"{row.service}/{row.name}"

    def handler(self) -> grpc.RpcMethodHandler[bytes, bytes]:
        """What grpc calls: no (de)serialiser, so bytes come in and go out."""
        if self._row.streaming:
            return grpc.unary_stream_rpc_method_handler(self._stream)
        return grpc.unary_unary_rpc_method_handler(self._unary)

    async def _unary(self, data: bytes, context: GrpcContext) -> bytes:
        access = RequestLogEntry(self._options.request_metrics, GRPC_LABEL, self._path, self._row.dialect.value)
        try:
            call, value = await self._read_call(data, context, access)
            if self._operation is None:
                answer = self._card_message(call.caller).SerializeToString()
            else:
                found = await self._operation(call, value)
                if self._row.encode is None:
                    answer = bytes(found)  # gRPC takes nothing that is derived from bytes
                else:
                    answer = cached_encoding(
                        found, self._row.encode, lambda: self._row.response_message(found).SerializeToString()
                    )
        except Exception as error:
            await self._abort(context, error, access)
        except asyncio.CancelledError:
            access.finish("CANCELLED")
            raise
        access.finish("OK")
        return answer

    def _card_message(self, caller: Caller) -> Message:
        if self._row.op.extended_card:
            return self._cards.extended_message(caller.agent, caller.identity)
        return self._cards.v03_card(caller.agent, caller.identity)

    async def _stream(self, data: bytes, context: GrpcContext) -> AsyncIterator[bytes]:
        access = RequestLogEntry(self._options.request_metrics, GRPC_LABEL, self._path, self._row.dialect.value)
        frame, turn = self._encode_event, self._row.turn
        try:
            with self._stream_registry.open() as stream:
                call, value = await self._read_call(data, context, access)
                stream.identity = call.caller.identity
                assert self._operation is not None
                show = a2a_headers.event_adapter(call.extensions)
                untouched = frame is event_encoders.stored_bytes and show is a2a_headers.unchanged
                async with aclosing(self._operation(call, value)) as events:
                    while lot := await events.next_batch():
                        stream.is_sending = True
                        for event in lot:
                            # Two calls for each event would be 2 % of what gRPC takes for it.
                            yield event.data if untouched else frame(show(event), turn and event.ends)
                            if stream.end_reason is not None:
                                raise stream.end_reason
                        stream.is_sending = False
        except Exception as error:
            await self._abort(context, error, access)
        except asyncio.CancelledError:
            if why := self._stream_registry.take_end_reason():
                # Where gRPC is still sending something, it takes no status; then the end of the connection has to do.
                with suppress(grpc.aio.InternalError):
                    await self._abort(context, why, access)
            else:
                access.finish("CANCELLED")
            raise
        access.finish("OK")

    async def _read_call(self, data: bytes, context: GrpcContext, log_entry: RequestLogEntry) -> tuple[Call, Any]:
        """The call and the 1.0 request. Raises A2AError."""
        row = self._row
        metadata = [(key, value) for key, value in context.invocation_metadata() or () if isinstance(value, str)]
        given: dict[str, list[str]] = {}
        for key, value in metadata:
            given.setdefault(key, []).append(value)
        if log_entry.is_traced:
            log_entry.start_trace(given.get(TRACE_HEADER, [""])[0])
        public = row.op.shows_card and not self._options.private_pages
        identity = await authentication.authenticate(metadata, self._options, context, public=public)
        a2a_headers.check_version(given.get("a2a-version", ()))
        self._service.admission.check_rate(identity)
        if row.op.push:
            self._service.check_push()
        requested_value = row.v1_request(method_table.parse_message(self._request, data))
        caller = authentication.authorize(self._service, requested_value.tenant, identity, public=public)
        log_entry.set_caller(caller, requested_value)
        timeout = None
        if row.op.blocking and (left := context.time_remaining()) is not None:
            timeout = max(left - DEADLINE_MARGIN, 0.0)
        named = a2a_headers.split_extensions([*given.get("a2a-extensions", ()), *given.get("x-a2a-extensions", ())])
        if activated := a2a_headers.activated_extensions(named, self._cards, caller.agent):
            old = row.dialect is Dialect.V03
            await context.send_initial_metadata((("x-a2a-extensions" if old else "a2a-extensions", activated),))
        call = Call(
            caller,
            timeout,
            shows_finished=row.shows_finished,
            dialect=row.dialect.value,
            extensions=named,
            cursor=given.get("dragoman-after", [""])[0],
            idempotency_key=given.get("idempotency-key", [""])[0],
        )
        return call, requested_value

    async def _abort(self, context: GrpcContext, error: Exception, log_entry: RequestLogEntry) -> Never:
        await _abort_call(context, error, log_entry, self._row.dialect, self._options)


class CallAborter:
    """Ends a failed call of a service that is ours, in the words of 1.0."""

    def __init__(self, options: ServerOptions) -> None:
        self.metrics = options.request_metrics
        self._options = options

    async def __call__(self, context: GrpcContext, error: Exception, log_entry: RequestLogEntry) -> Never:
        await _abort_call(context, error, log_entry, Dialect.V1, self._options)


async def _abort_call(
    context: GrpcContext, error: Exception, log_entry: RequestLogEntry, dialect: Dialect, options: ServerOptions
) -> Never:
    if not isinstance(error, A2AError):
        _log.error("%s failed", log_entry.method, exc_info=error)
    options.auth_failures.record(error, peer=context.peer(), method=log_entry.method)
    status = grpc_status(error, dialect, table=options.error_table)
    log_entry.finish(status.code.name)
    context.set_trailing_metadata((("grpc-status-details-bin", status.status_bin),))
    await context.abort(_STATUS_CODES[status.code], status.details)


_STATUS_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
