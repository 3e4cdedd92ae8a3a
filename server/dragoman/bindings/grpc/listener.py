"""gRPC port: TLS, connection limits, health and reflection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import cache
from typing import Any, Final, Never

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.json_format import MessageToJson, Parse
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]
from grpc_health.v1.health import aio  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection, reflection_pb2  # type: ignore[import-untyped]

from dragoman.bindings.grpc.messages import MESSAGE_OVERHEAD_BYTES, UNREAD_WINDOW_BYTES, MessageReader
from dragoman.bindings.options import ServerOptions
from dragoman.core.access.identity import ANONYMOUS
from dragoman.core.errors import A2AError, Unavailable
from dragoman.ports.security import ServerCertificates
from dragoman.wire.field_count import parse_message
from dragoman_pb import _pool

MAX_PENDING_REQUESTS: Final = 10_000
"""Maximum calls waiting to be handled: so many may reconnect at once after another server has stopped. By default gRPC
rejects calls beyond a thousand with a growing probability."""

MAX_METADATA_BYTES: Final = 32 * 1024
"""Maximum bytes of a call's metadata: larger than the credentials limit, so that Dragoman itself rejects those."""

MIN_PING_INTERVAL_MS: Final = 4_000
"""Clients may send keep-alive pings every 5 s, less a second for delays on the way. Three earlier ones end the
connection with ENHANCE_YOUR_CALM."""

GRPC_IDLE_TIMEOUT: Final = 3600  # seconds after which a connection without calls is closed


def channel_options(options: ServerOptions) -> tuple[tuple[str, Any], ...]:
    """The options of gRPC: the limits above and those of `options`."""
    most = options.connections + options.connections // 16 + options.overflow_connections
    return (
        ("grpc.max_receive_message_length", options.message_bytes + MESSAGE_OVERHEAD_BYTES),
        ("grpc.max_send_message_length", -1),
        # Off by default: a second server on the same port would silently get half of the connections.
        ("grpc.so_reuseport", int(options.shared)),
        # Streams may be idle for hours: pings detect dead peers, and clients may send them, too.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        # gRPC rejects those beyond; idle ones are closed before (`connections.close_idle`), four times a second.
        ("grpc.max_allowed_incoming_connections", most),
        ("grpc.max_concurrent_streams", options.connection_calls),
        # Else calls that have ended count until gRPC has freed them, and new ones of clients that keep the limit are
        # refused: 11,000 of 24,000 with 120 callers on one connection.
        ("grpc.http.overload_protection", 0),
        # Bytes of a call that gRPC accepts before its message is read. Else it is 4 MiB, and grows with the connection.
        ("grpc.http2.lookahead_bytes", UNREAD_WINDOW_BYTES),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        # Else calls between the two are rejected at random.
        ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.server_handshake_timeout_ms", round(options.grpc_handshake_timeout * 1000)),
        ("grpc.max_connection_idle_ms", GRPC_IDLE_TIMEOUT * 1000),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.server.max_pending_requests", MAX_PENDING_REQUESTS),
        ("grpc.server.max_pending_requests_hard_limit", 2 * MAX_PENDING_REQUESTS),
    )


