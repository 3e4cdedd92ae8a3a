"""JSON-RPC over HTTP: POST to the address of an agent, streams as server-sent events (A2A 1.0 §9, 0.3 §7, 0.1 §7).

Every JSON-RPC error is an HTTP 200, including parse errors: clients of every version raise on 400 and above before
they read the body. Only authentication and authorization failures have a status of their own, 401 and 403, and so does
a body that is too large to be read, 413.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import orjson
from aiohttp import web

from dragoman.bindings import a2a_headers, authentication, cards, method_table
from dragoman.bindings.cards import Cards, Origin
from dragoman.bindings.http import bodies
from dragoman.bindings.http.cors import request_id
from dragoman.bindings.http.rest import accepts_only_json, idempotency_key, named_versions, retry_after_header
from dragoman.bindings.method_table import SEND_MESSAGE, STREAM_MESSAGE, JsonRpcRow
from dragoman.bindings.options import HttpOptions
from dragoman.bindings.request_log import JSONRPC_LABEL, RequestLogEntry
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.access.identity import Caller, Identity
from dragoman.core.cards.agent_spec import IDEMPOTENCY_EXTENSION, RESUME_EXTENSION, Extension
from dragoman.core.errors import (
    A2AError,
    MethodNotFound,
    ParseError,
    PayloadTooLarge,
    PermissionDenied,
    Unauthenticated,
)
from dragoman.core.task.log import Event
from dragoman.core.task.projection import cached_encoding
from dragoman.core.trace import TRACE_HEADER
from dragoman.runtime.feeds import EventStream
from dragoman.runtime.operations.call import Call
from dragoman.runtime.operations.service import TaskService
from dragoman.supervision import log_fault
from dragoman.wire import errors, jsonrpc
from dragoman.wire.body_scan import AmbiguousJson
from dragoman.wire.dialects import Dialect, json_mixed, parse_recorded, parts
from dragoman.wire.http import sse

_log: Final = logging.getLogger("dragoman.bindings.http.jsonrpc")

JSONRPC_CONTENT_TYPE: Final = "application/json"

_DIALECT_BY_VERSION: Final = {"0.3": Dialect.V03, "0.2": Dialect.V03, "0.1": Dialect.V01}

_FLAT_PUSH_DIALECTS: Final = (Dialect.V1, Dialect.FASTA2A, Dialect.RUST)
"""Dialects whose push configuration requests have the task as `taskId`, without a wrapper."""


async def request_metadata(
    request: web.BaseRequest, variables: Mapping[str, str], agent_cards: Cards, options: HttpOptions
) -> RequestMetadata:
    """Returns what the HTTP request says about a call. Raises Unauthenticated for invalid credentials."""
    return RequestMetadata(
        tenant=variables.get("tenant", ""),
        identity=await authentication.authenticate(request.headers.items(), options, request),
        versions=tuple(named_versions(request)),
        extensions=a2a_headers.requested_extensions(request.headers),
        cursor=request.headers.get("Last-Event-ID", ""),
        idempotency_key=idempotency_key(request),
        origin=lambda: cards.caller_origin(request, agent_cards),
        address_dialect=Dialect.RUST if request.rel_url.raw_path.startswith("/tenants/") else None,
    )


class JsonRpcEndpoint:
    """Serves JSON-RPC calls over HTTP, for all agents."""

    def __init__(
        self, dispatcher: JsonRpcDispatcher, cards: Cards, options: HttpOptions, stream_registry: StreamRegistry
    ) -> None:
        self._dispatcher = dispatcher
        self._cards = cards
        self._options = options
        self._stream_registry = stream_registry

    async def __call__(self, request: web.BaseRequest, variables: Mapping[str, str]) -> web.StreamResponse:
        """Serves one call. Errors become responses; only a disconnected client's CancelledError is raised."""
        log_entry = RequestLogEntry(
            self._options.request_metrics, JSONRPC_LABEL, "JSON-RPC", "", request_id(request), is_known_method=False
        )
        body: object = None
        if log_entry.is_traced:
            log_entry.start_trace(request.headers.get(TRACE_HEADER, ""))
        try:
            metadata = await request_metadata(request, variables, self._cards, self._options)
            self._dispatcher.check_rate(metadata)
            if not request.can_read_body:
                raise ParseError("Invalid JSON payload: the body is empty")
            body = await bodies.read_json(
                request, self._options.message_bytes, lossy_numbers=self._options.lossy_numbers
            )
            call = jsonrpc.parse_request(body)
            log_entry.method = call.method
            response = await self._dispatcher.dispatch(call, metadata, log_entry)
            headers = a2a_headers.activation_headers(
                metadata.extensions, self._cards, log_entry.agent, response.row.dialect
            )
            if response.events is not None:
                return await self._stream(request, call.id, response, metadata.identity, log_entry, headers)
        except Exception as error:
            call = jsonrpc.partial_request(error.value if isinstance(error, AmbiguousJson) else body)
            return self._error_response(request, error, call, log_entry)
        except asyncio.CancelledError:
            end_reason = self._stream_registry.take_end_reason()
            if end_reason is None:
                log_entry.finish("gone")
                raise
            return self._error_response(request, end_reason, jsonrpc.partial_request(body), log_entry)
        log_entry.finish("OK")
        return web.Response(
            body=jsonrpc.encode_result(call.id, response.result),
            headers={"Content-Type": JSONRPC_CONTENT_TYPE, **headers},
        )

    def reject(self, request: web.BaseRequest, error: Exception) -> web.Response:
        """Returns the error response to a call whose body was not read."""
        log_entry = RequestLogEntry(
            self._options.request_metrics, JSONRPC_LABEL, "JSON-RPC", "", request_id(request), is_known_method=False
        )
        return self._error_response(request, error, jsonrpc.JsonRpcRequest(None, "", None), log_entry)

    async def _stream(
        self,
        request: web.BaseRequest,
        id: str | int | None,
        response: JsonRpcResponse,
        identity: Identity,
        log_entry: RequestLogEntry,
        headers: Mapping[str, str],
    ) -> web.StreamResponse:
        prefix = b"data: " + jsonrpc.result_prefix(id)
        encode_results, events = response.encode_results, response.events
        assert encode_results is not None
        assert events is not None

        def encode_event(event: Event) -> bytes:
            # As sse.frame, but without its search for line breaks, which neither our JSON nor a cursor contains. Each
            # subscriber has its own JSON-RPC id, so each event is framed once per subscriber: 0.5 µs instead of 1.8.
            id_line = b"id: %b\n" % event.cursor.encode() if event.cursor else b""
            return b"".join([b"%b%b%b}\n\n" % (id_line, prefix, result) for result in encode_results(event)])

        def encode_error(error: Exception) -> bytes:
            return encode_failure(error, id, response.row.dialect, log_entry)

        with self._stream_registry.open(identity):
            stream = await bodies.respond_stream(
                request,
                events,
                framing=bodies.JSONRPC_SSE_FRAMING,
                encode_event=encode_event,
                encode_error=encode_error,
                stream_registry=self._stream_registry,
                keepalive=self._options.keepalive,
                headers=headers,
            )
        log_entry.finish("OK")
        return stream

    def _error_response(
        self, request: web.BaseRequest, error: Exception, call: jsonrpc.JsonRpcRequest, log_entry: RequestLogEntry
    ) -> web.Response:
        self._options.auth_failures.record(error, peer=request.remote or "", method=log_entry.method)
        dialect = self._dispatcher.error_dialect(call.method, call.params)
        body = encode_failure(error, call.id, dialect, log_entry)
        if isinstance(error, Unauthenticated | PermissionDenied):
            status = 401 if isinstance(error, Unauthenticated) else 403
            headers = {"Content-Type": JSONRPC_CONTENT_TYPE, **authentication.challenge_headers(error)}
            return web.Response(status=status, body=body, headers=headers)
        if isinstance(error, PayloadTooLarge):  # as over REST: the call was not read
            return web.Response(status=413, body=body, headers={"Content-Type": JSONRPC_CONTENT_TYPE})
        headers = retry_after_header(error)
        if self._dispatcher.errors_in_stream(call.method) and not accepts_only_json(request):
            return web.Response(
                body=sse.frame(body), headers={"Content-Type": bodies.JSONRPC_SSE_FRAMING.media_type, **headers}
            )
        return web.Response(body=body, headers={"Content-Type": JSONRPC_CONTENT_TYPE, **headers})


