"""REST: every `google.api.http` rule of both packages, from the method table.

The route that matches says which dialect is spoken: `lf.a2a.v1` rules are 1.0, those of `a2a.v1` are 0.3 under
`/v1` and Google's under a resource path. Some resource paths are in both packages: `A2A-Version: 1.0`, as header or
query parameter, chooses 1.0 there.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from aiohttp import web

from dragoman.bindings import a2a_headers, authentication, cards, event_encoders, method_table
from dragoman.bindings.cards import Cards
from dragoman.bindings.event_encoders import StreamEncoders
from dragoman.bindings.http import bodies
from dragoman.bindings.http.cors import request_id
from dragoman.bindings.method_table import GET_TASK, SEND_MESSAGE, STREAM_MESSAGE, RpcRow, ServiceOperation
from dragoman.bindings.options import HttpOptions
from dragoman.bindings.request_log import REST_LABEL, RequestLogEntry, request_task_id
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.access.identity import Caller, Identity
from dragoman.core.errors import A2AError
from dragoman.core.task.log import Event
from dragoman.core.task.projection import CachedResponse, cached_encoding
from dragoman.core.trace import TRACE_HEADER
from dragoman.runtime.operations.call import Call
from dragoman.runtime.operations.service import TaskService
from dragoman.wire import errors
from dragoman.wire.dialects import Dialect, json_mixed
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
    """Every `A2A-Version` of a request."""
    yield from request.headers.getall(a2a_headers.VERSION_HEADER, ())
    if request.query_string:
        yield from request.query.getall(a2a_headers.VERSION_HEADER, ())


def idempotency_key(request: web.BaseRequest) -> str:
    """The `Idempotency-Key` of a request. The IETF draft quotes it; most clients do not."""
    return request.headers.get("Idempotency-Key", "").strip().removeprefix('"').removesuffix('"')


def retry_after_header(error: Exception) -> dict[str, str]:
    """When to try again, as HTTP says it: in whole seconds (RFC 9110 §10.2.3)."""
    wait = errors.retry_after(error)
    return {"Retry-After": str(math.ceil(wait))} if wait else {}


def error_response(request: web.BaseRequest, error: Exception, dialect: Dialect, options: HttpOptions) -> web.Response:
    """The answer to a request that failed; what is no A2AError is logged and told to nobody."""
    if not isinstance(error, A2AError):
        _log.error("%s %s failed", request.method, request.rel_url.raw_path, exc_info=error)
    options.auth_failures.record(
        error, peer=request.remote or "", method=f"{request.method} {request.rel_url.raw_path}"
    )
    answer = errors.rest_error(error, dialect, table=options.error_table)
    headers = {
        "Content-Type": errors.ERROR_CONTENT_TYPE,
        **authentication.challenge_headers(error),
        **retry_after_header(error),
    }
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(error.allowed)
    return web.Response(status=answer.status, body=answer.body, headers=headers)


class RestRoute:
    """One HTTP rule of one row, served."""

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
        self.dialect = Dialect.GOOGLE if _is_resource(row, rule) else row.dialect
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
        """Answers, whatever happens, but for a client that goes away. `rust`: the path was a2a-rust's."""
        access = RequestLogEntry(
            self._options.request_metrics, REST_LABEL, self._name, self.dialect.value, request_id(request)
        )
        try:
            response = await self._respond(request, variables, access, rust)
        except Exception as error:
            response = error_response(request, error, self.dialect, self._options)
        except asyncio.CancelledError:
            why = self._stream_registry.take_end_reason()
            if why is None:
                access.finish("gone")
                raise
            response = error_response(request, why, self.dialect, self._options)
        access.finish(response.status)
        return response

    async def _respond(
        self, request: web.BaseRequest, variables: Mapping[str, str], log_entry: RequestLogEntry, rust: bool
    ) -> web.StreamResponse:
        row, options = self.row, self._options
        if log_entry.is_traced:
            log_entry.start_trace(request.headers.get(TRACE_HEADER, ""))
        public = row.op.shows_card and not options.private_pages
        identity = await authentication.authenticate(request.headers.items(), options, request, public=public)
        named = a2a_headers.check_version(named_versions(request))
        self._service.admission.check_rate(identity)
        if row.op.push:
            self._service.check_push()
        sent = await bodies.read_json(request, options.message_bytes, lossy_numbers=options.lossy_numbers)
        query = request.query.items() if request.query_string else ()
        value = row.v1_request(self._transcoder.request(variables, query, sent))
        caller = authentication.authorize(self._service, value.tenant, identity, public=public)
        log_entry.set_caller(caller, value)
        if self._operation is None:
            return self._card(request, caller.agent, caller.identity)
        named_extensions = a2a_headers.requested_extensions(request.headers)
        reads = row.op is GET_TASK  # whose answer tells in which dialect its task was made
        rust = rust or (not reads and await self._is_rust(named, sent, caller, value))
        call = Call(
            caller,
            shows_finished=row.shows_finished,
            dialect=Dialect.RUST.value if rust else self.dialect.value,
            extensions=named_extensions,
            cursor=request.headers.get("Last-Event-ID", ""),
            idempotency_key=idempotency_key(request),
        )
        headers = a2a_headers.activation_headers(named_extensions, self._cards, caller.agent, self.dialect)
        if row.streaming:
            return await self._stream(
                request, call, value, event_encoders.RUST_STREAM_ENCODERS if rust else row.stream_encoders, headers
            )
        answer = await self._operation(call, value)
        rust = rust or (reads and await self._is_rust(named, sent, caller, value, answer))
        codec = protojson.compile(row.response, json_mixed.JSON_RUST) if rust else self._codec
        headers = {"Content-Type": self._media_type(request), **headers}
        data = cached_encoding(answer, codec, lambda: codec.encode(row.response_message(answer)))
        return web.Response(body=data, headers=headers)

    def _card(self, request: web.BaseRequest, agent: str, identity: Identity) -> web.Response:
        origin = cards.caller_origin(request, self._cards)
        if not self.row.op.extended_card:
            served, private = self._cards.v03_document(agent, origin, identity), identity.is_authenticated
            return cards.card_response(request, served, vary="Authorization, X-API-Key", private=private)
        body = self._cards.extended_document(agent, origin, identity, self.dialect)
        return web.Response(
            body=body, headers={"Content-Type": JSON_CONTENT_TYPE, "Cache-Control": "private, no-store"}
        )

    async def _is_rust(
        self, version: str, body_value: object, caller: Caller, rpc_request: Any, response: bytes = b""
    ) -> bool:
        """Whether a2a-rust 0.3 asks: by the shape of its message, by its own paths, or by the task it has made.

        Who names exactly 1.0 is another client of the same task; a2a-rust names the patch, or nothing.
        """
        if self.dialect is not Dialect.V1:
            return False
        if self.row.op in (SEND_MESSAGE, STREAM_MESSAGE):
            return bool(body_value) and json_mixed.is_rust(body_value)
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
    ) -> web.StreamResponse:
        assert self._operation is not None
        turn = self.row.turn
        framing = (
            bodies.JSON_ARRAY_FRAMING
            if self.dialect is Dialect.GOOGLE and _wants_array(request)
            else bodies.SSE_FRAMING
        )
        form = encoders.json if framing is bodies.JSON_ARRAY_FRAMING else encoders.sse

        show = a2a_headers.event_adapter(call.extensions)

        def frame(event: Event) -> bytes:
            return form(show(event), turn and event.ends)

        def fail(error: Exception) -> bytes:
            if not isinstance(error, A2AError):
                _log.error("the stream of %s broke", self._name, exc_info=error)
            return errors.rest_error(error, self.dialect, table=self._options.error_table).body

        with self._stream_registry.open(call.caller.identity):
            return await bodies.respond_stream(
                request,
                self._operation(call, rpc_request),
                framing=framing,
                encode_event=frame,
                encode_error=fail,
                stream_registry=self._stream_registry,
                keepalive=self._options.keepalive,
                headers=headers,
            )

    def _media_type(self, request: web.BaseRequest) -> str:
        # Readers exist for which application/a2a+json is no JSON, so it goes to those who name it.
        if self.dialect is Dialect.V1 and A2A_JSON_CONTENT_TYPE in request.headers.get("Accept", ""):
            return A2A_JSON_CONTENT_TYPE
        return JSON_CONTENT_TYPE


