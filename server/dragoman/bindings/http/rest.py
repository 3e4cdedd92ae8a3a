"""REST: serves every `google.api.http` rule of both packages, from the method table.

The matching route decides the dialect: `lf.a2a.v1` rules are 1.0; `a2a.v1` rules are 0.3 under `/v1`, and Google's
under a resource path, with its system parameters (google_parameters.py). For the resource paths of both packages,
`A2A-Version: 1.0` as header or query parameter selects 1.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson
from aiohttp import web
from google.protobuf.message import Message

from dragoman.bindings import event_encoders, method_table
from dragoman.bindings.http import google_parameters
from dragoman.bindings.http.connections import HandOver, PlainRequest, Response
from dragoman.bindings.http.google_parameters import ResponseFormat
from dragoman.bindings.http.request import (
    CURSOR_HEADER,
    JSON_ARRAY_FRAMING,
    JSON_CONTENT_TYPE,
    SSE_CONTENT_TYPE,
    SSE_FRAMING,
    AnyRequest,
    HttpExchange,
    accepted,
    card_response,
    error_headers,
    idempotency_key,
    named_versions,
)
from dragoman.bindings.method_table import GET_TASK, LIST_TASKS, SEND_MESSAGE, STREAM_MESSAGE, RpcRow
from dragoman.bindings.pipeline import Pipeline, challenge_headers, check_version, event_adapter, request_task_id
from dragoman.bindings.stream_registry import OpenStream
from dragoman.core.errors import A2AError
from dragoman.core.task.log import Event
from dragoman.core.task.projection import CachedResponse, cached_encoding
from dragoman.runtime.access import Call
from dragoman.runtime.feeds import EventStream
from dragoman.runtime.read import ends_stream
from dragoman.wire import errors
from dragoman.wire.dialects import Dialect, json_mixed, json_proto, parts
from dragoman.wire.errors import MethodNotAllowed
from dragoman.wire.http import httprule
from dragoman.wire.http.httprule import Rule
from dragoman.wire.http.routes import Candidate
from dragoman.wire.http.transcode import WHOLE_REQUEST, Transcoder
from dragoman.wire.json import protojson

A2A_JSON_CONTENT_TYPE: Final = "application/a2a+json"


def error_response(request: AnyRequest, error: Exception, dialect: Dialect, pipeline: Pipeline) -> Response:
    encoded = _encoded_error(request, error, dialect, pipeline)
    headers = {"Content-Type": media_type(request, dialect), **challenge_headers(error), **error_headers(error)}
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(error.allowed)
    return Response(encoded.status, headers, encoded.body)


def _encoded_error(
    request: AnyRequest, error: Exception, dialect: Dialect, pipeline: Pipeline
) -> errors.RestErrorResponse:
    """Google's form may have errors in its first format, too."""
    has_query = dialect is Dialect.GOOGLE and bool(request.query_string)
    with_list = has_query and request.query.get(google_parameters.ERROR_FORMAT_PARAMETER) == "1"
    return errors.rest_error(error, dialect, table=pipeline.options.error_table, with_list=with_list)


def media_type(request: AnyRequest, dialect: Dialect) -> str:
    """The media type of a unary response or an error.

    Some clients do not parse application/a2a+json as JSON, so only those that accept it get it.
    """
    if dialect is Dialect.V1 and A2A_JSON_CONTENT_TYPE in accepted(request):
        return A2A_JSON_CONTENT_TYPE
    return JSON_CONTENT_TYPE


class RestRoute:
    """One HTTP rule of one row of the method table."""

    def __init__(self, row: RpcRow, rule: Rule, transcoder: Transcoder[Any], pipeline: Pipeline) -> None:
        self.row = row
        self.dialect = rule_dialect(row, rule)
        self.is_google = self.dialect is Dialect.GOOGLE
        self.is_resource = _is_resource(rule)
        self.is_public = row.op.shows_card and not pipeline.options.private_pages
        self.name = f"{rule.http_method} {rule.template}"
        self.transcoder = transcoder
        self.codec = protojson.compile(row.response, row.json)


