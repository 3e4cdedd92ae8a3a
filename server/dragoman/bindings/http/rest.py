"""REST: serves every `google.api.http` rule of both packages, from the method table.

The matching route decides the dialect: `lf.a2a.v1` rules are 1.0; `a2a.v1` rules are 0.3 under `/v1`, and Google's
under a resource path, with its system parameters (google_parameters.py). For the resource paths of both packages,
`A2A-Version: 1.0` as header or query parameter selects 1.0.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

from dragoman.bindings import a2a_headers, authentication, cards, event_encoders, method_table
from dragoman.bindings.cards import Cards
from dragoman.bindings.event_encoders import StreamEncoders
from dragoman.bindings.http import bodies, google_parameters
from dragoman.bindings.http.cors import request_id
from dragoman.bindings.http.google_parameters import ResponseFormat
from dragoman.bindings.method_table import GET_TASK, SEND_MESSAGE, STREAM_MESSAGE, RpcRow, ServiceOperation
from dragoman.bindings.options import HttpOptions
from dragoman.bindings.request_log import REST_LABEL, RequestLogEntry, request_task_id
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.access.identity import Caller
from dragoman.core.errors import A2AError
from dragoman.core.task.log import Event
from dragoman.core.task.projection import CachedResponse, cached_encoding
from dragoman.core.trace import TRACE_HEADER
from dragoman.runtime.operations.call import Call
from dragoman.runtime.operations.service import TaskService
from dragoman.supervision import log_fault
from dragoman.wire import errors
from dragoman.wire.dialects import Dialect, json_mixed, json_proto, recorded_dialect
from dragoman.wire.errors import MethodNotAllowed
from dragoman.wire.http import httprule
from dragoman.wire.http.httprule import Rule
from dragoman.wire.http.routes import Candidate
from dragoman.wire.http.transcode import WHOLE_REQUEST, Transcoder
from dragoman.wire.json import protojson

_log: Final = logging.getLogger("dragoman.bindings.http.rest")

JSON_CONTENT_TYPE: Final = "application/json"
A2A_JSON_CONTENT_TYPE: Final = "application/a2a+json"


def named_versions(request: web.BaseRequest) -> Iterator[str]:
    """Yields every `A2A-Version` of a request, from headers and query."""
    yield from request.headers.getall(a2a_headers.VERSION_HEADER, ())
    if request.query_string:
        yield from request.query.getall(a2a_headers.VERSION_HEADER, ())


def idempotency_key(request: web.BaseRequest) -> str:
    """Returns the `Idempotency-Key` of a request, without the quotes of the IETF draft, which most clients omit."""
    return request.headers.get("Idempotency-Key", "").strip().removeprefix('"').removesuffix('"')


def retry_after_header(error: Exception) -> dict[str, str]:
    """Returns the `Retry-After` header of an error, in whole seconds (RFC 9110 §10.2.3); empty if it has none."""
    seconds = errors.retry_after(error)
    return {"Retry-After": str(math.ceil(seconds))} if seconds else {}


def error_response(request: web.BaseRequest, error: Exception, dialect: Dialect, options: HttpOptions) -> web.Response:
    """Returns the response to a failed request. Logs errors other than A2AError, and hides them from the caller."""
    if not isinstance(error, A2AError):
        log_fault(_log, f"{request.method} {request.rel_url.raw_path} failed", error)
    options.auth_failures.record(
        error, peer=request.remote or "", method=f"{request.method} {request.rel_url.raw_path}"
    )
    with_list = dialect is Dialect.GOOGLE and google_parameters.wants_error_list(request)
    encoded = errors.rest_error(error, dialect, table=options.error_table, with_list=with_list)
    headers = {
        "Content-Type": media_type(request, dialect),
        **authentication.challenge_headers(error),
        **retry_after_header(error),
    }
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(error.allowed)
    return web.Response(status=encoded.status, body=encoded.body, headers=headers)


def media_type(request: web.BaseRequest, dialect: Dialect) -> str:
    """Returns the media type of a unary response or an error.

    Some clients do not parse application/a2a+json as JSON, so only those that accept it get it.
    """
    if dialect is Dialect.V1 and A2A_JSON_CONTENT_TYPE in request.headers.get("Accept", ""):
        return A2A_JSON_CONTENT_TYPE
    return JSON_CONTENT_TYPE


def accepts_only_json(request: web.BaseRequest) -> bool:
    """Returns whether `Accept` names JSON and no event stream."""
    accept = request.headers.get("Accept", "")
    return JSON_CONTENT_TYPE in accept and "text/event-stream" not in accept


class RestRoute:
    """Serves one HTTP rule of one row of the method table."""

    def __init__(
        self,
        row: RpcRow,
        rule: Rule,
        transcoder: Transcoder[Any],
        service: TaskService,
        agent_cards: Cards,
        options: HttpOptions,
        stream_registry: StreamRegistry,
    ) -> None:
        self.row = row
        self._is_resource = _is_resource(rule)
        self.dialect = rule_dialect(row, rule)
        self._name = f"{rule.http_method} {rule.template}"
        self._transcoder = transcoder
        self._service = service
        self._cards = agent_cards
        self._options = options
        self._stream_registry = stream_registry
        self._operation: ServiceOperation | None = row.op.operation(service) if row.op.operation else None
        self._codec = protojson.compile(row.response, row.json)

    async def __call__(
        self, request: web.BaseRequest, variables: Mapping[str, str], *, rust: bool = False
    ) -> web.StreamResponse:
        """Serves one request; `rust`: its path is a2a-rust's.

        Errors become responses; only a disconnected client's CancelledError is raised.
        """
        log_entry = RequestLogEntry(
            self._options.request_metrics, REST_LABEL, self._name, self.dialect.value, request_id(request)
        )
        try:
            response = await self._respond(request, variables, log_entry, rust)
        except Exception as error:
            response = error_response(request, error, self.dialect, self._options)
        except asyncio.CancelledError:
            end_reason = self._stream_registry.take_end_reason()
            if end_reason is None:
                log_entry.finish("gone")
                raise
            response = error_response(request, end_reason, self.dialect, self._options)
        log_entry.finish(response.status)
        return response

    async def _respond(
        self, request: web.BaseRequest, variables: Mapping[str, str], log_entry: RequestLogEntry, rust: bool
    ) -> web.StreamResponse:
        row, options = self.row, self._options
        if log_entry.is_traced:
            log_entry.start_trace(request.headers.get(TRACE_HEADER, ""))
        public = row.op.shows_card and not options.private_pages
        headers = google_parameters.credential_headers(request) if self._is_resource else request.headers.items()
        identity = await authentication.authenticate(headers, options, request, public=public)
        version = a2a_headers.check_version(named_versions(request))
        self._service.admission.check_rate(identity)
        if row.op.push:
            self._service.check_push()
        body = await bodies.read_json(request, options.message_bytes, lossy_numbers=options.lossy_numbers)
        query: Iterable[tuple[str, str]] = request.query.items() if request.query_string else ()
        response_format = ResponseFormat()
        if self.dialect is Dialect.GOOGLE and query:
            response_format, query = google_parameters.read(query, row.method.output_type, streaming=row.streaming)
        dialect_request = self._transcoder.request(variables, query, body)
        if self.dialect is Dialect.GOOGLE and row.read_google is not None:
            row.read_google(dialect_request)
        agent_name = row.agent_name(dialect_request)
        rpc_request = row.v1_request(dialect_request)
        if self.dialect is Dialect.GOOGLE and row.op.max_page_size and rpc_request.page_size > row.op.max_page_size:
            rpc_request.page_size = row.op.max_page_size
        caller = authentication.authorize(self._service, rpc_request.tenant, identity, public=public)
        log_entry.set_caller(caller, rpc_request)
        if self._operation is None:
            return self._card(request, caller, response_format)
        base64_files = await row.read_files(rpc_request, options.v03_files, partial(self._service.dialect_of, caller))
        extensions = a2a_headers.requested_extensions(request.headers)
        reads_task = row.op is GET_TASK  # its response has the dialect of the task
        rust = rust or (not reads_task and await self._is_rust(version, body, caller, rpc_request))
        call = Call(
            caller,
            leaves_blocking_open=row.leaves_blocking_open(dialect_request),
            shows_finished=row.shows_finished,
            dialect=recorded_dialect(Dialect.RUST if rust else self.dialect, base64_files=base64_files),
            extensions=extensions,
            cursor=request.headers.get("Last-Event-ID", ""),
            idempotency_key=idempotency_key(request),
        )
        response_headers = a2a_headers.activation_headers(extensions, self._cards, caller.agent, self.dialect)
        if row.streaming:
            encoders = event_encoders.RUST_STREAM_ENCODERS if rust else row.stream_encoders(base64_files=base64_files)
            return await self._stream(request, call, rpc_request, encoders, response_headers, response_format)
        response = await self._operation(call, rpc_request)
        rust = rust or (reads_task and await self._is_rust(version, body, caller, rpc_request, response))
        codec = protojson.compile(row.response, json_mixed.JSON_RUST) if rust else self._codec
        response_headers = {"Content-Type": media_type(request, self.dialect), **response_headers}
        message = partial(row.response_message, response, agent_name, base64_files=base64_files)
        if response_format.is_default:
            encoded = cached_encoding(response, (codec, base64_files), lambda: codec.encode(message()))
        else:
            encoded = response_format.encode(message())
        return web.Response(body=encoded, headers=response_headers)

    def _card(self, request: web.BaseRequest, caller: Caller, response_format: ResponseFormat) -> web.Response:
        origin = cards.caller_origin(request, self._cards)
        if not self.row.op.extended_card:
            card, private = self._cards.v03_rest_document(caller, origin), caller.identity.is_authenticated
            if not response_format.is_default:
                body = response_format.encode_value(orjson.loads(card.body))
                return web.Response(body=body, headers={"Content-Type": JSON_CONTENT_TYPE, "Cache-Control": "no-store"})
            return cards.card_response(request, card, vary="Authorization, X-API-Key", private=private)
        body = self._cards.extended_document(caller, origin, self.dialect)
        return web.Response(
            body=body, headers={"Content-Type": JSON_CONTENT_TYPE, "Cache-Control": "private, no-store"}
        )

    async def _is_rust(
        self, version: str, body: object, caller: Caller, rpc_request: Any, response: bytes = b""
    ) -> bool:
        """Returns whether the caller is a2a-rust 0.3: by the shape of its message, or by the dialect of the task.

        A version of exactly 1.0 is another client of the same task: a2a-rust sends a patch number or no version.
        """
        if self.dialect is not Dialect.V1:
            return False
        if self.row.op in (SEND_MESSAGE, STREAM_MESSAGE):
            return bool(body) and json_mixed.is_rust(body)
        if version == "1.0":
            return False
        if isinstance(response, CachedResponse):
            return response.dialect == Dialect.RUST.value
        task_id = request_task_id(rpc_request)
        return bool(task_id) and await self._service.dialect_of(caller, task_id) == Dialect.RUST.value

    async def _stream(
        self,
        request: web.BaseRequest,
        call: Call,
        rpc_request: Any,
        encoders: StreamEncoders,
        headers: Mapping[str, str],
        response_format: ResponseFormat,
    ) -> web.StreamResponse:
        assert self._operation is not None
        turn = self.row.turn
        framing = (
            bodies.JSON_ARRAY_FRAMING
            if self.dialect is Dialect.GOOGLE and _wants_array(request, response_format)
            else bodies.SSE_FRAMING
        )
        as_array = framing is bodies.JSON_ARRAY_FRAMING
        encode = encoders.json if as_array else encoders.sse
        if not response_format.is_default:
            encode = response_format.stream_encoder(as_array=as_array)
        adapt_event = a2a_headers.event_adapter(call.extensions)

        def encode_event(event: Event) -> bytes:
            return encode(adapt_event(event), turn and event.ends)

        def encode_error(error: Exception) -> bytes:
            if not isinstance(error, A2AError):
                log_fault(_log, f"the stream of {self._name} failed", error)
            with_list = self.dialect is Dialect.GOOGLE and google_parameters.wants_error_list(request)
            return errors.rest_error(error, self.dialect, table=self._options.error_table, with_list=with_list).body

        with self._stream_registry.open(call.caller.identity):
            return await bodies.respond_stream(
                request,
                self._operation(call, rpc_request),
                framing=framing,
                encode_event=encode_event,
                encode_error=encode_error,
                stream_registry=self._stream_registry,
                keepalive=self._options.keepalive,
                headers=headers,
            )


def rest_routes(
    service: TaskService, agent_cards: Cards, options: HttpOptions, stream_registry: StreamRegistry
) -> Iterator[tuple[Rule, RestRoute]]:
    """Yields every HTTP rule with its route, 1.0 first."""
    for descriptor, rows in method_table.rpc_services():
        transcoders: dict[tuple[str, str, str], Transcoder[Any]] = {}
        for method, rule in httprule.rules(descriptor):
            row = rows[method.name]
            json = json_proto.PROTOJSON_GOOGLE if rule_dialect(row, rule) is Dialect.GOOGLE else row.json
            key = method.name, rule.body, json.name
            if key not in transcoders:
                # For rules without a body, some clients send `{}` or the complete request anyway.
                shapes = row.bodies or (() if rule.body else (WHOLE_REQUEST,))
                transcoders[key] = Transcoder(row.request, json, body=rule.body, shapes=shapes)
            yield rule, RestRoute(row, rule, transcoders[key], service, agent_cards, options, stream_registry)


def choose_candidate(request: web.BaseRequest, candidates: Iterable[Candidate[RestRoute]]) -> Candidate[RestRoute]:
    """Returns the candidate whose dialect the caller uses, of rules that match equally."""
    by_dialect = {candidate.target.dialect: candidate for candidate in candidates}
    v1 = by_dialect.pop(Dialect.V1, None)
    if v1 is None or (by_dialect and not _names_v1(request)):
        return next(iter(by_dialect.values()))
    return v1


def _names_v1(request: web.BaseRequest) -> bool:
    try:
        return a2a_headers.check_version(named_versions(request)).startswith("1")
    except A2AError:
        return False  # the route rejects it in its own dialect


def canonical_path(method: str, path: str) -> tuple[str, str, bool]:
    """Translates a2a-rust 0.3's paths: returns the protocol's method and path, and whether they differ.

    a2a-rust writes `/tenants/` before the tenant, a slash instead of the colon, `pushNotificationConfig` in the
    singular, and deletes it with a POST to `/delete`.
    """
    canonical = path.removeprefix("/tenants") if path.startswith("/tenants/") else path
    canonical = _SINGULAR_CONFIG.sub(r"\1s\2", _SLASH_VERB.sub(r"\1:\2", canonical))
    if method == "POST" and (deleted := _DELETE_VERB.search(canonical)):
        return "DELETE", canonical[: deleted.start("verb")], True
    return method, canonical, canonical != path


_SINGULAR_CONFIG: Final = re.compile(r"(/tasks/[^/:]+/pushNotificationConfig)(/[^/]+(?:/delete)?)?$")
_DELETE_VERB: Final = re.compile(r"(?<=/pushNotificationConfigs/)[^/]+(?P<verb>/delete)$")
_SLASH_VERB: Final = re.compile(r"(/message|/tasks/[^/:]+)/(send|stream|cancel|subscribe)$")


def path_dialect(path: str) -> Dialect:
    """Returns the likely dialect of a path without a route, for its error response."""
    first, _, rest = path.removeprefix("/").partition("/")
    if first == "projects" or rest.startswith("projects/"):
        return Dialect.GOOGLE
    return Dialect.V03 if "v1" in (first, rest.partition("/")[0]) else Dialect.V1


def rule_dialect(row: RpcRow, rule: Rule) -> Dialect:
    """Returns the dialect of a rule: `a2a.v1` under a resource path is Google's."""
    return Dialect.GOOGLE if row.dialect is Dialect.V03 and _is_resource(rule) else row.dialect


def _is_resource(rule: Rule) -> bool:
    return "projects" in rule.template.segments


def _wants_array(request: web.BaseRequest, response_format: ResponseFormat) -> bool:
    """Returns whether a client of Google's form wants a JSON array: unless `alt` or `Accept` asks for SSE."""
    if response_format.alt:
        return response_format.alt == "json"
    return "text/event-stream" not in request.headers.get("Accept", "")