def rest_routes(
    service: TaskService, agent_cards: Cards, options: HttpOptions, stream_registry: StreamRegistry
) -> Iterator[tuple[Rule, RestRoute]]:
    """Every rule with what serves it, 1.0 first."""
    for descriptor, rows in method_table.rpc_services():
        transcoders: dict[tuple[str, str], Transcoder[Any]] = {}
        for method, rule in httprule.rules(descriptor):
            row = rows[method.name]
            key = method.name, rule.body
            if key not in transcoders:
                # Clients of calls without a body post `{}`, or the whole request, all the same.
                shapes = row.bodies or (() if rule.body else (WHOLE_REQUEST,))
                transcoders[key] = Transcoder(row.request, row.json, body=rule.body, shapes=shapes)
            yield rule, RestRoute(row, rule, transcoders[key], service, agent_cards, options, stream_registry)


def choose_candidate(request: web.BaseRequest, candidates: Iterable[Candidate[RestRoute]]) -> Candidate[RestRoute]:
    """Of rules that fit equally, the one whose dialect the caller speaks."""
    by_dialect = {candidate.target.dialect: candidate for candidate in candidates}
    v1 = by_dialect.pop(Dialect.V1, None)
    if v1 is None or (by_dialect and not _names_v1(request)):
        return next(iter(by_dialect.values()))
    return v1