def add_port(server: grpc.aio.Server, address: str, certificates: ServerCertificates | None) -> int:
    """Adds the port and returns its number. Raises RuntimeError if it cannot be bound."""
    if certificates is None:
        return server.add_insecure_port(address)
    current = certificates.pair

    def configuration() -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration(
            [(current.key, current.chain)], certificates.client_authorities or None
        )

    def changed_certificate() -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC in its own thread before each handshake. None: the certificate is unchanged."""
        nonlocal current
        if certificates.pair is current:
            return None
        current = certificates.pair
        return configuration()

    credentials = grpc.dynamic_ssl_server_credentials(
        configuration(),
        changed_certificate,  # type: ignore[arg-type]  # None is allowed: unchanged
        # gRPC has no optional mode: client certificates are either not requested, or required.
        require_client_authentication=bool(certificates.client_authorities),
    )
    return server.add_secure_port(address, credentials)


HEALTH_SERVICE_NAME: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class HealthServicer(aio.HealthServicer):  # type: ignore[misc]  # untyped
    """Adds `List` to grpcio-health-checking's servicer.

    The library does not implement it, so each call, also an unauthenticated one, would log a traceback.
    """

    def __init__(self, names: Iterable[str], reader: MessageReader) -> None:
        super().__init__()
        self._names = ("", *names)
        self._reader = reader

    async def report(self, *, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse
        for name in self._names:
            await self.set(name, status.SERVING if serving else status.NOT_SERVING)

    async def List(self, request: object, context: Any) -> Any:  # noqa: N802  # the RPC's name
        statuses = {
            name: await self.Check(health_pb2.HealthCheckRequest(service=name), context) for name in self._names
        }
        return health_pb2.HealthListResponse(statuses=statuses)

    def handler(self) -> grpc.GenericRpcHandler:

        def unary(request_type: type[Message], respond: Any) -> grpc.RpcMethodHandler[bytes, bytes]:
            async def call(_: object, context: Any) -> bytes:
                request = await _read(self._reader, request_type, context)
                return bytes((await respond(request, context)).SerializeToString())

            return grpc.stream_unary_rpc_method_handler(call)

        async def watch(_: object, context: Any) -> None:
            with self._reader.open_call(context):
                await self.Watch(await _read(self._reader, health_pb2.HealthCheckRequest, context), context)

        serialize = health_pb2.HealthCheckResponse.SerializeToString
        handlers = {"Check": unary(health_pb2.HealthCheckRequest, self.Check)}
        if hasattr(health_pb2, "HealthListRequest"):  # grpcio-health-checking 1.82 and later, on protobuf 7
            handlers["List"] = unary(health_pb2.HealthListRequest, self.List)
        handlers["Watch"] = grpc.stream_stream_rpc_method_handler(watch, response_serializer=serialize)
        return grpc.method_handlers_generic_handler(HEALTH_SERVICE_NAME, handlers)


async def _read(reader: MessageReader, message_type: type[Message], context: Any) -> Any:
    """Reads a request of a library's service. gRPC would log a traceback for an error, and answer UNKNOWN."""
    try:
        return parse_message(message_type, await reader.read(context, ANONYMOUS.principal))
    except A2AError as error:
        await _abort(context, error)


async def _abort(context: Any, error: A2AError) -> Never:
    code = grpc.StatusCode.UNAVAILABLE if isinstance(error, Unavailable) else grpc.StatusCode.INVALID_ARGUMENT
    await context.abort(code, error.message)
    raise error  # not reached: `abort` raises


REFLECTION_SERVICES: Final = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)


def add_reflection(server: grpc.aio.Server, names: Iterable[str], reader: MessageReader) -> None:
    """Adds reflection of the services `names`, and of itself, as v1 and v1alpha.

    The library has v1alpha only. The messages of both are equal on the wire, so one servicer serves both.
    """
    # Dragoman's packages have their own descriptor pool, and reflection needs one pool with all services.
    for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
        _pool.adopt(file)  # type: ignore[no-untyped-call]  # generated
    _adopt_reflection_v1()
    servicer = reflection.aio.ReflectionServicer((*names, *REFLECTION_SERVICES), pool=_pool.POOL)

    async def respond(_: object, context: Any) -> AsyncIterator[bytes]:
        async def parsed() -> AsyncIterator[Any]:
            try:
                while (data := await reader.next(context, ANONYMOUS.principal)) is not None:
                    yield parse_message(reflection_pb2.ServerReflectionRequest, data)
            except A2AError as error:
                await _abort(context, error)

        with reader.open_call(context):
            async for response in servicer.ServerReflectionInfo(parsed(), context):
                yield response.SerializeToString()

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(respond)
    for name in REFLECTION_SERVICES:
        methods = {"ServerReflectionInfo": handler}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))


@cache
def _adopt_reflection_v1() -> None:
    """Adds the file of grpc.reflection.v1 to the pool of Dragoman's packages: that of v1alpha with other names."""
    text = MessageToJson(FileDescriptorProto.FromString(reflection_pb2.DESCRIPTOR.serialized_pb))
    file = Parse(text.replace("grpc.reflection.v1alpha", "grpc.reflection.v1"), FileDescriptorProto())
    file.name = "grpc/reflection/v1/reflection.proto"
    _pool.add(file.SerializeToString())  # type: ignore[no-untyped-call]  # generated
