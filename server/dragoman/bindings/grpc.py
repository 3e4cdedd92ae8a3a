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

from dragoman.bindings import (
    callers,
    channelz,
    extensions,
    forms,
    grpc_health,
    grpc_port,
    methods,
    ops_calls,
    ops_events,
    ops_keys,
    ops_push,
    ops_signing,
    ops_upkeep,
    ops_upstreams,
    ops_workers,
    versions,
)
from dragoman.bindings import workers as dialling
from dragoman.bindings.access import Access
from dragoman.bindings.cards import Cards
from dragoman.bindings.closing import Streams
from dragoman.bindings.methods import Operation, Row
from dragoman.bindings.ops import Operations
from dragoman.bindings.serving import Bound, Options
from dragoman.bindings.tally import GRPC
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

_log: Final = logging.getLogger("dragoman.bindings.grpc")

MARGIN: Final = 0.5
"""Seconds before a caller's deadline at which a blocking send answers with the task as it is."""

_SLACK: Final = 1024 * 1024
"""Bytes over the limit that gRPC still hands to us, so that the refusal of a message a little too large names the
limit. What is larger never enters the process: gRPC answers RESOURCE_EXHAUSTED itself."""

Context = grpc.aio.ServicerContext[bytes, bytes]


@asynccontextmanager
async def serve(
    service: TaskService,
    cards: Cards,
    options: Options,
    explainer: Explainer | None = None,
    upkeep: Maintenance | None = None,
    keyring: ApiKeyService | None = None,
    redelivery: Redelivery | None = None,
    switchboard: WorkerHub | None = None,
    signing: SigningKeys | None = None,
    directory: UpstreamRegistry | None = None,
) -> AsyncIterator[Bound]:
    """Serves both packages, health and reflection over gRPC.

    On the way out streams end with UNAVAILABLE at once, other calls after `options.grace` seconds. Raises
    OSError when the address cannot be had.
    """
    server = grpc.aio.server(
        options=(
            ("grpc.max_receive_message_length", options.message_bytes + _SLACK),
            ("grpc.max_send_message_length", -1),
            # A second server on the same port would silently get half of the connections, which has to be meant.
            ("grpc.so_reuseport", int(options.shared)),
            # Streams may be silent for hours: notice dead peers, and let clients do the same.
            ("grpc.keepalive_time_ms", 60_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.enable_channelz", int(options.channelz)),
            *grpc_port.limits(options),
        )
    )
    streams = Streams()
    options.tally.watch(GRPC, lambda: streams.count)
    names = []
    for descriptor, rows in methods.services():
        names.append(descriptor.full_name)
        handlers = {name: _Method(row, service, cards, options, streams).handler() for name, row in rows.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(descriptor.full_name, handlers),))
    operations, refuse = Operations(cards, explainer, options), Refusal(options)
    server.add_generic_rpc_handlers((operations.handler(refuse),))
    if redelivery is not None:
        server.add_generic_rpc_handlers((ops_push.handler(redelivery, operations.check_here, refuse),))
    if upkeep is not None:
        server.add_generic_rpc_handlers((ops_upkeep.handler(upkeep, operations.check_here, refuse, streams),))
        server.add_generic_rpc_handlers((ops_events.handler(upkeep, operations.check_here, refuse),))
    if keyring is not None:
        server.add_generic_rpc_handlers((ops_keys.handler(keyring, operations.check_here, refuse),))
    if signing is not None:
        server.add_generic_rpc_handlers((ops_signing.handler(signing, operations.check_here, refuse),))
    if directory is not None:
        server.add_generic_rpc_handlers((ops_upstreams.handler(directory, operations.check_here, refuse),))
    names.append(ops_calls.SERVICE.full_name)
    if switchboard is not None:
        server.add_generic_rpc_handlers((dialling.handler(switchboard, options, refuse, streams),))
        server.add_generic_rpc_handlers((ops_workers.handler(switchboard, operations.check_here, refuse),))
        names.append(dialling.SERVICE.full_name)
    if options.channelz:
        server.add_generic_rpc_handlers((channelz.handler(operations.check_here, refuse),))
        names.append(channelz.SERVICE.full_name)
    told = await _add_health(server, names)
    address = str(Bound(options.host, options.port))
    try:
        port = grpc_port.add(server, address, options.certificates)
    except RuntimeError as error:
        raise OSError(f"gRPC cannot listen on {address}: {error}") from error
    await server.start()
    cards.grpc = bound = Bound(options.host, port, tls=options.certificates is not None)
    # No TaskGroup: it would wrap what the caller's block raises.
    watching = asyncio.create_task(_follow(options.draining, told), name="grpc-health")
    looking = asyncio.create_task(streams.watch(options.authenticator), name="grpc-credentials")
    try:
        yield bound
    finally:
        watching.cancel()
        looking.cancel()
        await told.enter_graceful_shutdown()
        streams.close()
        await server.stop(options.grace)
        cards.grpc = None


async def _add_health(server: grpc.aio.Server, names: list[str]) -> grpc_health.Health:
    """Health (grpc.health.v1) for each service, and reflection that shows them all."""
    told = grpc_health.Health((*names, grpc_health.NAME))
    health_pb2_grpc.add_HealthServicer_to_server(told, server)
    for name in (*names, grpc_health.NAME):
        await told.set(name, health_pb2.HealthCheckResponse.SERVING)
    # Our packages live in a pool of their own; a reflection client needs one that has everything it is shown.
    for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR, channelz.FILE):
        _pool.adopt(file)  # type: ignore[no-untyped-call]  # generated
    reflection.enable_server_reflection((*names, grpc_health.NAME, reflection.SERVICE_NAME), server, pool=_pool.POOL)
    return told