@dataclass(slots=True, kw_only=True)
class RequestMetadata:
    """What the transport knows about a call: the caller, version, extensions, cursor and keys."""

    tenant: str
    """The tenant in the path, which takes precedence over the one in the params."""
    identity: Identity
    versions: Sequence[str] = ()
    """Every `A2A-Version` of the request."""
    extensions: Sequence[str] = ()
    cursor: str = ""
    """The cursor in the headers; a cursor in the params takes precedence."""
    idempotency_key: str = ""
    """The idempotency key in the headers; a key in the params takes precedence."""
    origin: Callable[[], Origin | None] = lambda: None
    """Returns the address that the caller used. Computed on demand, because only card requests need it."""
    address_dialect: Dialect | None = None
    """The dialect of the path, if only one dialect uses such paths."""


@dataclass(frozen=True, slots=True)
class JsonRpcResponse:
    """The response to a call: one result as JSON, or an event stream with its encoder."""

    row: JsonRpcRow
    result: bytes = b"null"
    events: EventStream | None = None
    encode_results: Callable[[Event], Iterable[bytes]] | None = None


class JsonRpcDispatcher:
    """Calls the operation of a JSON-RPC method, in the dialect of the call."""

    def __init__(self, service: TaskService, cards: Cards) -> None:
        self._service = service
        self._cards = cards
        self._rows = method_table.jsonrpc_rows()

    def check_rate(self, metadata: RequestMetadata) -> None:
        """Counts a call, before its body is read. Raises RateLimited over the limit."""
        self._service.admission.check_rate(metadata.identity)

    def hold_connection(self, metadata: RequestMetadata) -> AbstractContextManager[None]:
        """Counts a connection while it is open. Raises RateLimited over the limit."""
        return self._service.admission.hold_stream(metadata.identity)

    async def dispatch(
        self, request: jsonrpc.JsonRpcRequest, metadata: RequestMetadata, log_entry: RequestLogEntry
    ) -> JsonRpcResponse:
        """Executes one call. Raises A2AError; `error_dialect` returns the dialect to encode it in."""
        version = a2a_headers.check_version(metadata.versions)
        rows = self._rows.get(request.method)
        if rows is None:
            raise MethodNotFound(f'Method not found: "{request.method[:100]}"')
        row = await self._choose_row(rows, request, metadata, version)
        log_entry.dialect, log_entry.is_known_method = row.dialect.value, True
        if row.op.push:
            self._service.check_push()
        params = {} if request.params is None else request.params
        rpc_request = row.read(params)
        caller = authentication.authorize(
            self._service, metadata.tenant or getattr(rpc_request, "tenant", ""), metadata.identity
        )
        log_entry.set_caller(caller, rpc_request)
        if row.op.extended_card:
            card = self._cards.extended_document(caller, metadata.origin(), row.dialect)
            return JsonRpcResponse(row, card)
        assert row.op.operation is not None
        operation = row.op.operation(self._service)
        resume = _extension_params(params, RESUME_EXTENSION)
        idempotency = _extension_params(params, IDEMPOTENCY_EXTENSION)
        call = Call(
            caller,
            cursor=str(resume.get("after", "")) or metadata.cursor,
            idempotency_key=str(idempotency.get("key", "")) or metadata.idempotency_key,
            leaves_blocking_open=row.leaves_blocking_open(params),
            stops_with_turn=row.turn,
            dialect=row.dialect.value,
            names_tasks=row.names_tasks,
            extensions=tuple(metadata.extensions),
        )
        if not row.op.streaming:
            response = await operation(call, rpc_request)
            return JsonRpcResponse(
                row,
                cached_encoding(
                    response, row.write, lambda: orjson.dumps(row.write(row.op.response.FromString(response)))
                ),
            )
        encode, adapt_event = row.stream_results(), a2a_headers.event_adapter(call.extensions)
        turn = row.turn
        return JsonRpcResponse(
            row,
            events=operation(call, rpc_request),
            encode_results=lambda event: encode(adapt_event(event), turn and event.ends),
        )

    def error_dialect(self, method: str, params: object = None) -> Dialect:
        """Returns the dialect for an error that occurs before the row of the call is known."""
        rows = self._rows.get(method)
        if rows is None:
            return Dialect.V03 if "/" in method else Dialect.V1
        return _dialect_by_shape(rows, params) or next(iter(rows))

    def errors_in_stream(self, method: str) -> bool:
        """Returns whether clients of this method read errors only from a stream."""
        rows = self._rows.get(method)
        return rows is not None and next(iter(rows.values())).errors_in_stream

    async def _choose_row(
        self, rows: dict[Dialect, JsonRpcRow], request: jsonrpc.JsonRpcRequest, metadata: RequestMetadata, version: str
    ) -> JsonRpcRow:
        rows = _rows_by_shape(rows, request.params)
        first = next(iter(rows.values()))
        if len(rows) == 1:
            return first
        shape = _dialect_by_shape(rows, request.params)
        if shape is not None:
            return rows[shape]
        if metadata.address_dialect is not None and metadata.address_dialect in rows:
            return rows[metadata.address_dialect]
        # Exactly "1.0": a2a-rust, whose calls look the same, sends the version with its patch number.
        dialect = Dialect.V1 if version == "1.0" else _DIALECT_BY_VERSION.get(a2a_headers.minor_version(version))
        if dialect is not None and dialect in rows:
            return rows[dialect]
        created_dialect = await self._task_dialect(request.params, metadata)
        if created_dialect:
            return method_table.SHARED_TASK_ROWS.get((request.method, created_dialect)) or rows.get(
                created_dialect, first
            )
        # A 0.x method with a version 1: only a2a-rust sends both.
        return rows[Dialect.RUST] if Dialect.RUST in rows and version.startswith("1") else first

    async def _task_dialect(self, params: object, metadata: RequestMetadata) -> Dialect | None:
        if not isinstance(params, dict):
            return None
        task_id = params.get("taskId") or params.get("id")
        tenant = metadata.tenant or params.get("tenant") or ""
        if not isinstance(task_id, str) or not isinstance(tenant, str):
            return None
        try:
            caller: Caller = self._service.authorize(tenant, metadata.identity)
        except A2AError:
            return None  # dispatch raises it again
        dialect = await self._service.dialect_of(caller, task_id)
        return parse_recorded(dialect)[0] if dialect else None