def _names_v1(request: web.BaseRequest) -> bool:
    try:
        return a2a_headers.check_version(named_versions(request)).startswith("1")
    except A2AError:
        return False  # the route refuses it, in its own dialect


def canonical_path(method: str, path: str) -> tuple[str, str, bool]:
    """The method and the path that a2a-rust 0.3 means by some of its own, and whether they were: a word before the
    tenant, a slash where the protocol has a colon, push configurations in the singular, and their end as a POST."""
    found = path.removeprefix("/tenants") if path.startswith("/tenants/") else path
    found = _SINGULAR.sub(r"\1s\2", _SLASHED.sub(r"\1:\2", found))
    if method == "POST" and (deleted := _DELETED.search(found)):
        return "DELETE", found[: deleted.start("verb")], True
    return method, found, found != path


_SINGULAR: Final = re.compile(r"(/tasks/[^/:]+/pushNotificationConfig)(/[^/]+(?:/delete)?)?$")
_DELETED: Final = re.compile(r"(?<=/pushNotificationConfigs/)[^/]+(?P<verb>/delete)$")
_SLASHED: Final = re.compile(r"(/message|/tasks/[^/:]+)/(send|stream|cancel|subscribe)$")


def path_dialect(path: str) -> Dialect:
    """The dialect in which a path that nothing serves was probably meant."""
    first, _, rest = path.removeprefix("/").partition("/")
    if first == "projects" or rest.startswith("projects/"):
        return Dialect.GOOGLE
    return Dialect.V03 if "v1" in (first, rest.partition("/")[0]) else Dialect.V1


def _is_resource(row: RpcRow, rule: Rule) -> bool:
    return row.dialect is Dialect.V03 and "projects" in rule.template.segments


def _wants_array(request: web.BaseRequest) -> bool:
    """Google's readers say `alt=json`, or take nothing but JSON; `alt=sse` asks for events all the same."""
    alt = request.query.get("alt", "")
    if alt in ("json", "sse"):
        return alt == "json"
    accept = request.headers.get("Accept", "")
    return JSON_CONTENT_TYPE in accept and "text/event-stream" not in accept