class RestExchange(HttpExchange):
    """One REST call."""

    row: RpcRow

    def __init__(
        self,
        pipeline: Pipeline,
        request: AnyRequest,
        path: str,
        route: RestRoute,
        variables: Mapping[str, str],
        *,
        is_rust: bool,
    ) -> None:
        super().__init__(pipeline, request, path, binding="rest", method=route.name, dialect=route.dialect.value)
        self.row = route.row
        self.is_public = route.is_public
        self._route = route
        self._variables = variables
        self._is_rust = is_rust
        self._format = ResponseFormat()
        self._dialect_request: Any = None
        self._agent_name = ""
        self._base64_files = False

    @property
    def is_unary(self) -> bool:
        return not self.row.streaming and self.row.op.operation is not None

    @property
    def name(self) -> str:
        return f"{self.request.method} {self.path}"

    def credentials(self) -> Iterable[tuple[str, str]]:
        if self._route.is_resource:
            return google_parameters.credential_headers(self.request)
        return self.headers.items()

    async def decode(self) -> Any:
        row, route, request = self.row, self._route, self.request
        query: Iterable[tuple[str, str]] = request.query.items() if request.query_string else ()
        if row.op.push:
            self.pipeline.operations.push_configs.check_enabled()
        if route.is_google and query:
            self._format, query = google_parameters.read(query, row.method.output_type, streaming=row.streaming)
        dialect_request = self._dialect_request = route.transcoder.request(self._variables, query, self.body)
        if route.is_google and row.read_google is not None:
            row.read_google(dialect_request)
        if row.decode is None:
            if not self._is_rust:
                self._is_rust = await self._has_rust_shape(dialect_request)
            return dialect_request
        self._agent_name = row.agent_name(dialect_request)
        v1_request = row.decode(dialect_request)
        if route.is_google and row.op.max_page_size and v1_request.page_size > row.op.max_page_size:
            v1_request.page_size = row.op.max_page_size
        tenant = self.tenant or v1_request.tenant
        self._base64_files = row.read_files(v1_request, self.pipeline.options.v03_files, tenant, self.extensions)
        return v1_request

    async def _has_rust_shape(self, request: Any) -> bool:
        """Whether the caller is a2a-rust 0.3: by the shape of its message, or by the dialect of the task.

        A version of exactly 1.0 is another client of the same task: a2a-rust sends a patch number or no version. The
        response of GetTask has the dialect of the task (`respond`).
        """
        if self.row.op in (SEND_MESSAGE, STREAM_MESSAGE):
            return bool(self.body) and parts.is_rust(self.body)
        if self.version == "1.0" or self.row.op is GET_TASK:
            return False
        if not (task_id := request_task_id(request)):
            return False
        return await self.pipeline.task_dialect(self, request.tenant, task_id) == Dialect.RUST.value

    def call(self) -> Call:
        row, dialect = self.row, Dialect.RUST if self._is_rust else self._route.dialect
        return Call(
            self.caller,
            leaves_blocking_open=row.leaves_blocking_open is not None
            and row.leaves_blocking_open(self._dialect_request),
            shows_finished=row.shows_finished,
            waits_for_auth=row.turn and row.waits_for_auth(self.caller),
            describes_schemes=row.decode is None,
            dialect=dialect.value,
            extensions=self.extensions,
            cursor=self.headers.get(CURSOR_HEADER, ""),
            idempotency_key=idempotency_key(self.headers),
        )

    async def describe(self) -> Response | web.StreamResponse:
        agent_cards, caller, request = self.pipeline.cards, self.caller, self.request
        if isinstance(request, PlainRequest):
            raise HandOver
        if self.row.op.extended_card:
            body = agent_cards.extended_card(caller, self.origin(), self._route.dialect)
            headers = {"Content-Type": JSON_CONTENT_TYPE, "Cache-Control": "private, no-store"}
            return Response(200, headers, body)
        card = agent_cards.v03_card(caller, self.origin())
        if not self._format.is_default:
            body = self._format.encode_value(orjson.loads(card.body))
            return Response(200, {"Content-Type": JSON_CONTENT_TYPE, "Cache-Control": "no-store"}, body)
        is_private = caller.identity.is_authenticated
        return card_response(request, card, vary="Authorization, X-API-Key", private=is_private)

    async def respond(self, response: bytes) -> Response | web.StreamResponse:
        row, route = self.row, self._route
        is_rust = self._is_rust or (row.op in (GET_TASK, LIST_TASKS) and await self._reads_rust_task(response))
        codec = protojson.compile(row.response, json_mixed.JSON_RUST) if is_rust else route.codec

        def message() -> Message:
            return row.response_message(response, self._agent_name, base64_files=self._base64_files)

        if self._format.is_default:
            body = cached_encoding(response, (codec, self._base64_files), lambda: codec.encode(message()))
        else:
            body = self._format.encode(message())
        headers = {"Content-Type": media_type(self.request, route.dialect), **self.activation_headers()}
        self.status = 200
        return Response(200, headers, body)

    async def _reads_rust_task(self, response: bytes) -> bool:
        if self.row.decode is not None or self.version == "1.0":
            return False
        if self.row.op is LIST_TASKS:
            return await self.pipeline.listed_dialect(self.caller, response) == Dialect.RUST.value
        if isinstance(response, CachedResponse):
            return response.dialect == Dialect.RUST.value
        task_id = request_task_id(self._dialect_request)
        return await self.pipeline.operations.read.dialect_of(self.caller, task_id) == Dialect.RUST.value

    async def stream(self, events: EventStream, registration: OpenStream) -> web.StreamResponse:
        row, turn, is_google, self.status = self.row, self.row.turn, self._route.is_google, 200
        as_array = is_google and _wants_array(self.request, self._format)
        encoders = row.stream_encoders(base64_files=self._base64_files)
        if self._is_rust:
            encoders = event_encoders.RUST_STREAM_ENCODERS
        encode = encoders.json if as_array else encoders.sse
        if not self._format.is_default:
            encode = self._format.stream_encoder(as_array=as_array)
        adapt_event, call = event_adapter(self.extensions), self.call()

        def encode_event(event: Event) -> bytes:
            return encode(adapt_event(event), turn and event.ends and ends_stream(call, event.state, turn_ended=True))

        return await self.send_events(
            events,
            framing=JSON_ARRAY_FRAMING if as_array else SSE_FRAMING,
            encode_event=encode_event,
            encode_error=lambda error: _encoded_error(self.request, error, self._route.dialect, self.pipeline).body,
        )

    async def reject(self, error: Exception) -> Response | web.StreamResponse:
        response = error_response(self.request, error, self._route.dialect, self.pipeline)
        self.status = response.status
        return response


