"""HTTP and JSON gateway for any gRPC service with `google.api.http` rules, without generated code."""

from __future__ import annotations

from typing import Any

import grpc
from aiohttp import hdrs, web
from google.rpc import code_pb2, status_pb2

from dragoman.transcoding import (
    InvalidParams,
    MatchedBinding,
    NoMatch,
    ParseError,
    ServiceRoutes,
    error_body,
    frame,
    http_status,
    invalid_argument,
    loads,
)


class Gateway:
    """Translates HTTP requests to calls over a gRPC channel."""

    def __init__(self, channel: grpc.aio.Channel, *services: Any) -> None:
        """services: their descriptors. Raises TemplateError and TypeError for inconsistent rules."""
        self._channel = channel
        self._routes = ServiceRoutes(*services)

    def app(self) -> web.Application:
        """Serve it with `handler_cancellation=True`, so that a disconnecting client cancels its call."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            found = self._routes.find(request.method, request.rel_url.raw_path)
            if isinstance(found, NoMatch):
                return _refused(request, found)
            body = await request.read()
            message = found.request(request.query.items(), loads(body) if body else None)
            if found.binding.method.server_streaming:
                return await self._stream(request, found, message)
            answer = await self._call(self._channel.unary_unary, request, found, message)
            return web.Response(body=found.response(answer), content_type="application/json")
        except (InvalidParams, ParseError) as error:
            return _failed(invalid_argument(error))
        except grpc.aio.AioRpcError as error:
            return _failed(_status(error))
        except web.HTTPRequestEntityTooLarge as error:
            return _failed(status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=error.text), http=error.status)

    def _call(self, kind: Any, request: web.Request, found: MatchedBinding, message: Any) -> Any:
        method = kind(
            found.binding.rpc,
            request_serializer=type(message).SerializeToString,
            response_deserializer=found.binding.response_class.FromString,
        )
        credentials = request.headers.get(hdrs.AUTHORIZATION)
        timeout = request.headers.get("X-Server-Timeout")  # in seconds, as for Google's servers
        return method(
            message,
            metadata=[("authorization", credentials)] if credentials else None,
            timeout=_seconds(timeout) if timeout else None,
        )

    async def _stream(self, request: web.Request, found: MatchedBinding, message: Any) -> web.StreamResponse:
        """Streams server-sent events if the client accepts them, otherwise a JSON array. An error before the first
        element is an HTTP status, a later one the last element."""
        events = "text/event-stream" in request.headers.get(hdrs.ACCEPT, "")
        opening, between, closing = (b"", b"", b"") if events else (b"[", b",\n", b"]")
        response = web.StreamResponse(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream" if events else "application/json"
        before = opening
        try:
            async for answer in self._call(self._channel.unary_stream, request, found, message):
                if not response.prepared:
                    await response.prepare(request)
                data = found.response(answer)
                await response.write(before + (frame(data) if events else data))
                before = between
        except grpc.aio.AioRpcError as error:
            if not response.prepared:
                raise
            data = error_body(_status(error))
            await response.write(before + (frame(data, event="error") if events else data))
        if not response.prepared:
            await response.prepare(request)
        await response.write((opening if before is opening else b"") + closing)
        await response.write_eof()
        return response


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < 1e6:
        raise InvalidParams.field("X-Server-Timeout", "must be a number of seconds above 0")
    return seconds


def _status(error: grpc.aio.AioRpcError) -> Any:
    """Returns the status of a failed call with its details."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return status_pb2.Status.FromString(value)
    return status_pb2.Status(code=error.code().value[0], message=error.details())


def _failed(status: Any, *, http: int = 0) -> web.Response:
    return web.Response(
        status=http or http_status(status.code),
        body=error_body(status, http_code=http),
        content_type="application/json",
    )


def _refused(request: web.Request, refused: NoMatch) -> web.Response:
    if not refused.allow:
        return _failed(status_pb2.Status(code=code_pb2.NOT_FOUND, message=f"nothing is served at {request.path}"))
    message = f"{request.method} is not served at {request.path}; use {' or '.join(refused.allow)}"
    response = _failed(status_pb2.Status(code=code_pb2.UNIMPLEMENTED, message=message), http=405)
    response.headers[hdrs.ALLOW] = ", ".join(refused.allow)
    return response
