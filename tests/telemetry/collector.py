"""An OTLP collector for tests, over HTTP and gRPC, that parses with OpenTelemetry's protos."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
from aiohttp import web
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.trace.v1 import trace_pb2 as tr

from dragoman.telemetry.otlp import EXPORT_METHOD


@dataclass
class Collector:
    """The requests it received."""

    spans: list[tuple[str, tr.Span]] = field(default_factory=list)
    """All spans, each with the `service.name` of its process."""
    headers: list[dict[str, str]] = field(default_factory=list)
    status: int = 200
    requested: asyncio.Event = field(default_factory=asyncio.Event)
    took: asyncio.Event = field(default_factory=asyncio.Event)
    http: str = ""
    grpc: str = ""

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        self.took.set()
        self.headers.append(headers)
        for group in service.ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {one.key: one.value.string_value for one in group.resource.attributes}
            for scoped in group.scope_spans:
                assert scoped.scope.name == "dragoman"
                self.spans += [(about["service.name"], span) for span in scoped.spans]

    def named(self, name: str) -> list[tr.Span]:
        return [span for _, span in self.spans if span.name == name]


def of(span: tr.Span) -> dict[str, str | int]:
    """The attributes of a span."""
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    found = Collector()

    async def over_http(request: web.BaseRequest) -> web.Response:
        assert request.path == "/v1/traces"
        assert request.content_type == "application/x-protobuf"
        found.requested.set()
        if found.status == 200:
            found.take(await request.read(), dict(request.headers))
        return web.Response(status=found.status)

    async def over_grpc(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        found.take(body, {str(key): str(value) for key, value in context.invocation_metadata() or ()})
        return service.ExportTraceServiceResponse().SerializeToString()

    runner = web.ServerRunner(web.Server(over_http))
    await runner.setup()
    server = grpc.aio.server()
    package, _, method = EXPORT_METHOD.removeprefix("/").partition("/")
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {method: grpc.unary_unary_rpc_method_handler(over_grpc)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(package, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found.http = f"http://127.0.0.1:{runner.addresses[0][1]}"
        found.grpc = f"grpc://127.0.0.1:{port}"
        yield found
    finally:
        await server.stop(None)
        await runner.cleanup()