def rest_routes(pipeline: Pipeline) -> Iterator[tuple[Rule, RestRoute]]:
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
                transcoders[key] = Transcoder(
                    row.request, json, body=rule.body, shapes=shapes, refuses_misspelled=row.dialect is Dialect.V1
                )
            yield rule, RestRoute(row, rule, transcoders[key], pipeline)


def choose_candidate(request: AnyRequest, candidates: Iterable[Candidate[RestRoute]]) -> Candidate[RestRoute]:
    """The candidate whose dialect the caller uses, of rules that match equally."""
    by_dialect = {candidate.target.dialect: candidate for candidate in candidates}
    v1 = by_dialect.pop(Dialect.V1, None)
    if v1 is None or (by_dialect and not _names_v1(request)):
        return next(iter(by_dialect.values()))
    return v1


def _names_v1(request: AnyRequest) -> bool:
    try:
        return check_version(named_versions(request)).startswith("1")
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
    """The likely dialect of a path without a route, for its error response."""
    first, _, rest = path.removeprefix("/").partition("/")
    if first == "projects" or rest.startswith("projects/"):
        return Dialect.GOOGLE
    return Dialect.V03 if "v1" in (first, rest.partition("/")[0]) else Dialect.V1


def rule_dialect(row: RpcRow, rule: Rule) -> Dialect:
    """The dialect of a rule: `a2a.v1` under a resource path is Google's."""
    return Dialect.GOOGLE if row.dialect is Dialect.V03 and _is_resource(rule) else row.dialect


def _is_resource(rule: Rule) -> bool:
    return "projects" in rule.template.segments


def _wants_array(request: AnyRequest, response_format: ResponseFormat) -> bool:
    """Whether a client of Google's form wants a JSON array: unless `alt` or `Accept` asks for SSE."""
    if response_format.alt:
        return response_format.alt == "json"
    return SSE_CONTENT_TYPE not in accepted(request)
