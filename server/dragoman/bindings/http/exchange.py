"""Common parts of HTTP exchanges: headers, bodies and streams."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from dragoman.bindings import cards
from dragoman.bindings.cards import Origin
from dragoman.bindings.http import bodies
from dragoman.bindings.http.cors import request_id
from dragoman.bindings.http.plain import HandOver, PlainRequest, Response
from dragoman.bindings.options import HttpOptions
from dragoman.bindings.pipeline import VERSION_HEADER, Pipeline, RequestExchange, activation_headers
from dragoman.bindings.request_log import RequestLogEntry
from dragoman.core.task.log import Event
from dragoman.runtime.feeds import EventStream
from dragoman.wire import errors

HttpPipeline = Pipeline[HttpOptions]

AnyRequest = web.BaseRequest | PlainRequest

JSON_CONTENT_TYPE: Final = "application/json"

CURSOR_HEADER: Final = "Last-Event-ID"


class HttpExchange(RequestExchange[Response | web.StreamResponse]):
    """A request that one HTTP response answers."""

    DISCONNECTED_STATUS = "disconnected"

    def __init__(
        self,
        pipeline: HttpPipeline,
        request: AnyRequest,
        path: str,
        tenant: str = "",
        *,
        binding: str,
        method: str,
        dialect: str = "",
        is_known_method: bool = True,
    ) -> None:
        """`path`: percent-encoded. `binding`, `method`, `dialect`, `is_known_method`: as in the request log."""
        log_entry = RequestLogEntry(
            pipeline.options.request_metrics,
            binding,
            method,
            dialect,
            request_id(request) if isinstance(request, web.BaseRequest) else "",
            is_known_method=is_known_method,
        )
        super().__init__(log_entry, request.headers, request, tenant)
        self.pipeline = pipeline
        self.request = request
        self.path = path
        self.body: object = None

    @property
    def peer(self) -> str:
        return self.request.remote or ""

    def versions(self) -> Iterable[str]:
        return named_versions(self.request)

    async def read(self) -> None:
        options = self.pipeline.options
        self.body = await bodies.read_json(self.request, options.message_bytes, lossy_numbers=options.lossy_numbers)

    def origin(self) -> Origin | None:
        """The address that the caller used."""
        if not isinstance(self.request, web.BaseRequest):
            raise HandOver
        return cards.caller_origin(self.request, self.pipeline.cards)

    def activation_headers(self) -> Mapping[str, str]:
        """The response header that names the activated extensions."""
        if not self.extensions:
            return {}
        return activation_headers(self.extensions, self.pipeline.cards, self.caller.agent, self.row.dialect)

    async def send_events(
        self,
        events: EventStream,
        *,
        framing: bodies.Framing,
        encode_event: Callable[[Event], bytes],
        encode_error: Callable[[Exception], bytes],
    ) -> web.StreamResponse:
        """Streams events. `encode_error` returns the JSON body of an error after the first event."""
        if not isinstance(self.request, web.BaseRequest):
            raise HandOver

        def failure(error: Exception) -> bytes:
            self.pipeline.log_fault(error, self.name)
            return encode_error(error)

        return await bodies.respond_stream(
            self.request,
            events,
            framing=framing,
            encode_event=encode_event,
            encode_error=failure,
            stream_registry=self.pipeline.streams,
            keepalive=self.pipeline.options.keepalive,
            headers=self.activation_headers(),
        )


def named_versions(request: AnyRequest) -> Sequence[str]:
    """Returns every `A2A-Version` of a request, from headers and query."""
    versions: Sequence[str] = request.headers.getall(VERSION_HEADER, ())
    if request.query_string:
        versions = [*versions, *request.query.getall(VERSION_HEADER, ())]
    return versions


def idempotency_key(headers: Any) -> str:
    """Returns the `Idempotency-Key`, without the quotes of the IETF draft, which most clients omit."""
    key: str = headers.get("Idempotency-Key", "")
    return key.strip().removeprefix('"').removesuffix('"') if key else ""


def retry_after_header(error: Exception) -> dict[str, str]:
    """Returns the `Retry-After` header of an error, in whole seconds (RFC 9110 §10.2.3); empty if it has none."""
    seconds = errors.retry_after(error)
    return {"Retry-After": str(math.ceil(seconds))} if seconds else {}


def accepts_only_json(request: AnyRequest) -> bool:
    """Returns whether `Accept` names JSON and no event stream."""
    accept = request.headers.get("Accept", "")
    return JSON_CONTENT_TYPE in accept and "text/event-stream" not in accept


def as_aiohttp(response: Response | web.StreamResponse) -> web.StreamResponse:
    """The response for aiohttp."""
    if isinstance(response, web.StreamResponse):
        return response
    return web.Response(status=response.status, body=response.body, headers=response.headers)