async def _follow(draining: asyncio.Event, told: grpc_health.Health) -> None:
    """Tells health checks when the process begins to stop."""
    await draining.wait()
    await told.enter_graceful_shutdown()


class _Method:
    """One row, served."""

    def __init__(self, row: Row, service: TaskService, cards: Cards, options: Options, streams: Streams) -> None:
        self._row = row
        self._service = service
        self._cards = cards
        self._options = options
        self._streams = streams
        self._operation: Operation | None = row.op.call(service) if row.op.call else None
        self._request = row.request
        self._frame = row.forms.grpc
        self._path = f"{row.service}/{row.name}"

    def handler(self) -> grpc.RpcMethodHandler[bytes, bytes]:
        """What grpc calls: no (de)serialiser, so bytes come in and go out."""
        if self._row.streaming:
            return grpc.unary_stream_rpc_method_handler(self._stream)
        return grpc.unary_unary_rpc_method_handler(self._unary)

    async def _unary(self, data: bytes, context: Context) -> bytes:
        access = Access(self._options.tally, GRPC, self._path, self._row.dialect.value)
        try:
            call, asked = await self._open(data, context, access)
            if self._operation is None:
                answer = self._card(call.caller).SerializeToString()
            else:
                found = await self._operation(call, asked)
                if self._row.encode is None:
                    answer = bytes(found)  # gRPC takes nothing that is derived from bytes
                else:
                    answer = cached_encoding(
                        found, self._row.encode, lambda: self._row.message(found).SerializeToString()
                    )
        except Exception as error:
            await self._refuse(context, error, access)
        except asyncio.CancelledError:
            access.done("CANCELLED")
            raise
        access.done("OK")
        return answer

    def _card(self, caller: Caller) -> Message:
        if self._row.op.extended_card:
            return self._cards.extended_message(caller.agent, caller.identity)
        return self._cards.v03_card(caller.agent, caller.identity)

    async def _stream(self, data: bytes, context: Context) -> AsyncIterator[bytes]:
        access = Access(self._options.tally, GRPC, self._path, self._row.dialect.value)
        frame, turn = self._frame, self._row.turn
        try:
            with self._streams.open() as stream:
                call, asked = await self._open(data, context, access)
                stream.identity = call.caller.identity
                assert self._operation is not None
                show = extensions.shown(call.extensions)
                untouched = frame is forms.untouched and show is extensions.as_it_is
                async with aclosing(self._operation(call, asked)) as events:
                    while lot := await events.next_batch():
                        stream.sending = True
                        for event in lot:
                            # Two calls for each event would be 2 % of what gRPC takes for it.
                            yield event.data if untouched else frame(show(event), turn and event.ends)
                            if stream.ended is not None:
                                raise stream.ended
                        stream.sending = False
        except Exception as error:
            await self._refuse(context, error, access)
        except asyncio.CancelledError:
            if why := self._streams.ended_here():
                # Where gRPC is still sending something, it takes no status; then the end of the connection has to do.
                with suppress(grpc.aio.InternalError):
                    await self._refuse(context, why, access)
            else:
                access.done("CANCELLED")
            raise
        access.done("OK")

    async def _open(self, data: bytes, context: Context, access: Access) -> tuple[Call, Any]:
        """The call and the 1.0 request. Raises A2AError."""
        row = self._row
        metadata = [(key, value) for key, value in context.invocation_metadata() or () if isinstance(value, str)]
        given: dict[str, list[str]] = {}
        for key, value in metadata:
            given.setdefault(key, []).append(value)
        if access.is_traced:
            access.trace(given.get(TRACE_HEADER, [""])[0])
        public = row.op.shows_card and not self._options.private_pages
        identity = await callers.identify(metadata, self._options, context, public=public)
        versions.check(given.get("a2a-version", ()))
        self._service.admission.check_rate(identity)
        if row.op.push:
            self._service.check_push()
        asked = row.asked(methods.parse(self._request, data))
        caller = callers.caller(self._service, asked.tenant, identity, public=public)
        access.about(caller, asked)
        timeout = None
        if row.op.blocking and (left := context.time_remaining()) is not None:
            timeout = max(left - MARGIN, 0.0)
        named = extensions.split([*given.get("a2a-extensions", ()), *given.get("x-a2a-extensions", ())])
        if activated := extensions.activated(named, self._cards, caller.agent):
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
        return call, asked

    async def _refuse(self, context: Context, error: Exception, access: Access) -> Never:
        await _end(context, error, access, self._row.dialect, self._options)


class Refusal:
    """Ends a failed call of a service that is ours, in the words of 1.0."""

    def __init__(self, options: Options) -> None:
        self.tally = options.tally
        self._options = options

    async def __call__(self, context: Context, error: Exception, access: Access) -> Never:
        await _end(context, error, access, Dialect.V1, self._options)


async def _end(context: Context, error: Exception, access: Access, dialect: Dialect, options: Options) -> Never:
    if not isinstance(error, A2AError):
        _log.error("%s failed", access.method, exc_info=error)
    options.refusals.tell(error, peer=context.peer(), method=access.method)
    status = grpc_status(error, dialect, table=options.table)
    access.done(status.code.name)
    context.set_trailing_metadata((("grpc-status-details-bin", status.status_bin),))
    await context.abort(_CODES[status.code], status.details)


_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
