"""Operator calls over HTTP: those with a `google.api.http` rule, under `/operations`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Final

from aiohttp import web
from google.protobuf.message import Message

from dragoman.bindings.admin.actions import AdminOperation, OperatorCall
from dragoman.bindings.admin.handlers import authorize_operator
from dragoman.bindings.admin.table import OPS_SERVICE, AdminTable, request_type_of
from dragoman.bindings.http import cors
from dragoman.bindings.http.request import SSE_FRAMING, read_json, respond_stream
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.pipeline import LOCAL_ONLY, is_local
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.errors import Unauthenticated
from dragoman.wire import errors
from dragoman.wire.dialects import Dialect
from dragoman.wire.http import httprule, sse
from dragoman.wire.http.httprule import Rule
from dragoman.wire.http.transcode import Transcoder
from dragoman.wire.json import protojson

OPS_PROTOJSON: Final = protojson.JsonDialect("dragoman.ops.v1")
STRICT_PROTOJSON: Final = protojson.JsonDialect("dragoman.ops.v1, strict", rejects_unknown=True)
"""For requests that change something: without its misspelled filter, EraseTasks would erase more tasks."""

HttpEndpoint = Callable[[web.BaseRequest, Mapping[str, str]], Awaitable[web.StreamResponse] | web.StreamResponse]


async def authorize_http(
    request: web.BaseRequest, options: ServerOptions, operation: AdminOperation | None = None
) -> OperatorCall:
    """Authenticates the caller of an operation over HTTP. Raises Unauthenticated, PermissionDenied.

    `operation`: None for pages that need the operator's grant.
    """
    if options.authenticator is None and (
        cors.is_cross_site(request) or not is_local(request.headers.items(), options, request)
    ):
        raise Unauthenticated(LOCAL_ONLY.format(what="operations are allowed"))
    return await authorize_operator(request.headers.items(), options, request, request.remote or "", operation)


def http_endpoints(
    table: AdminTable | None, options: ServerOptions, streams: StreamRegistry
) -> Iterator[tuple[Rule, HttpEndpoint]]:
    """Yields each HTTP rule with its endpoint; none without a table."""
    if table is None:
        return
    for method, rule in httprule.rules(OPS_SERVICE):
        dialect = OPS_PROTOJSON if table.rows[method.name].read_only else STRICT_PROTOJSON
        transcoder = Transcoder(request_type_of(method.name), dialect, body=rule.body, refuses_misspelled=True)
        if method.server_streaming:
            yield rule, _http_stream(method.name, transcoder, table, options, streams)
        else:
            yield rule, _http_endpoint(method.name, transcoder, table, options)


def _http_endpoint(
    name: str, transcoder: Transcoder[Message], table: AdminTable, options: ServerOptions
) -> HttpEndpoint:
    async def endpoint(request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        operator = await authorize_http(request, options, table.rows[name])
        body = await read_json(request, options.message_bytes)
        message = transcoder.request(variables, request.query.items(), body)
        response = await table.run(name, operator, message)
        data = protojson.compile(type(response), OPS_PROTOJSON).encode(response)
        return web.Response(body=data, content_type="application/json", headers={"Cache-Control": "no-store"})

    return endpoint


def _http_stream(
    name: str, transcoder: Transcoder[Message], table: AdminTable, options: ServerOptions, streams: StreamRegistry
) -> HttpEndpoint:
    """Serves a streaming operation as server-sent events."""

    def encode(response: Message) -> bytes:
        return sse.frame(protojson.compile(type(response), OPS_PROTOJSON).encode(response))

    def encode_error(error: Exception) -> bytes:
        return errors.rest_error(error, Dialect.V1, table=options.error_table).body

    async def endpoint(request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        if request.method == "HEAD":  # the headers of a stream are known only when it starts
            raise errors.MethodNotAllowed("HEAD", ("GET",))
        with streams.open() as stream:
            operator = await authorize_http(request, options, table.rows[name])
            stream.identity = operator.identity
            message = transcoder.request(variables, request.query.items(), b"")
            responses = table.stream(name, operator, message)
            return await respond_stream(
                request, _one_by_one(responses), framing=SSE_FRAMING, encode_event=encode, encode_error=encode_error,
                stream_registry=streams, keepalive=options.keepalive,
            )  # fmt: skip

    return endpoint


async def _one_by_one(responses: AsyncGenerator[Message, None]) -> AsyncGenerator[tuple[Message], None]:
    async with aclosing(responses):
        async for response in responses:
            yield (response,)