def _extension_params(params: object, extension: Extension) -> dict[str, Any]:
    """Returns an extension's parameters in the call's metadata, empty for none: WebSocket frames have no headers."""
    metadata = params.get("metadata") if isinstance(params, dict) else None
    values = metadata.get(extension.uri) if isinstance(metadata, dict) else None
    return values if isinstance(values, dict) else {}


def _dialect_by_shape(rows: dict[Dialect, JsonRpcRow], params: object) -> Dialect | None:
    """Returns the dialect of a call with a message, by the shape of the message's parts; None without a message."""
    if next(iter(rows.values())).op not in (SEND_MESSAGE, STREAM_MESSAGE) or not isinstance(params, dict):
        return None
    message = params.get("message")
    if not isinstance(message, dict):
        return None
    message_parts = message.get("parts")
    part: Any = next(iter(message_parts), None) if isinstance(message_parts, list) else None
    if Dialect.RUST in rows and json_mixed.is_rust(params):
        return Dialect.RUST
    if Dialect.FASTA2A in rows and "kind" not in message and not parts.is_tagged(part):
        return Dialect.FASTA2A
    return next(iter(rows))


def _rows_by_shape(rows: dict[Dialect, JsonRpcRow], params: object) -> dict[Dialect, JsonRpcRow]:
    """Returns the rows that fit the shape of a call.

    Only push configuration methods have two: the wrapper of 0.x with the task as `id`, and the flat form of 1.0 with
    the task as `taskId` beside the `url`.
    """
    if not next(iter(rows.values())).op.push or not isinstance(params, dict):
        return rows
    is_wrapped = bool(params.keys() & {"pushNotificationConfig", "push_notification_config"})
    is_flat = not is_wrapped and bool(params.keys() & {"taskId", "task_id", "url"})
    return {dialect: row for dialect, row in rows.items() if (dialect in _FLAT_PUSH_DIALECTS) == is_flat} or rows


def encode_failure(error: BaseException, id: str | int | None, dialect: Dialect, log_entry: RequestLogEntry) -> bytes:
    """Returns the response to a failed call. Logs errors other than A2AError, and hides them from the caller."""
    if not isinstance(error, A2AError):
        log_fault(_log, f"{log_entry.method} failed", error)
    error_object = errors.jsonrpc_error(error, dialect)
    log_entry.finish(error_object["code"])
    return jsonrpc.encode_error(id, error_object)
