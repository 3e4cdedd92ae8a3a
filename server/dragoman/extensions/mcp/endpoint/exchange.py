"""One request to the MCP endpoint, and its response: JSON, or a stream of server-sent events.

Streamable HTTP of 2026-07-28, and of the revisions with a handshake. A call that waits for its task is a `WaitingCall`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

import orjson
from aiohttp import web

from dragoman.bindings import well_known
from dragoman.bindings.http.connections import Response
from dragoman.bindings.http.request import (
    JSON_CONTENT_TYPE,
    JSONRPC_SSE_FRAMING,
    AnyRequest,
    HttpExchange,
    accepts_only_json,
    error_headers,
    idempotency_key,
    respond_stream,
)
from dragoman.bindings.method_table import ExtensionRow
from dragoman.bindings.pipeline import challenge_headers, log_call_fault
from dragoman.bindings.stream_registry import OpenStream
from dragoman.core import errors
from dragoman.core.errors import InvalidParams, InvalidRequest, ParseError
from dragoman.core.names import tenant_of
from dragoman.core.trace import TRACE_HEADER
from dragoman.extensions.mcp.endpoint.answers import TaskAnswers
from dragoman.extensions.mcp.endpoint.decoder import BEGIN_TASK, CALL_TOOL, KNOWN_METHODS, Decoded, McpDecoder
from dragoman.extensions.mcp.endpoint.listen import Listener
from dragoman.extensions.mcp.endpoint.services import McpServices
from dragoman.extensions.mcp.endpoint.tool_call import ElicitationId, ResumePoint, WaitingCall, complete
from dragoman.extensions.mcp.wire import results
from dragoman.extensions.mcp.wire.envelope import (
    CURSOR_META,
    IDEMPOTENCY_META,
    SESSION_HEADER,
    VERSION_HEADER,
    Envelope,
    read_envelope,
    read_session,
)
from dragoman.extensions.mcp.wire.errors import http_status, mcp_error
from dragoman.extensions.mcp.wire.tools import InvalidArguments
from dragoman.runtime.access import Call
from dragoman.runtime.feeds import EventStream
from dragoman.wire.dialects import Dialect
from dragoman.wire.http import sse
from dragoman.wire.json import request as json_request
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_RESULT_ERRORS: Final = (
    InvalidArguments,
    errors.ContentTypeNotSupported,
    errors.ExtensionSupportRequired,
    errors.IdempotencyKeyReused,
    errors.TaskEnded,
    errors.TaskNotCancelable,
    errors.TaskNotFound,
    errors.UnsupportedOperation,
)
"""Errors of a call that are the result of its tool, for the model to read (server/tools, "Error Handling")."""

MCP_LABEL: Final = "mcp"
"""The value of the label `binding` in metrics."""

_RESPONSE: Final = "response"
"""Method, in logs, of a message that answers a request of the server."""


class McpExchange(HttpExchange):
    """One POST to the endpoint: a request, a notification, or a response to a question."""

    row: ExtensionRow

    def __init__(self, services: McpServices, request: AnyRequest, path: str, address: str) -> None:
        """`address`: the tenant of the one agent that the path names; empty for all agents."""
        super().__init__(
            services.pipeline, request, path, binding=MCP_LABEL, method="MCP", dialect="mcp", is_known_method=False
        )
        self._services = services
        self._address = address
        self.rpc = json_request.JsonRpcRequest(None, "", None)
        self._is_response = False
        """Whether the message answers a request of the server."""
        # Until the envelope is read, errors are those of the revision that the header names.
        self.envelope = Envelope(read_session("", request.headers.get(VERSION_HEADER, "")))
        self.decoded: Decoded | None = None

    def versions(self) -> Iterable[str]:
        """None: `A2A-Version` means nothing here."""
        return ()

    @property
    def _is_notification(self) -> bool:
        return self.rpc.method.startswith("notifications/")

    @property
    def _params(self) -> dict[str, Any]:
        return self.rpc.params if isinstance(self.rpc.params, dict) else {}

    @property
    def _decoder(self) -> McpDecoder:
        takes_streams = not accepts_only_json(self.request)
        return McpDecoder(self._services, self.envelope, self.identity, self._address, takes_streams=takes_streams)

    async def read(self) -> None:
        if not self.request.can_read_body:
            raise ParseError("Invalid JSON payload: the body is empty")
        await super().read()
        body = self.body
        if isinstance(body, dict) and "method" not in body and ("result" in body or "error" in body):
            self.rpc, self._is_response = json_request.JsonRpcRequest(None, _RESPONSE, body), True
        else:
            self.rpc = json_request.parse_request(body)
            if self.rpc.id is None and not self._is_notification:
                raise InvalidRequest("id: is required; it must be a string or an integer")
        self.log_entry.method = self.rpc.method

    async def decode(self) -> Any:
        self.decoded = decoded = self._decode()
        self.row = decoded.row
        if decoded.session:
            self.envelope = Envelope(read_session(decoded.session))
        return decoded.request

    def _decode(self) -> Decoded:
        method, params = self.rpc.method, self._params
        self.log_entry.is_known_method = method in KNOWN_METHODS
        if self._is_response:
            question = ElicitationId.parse(params.get("id"))
            self.envelope = Envelope(read_session(self.headers.get(SESSION_HEADER, "")))
            answer = params.get("result", {"action": "cancel"})
            return self._decoder.answer(TaskAnswers({question.key: answer}), question.tenant, question.task_id)
        self.envelope = read_envelope(method, params, self.headers)
        parent = self.envelope.meta.get("traceparent")
        if self.pipeline.options.tracer is not None and isinstance(parent, str) and TRACE_HEADER not in self.headers:
            self.log_entry.start_trace(parent)
        return self._decoder.decode(method, params)

    def call(self) -> Call:
        envelope, services = self.envelope, self._services
        takes_handle = envelope.client.takes_tasks and self.row is BEGIN_TASK
        return Call(
            self.caller,
            timeout=services.handle_after if takes_handle else services.wait,
            cursor=envelope.text(CURSOR_META),
            idempotency_key=envelope.text(IDEMPOTENCY_META) or idempotency_key(self.headers),
            stops_with_turn=True,
            shows_finished=True,
            dialect=Dialect.V1.value,
        )

    # Responses ------------------------------------------------------------------------------------------------

    async def describe(self) -> Response | web.StreamResponse:
        decoded = self.decoded
        assert decoded is not None
        if decoded.listens:
            listener = Listener(self._services, self.envelope.client, self.rpc.id, self._params, self.identity)
            admission = self.pipeline.operations.admission
            with admission.stream(self.identity), self.pipeline.streams.open(self.identity):
                return await self._send_stream(listener.frames(), listener.last_frame)
        if decoded.canceled_request is not None:
            self._services.cancel_call(self._call_key(decoded.canceled_request))
        if decoded.description is None:
            return Response(202, {}, b"")
        return self._result(decoded.description)

    async def respond(self, response: bytes) -> Response | web.StreamResponse:
        if self._is_response:
            return Response(202, {}, b"")
        assert self.decoded is not None
        return self._result(self.decoded.result(response, self._tenant))

    def _result(self, result: Mapping[str, Any]) -> Response:
        if "resultType" not in result:
            result = complete(result, self.envelope.client)
        return self._json(200, json_request.encode_result(self.rpc.id, orjson.dumps(result)))

    def _json(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Response:
        session = {SESSION_HEADER: self.decoded.session} if self.decoded and self.decoded.session else {}
        return Response(status, {"Content-Type": JSON_CONTENT_TYPE, **session, **(headers or {})}, body)

    @property
    def _tenant(self) -> str:
        return tenant_of(self.caller.owner.scope, self.caller.agent)

    async def stream(self, events: EventStream, registration: OpenStream) -> Response | web.StreamResponse:
        assert self.decoded is not None
        tool, call = self.decoded.tool, self.call()
        # Nobody can come back for the result of a call without a key: the end of its stream cancels it
        # (2026-07-28 basic/patterns/cancellation).
        cancels = self.envelope.client.is_stateless and tool is not None and not call.idempotency_key
        tool_call = WaitingCall(
            self.pipeline.operations,
            call,
            self.envelope,
            self.rpc.id,
            tool,
            wait=self._services.wait,
            on_disconnect=self._services.cancel_in_background if cancels else None,
            find_task=self._find_task if call.idempotency_key and self.row is CALL_TOOL else None,
        )
        with self._services.open_call(self._call_key(self.rpc.id), tool_call):
            return await self._send_call(tool_call, events)

    async def _find_task(self) -> pb.SendMessageResponse:
        """The task of the earlier call with the same idempotency key."""
        assert self.decoded is not None
        assert isinstance(self.decoded.request, pb.SendMessageRequest)
        request = pb.SendMessageRequest()
        request.CopyFrom(self.decoded.request)
        request.configuration.return_immediately = True
        send = self.pipeline.operations.send.send_message
        return pb.SendMessageResponse.FromString(await send(replace(self.call(), cursor=""), request))

    async def _send_call(self, call: WaitingCall, events: EventStream) -> Response | web.StreamResponse:
        """Answers with JSON if the call ends at once, otherwise with a stream."""
        frames = call.frames(events)
        first = asyncio.ensure_future(anext(frames))
        try:
            await asyncio.wait((first,), timeout=self.pipeline.options.keepalive)
            if first.done() and first.exception() is None and call.result is not None:
                return self._json(200, call.result)
            return await self._send_stream(_after(first, frames), call.last_frame)
        finally:
            first.cancel()
            # Also takes its error, which nobody else does after the client has left.
            await asyncio.gather(first, return_exceptions=True)
            await frames.aclose()

    async def _send_stream(
        self, frames: AsyncGenerator[Sequence[bytes], None], last_frame: Callable[[], bytes]
    ) -> web.StreamResponse:
        """Streams frames, and ends with `last_frame` if the server stops meanwhile."""
        assert isinstance(self.request, web.BaseRequest)
        return await respond_stream(
            self.request,
            frames,
            framing=JSONRPC_SSE_FRAMING,
            encode_event=bytes,
            encode_error=self._failure,
            stream_registry=self.pipeline.streams,
            keepalive=self.pipeline.options.keepalive,
            encode_stop=last_frame,
        )

    def _call_key(self, rpc_id: object) -> tuple[str, str, str]:
        return self.identity.principal, self.envelope.client.session, f"{type(rpc_id).__name__}:{rpc_id}"

    def _failure(self, error: Exception) -> bytes:
        log_call_fault(error, self.name)
        if not self.rpc.method:  # the envelope of JSON-RPC was not read, or is invalid
            self.rpc = json_request.partial_request(self.body)
        failure = mcp_error(json_request.within_params(error))
        self.status = failure["code"]
        return json_request.encode_error(self.rpc.id, failure)

    async def reject(self, error: Exception) -> Response | web.StreamResponse:
        if self.rpc.method == "tools/call" and self._is_result(error):
            failure = mcp_error(error)
            self.status = failure["code"]
            return self._result(results.text_result(failure["message"], is_error=True))
        body = self._failure(error)
        metadata = well_known.resource_metadata_url(
            self.path, self.origin(), self.pipeline.cards, self.pipeline.options
        )
        challenge = challenge_headers(error, resource_metadata=metadata)
        headers = {**challenge, **error_headers(error)}
        # An error without an id cannot be matched with its call, so the status has to say that there is one.
        is_answered = self.rpc.id is not None and not (self._is_response or self._is_notification)
        status = http_status(error, is_stateless=self.envelope.client.is_stateless, is_answered=is_answered)
        return self._json(status, body, headers)

    def _is_result(self, error: Exception) -> bool:
        """Whether an error is the result of a tool: then the model reads it, and can correct the call."""
        return isinstance(error, _RESULT_ERRORS) or (isinstance(error, InvalidParams) and self.decoded is not None)


class McpResumption(McpExchange):
    """A GET that continues the stream of a call after an event (2025-11-25 Streamable HTTP, "Resumability")."""

    async def read(self) -> None:
        self._point = point = ResumePoint.parse(self.headers.get("Last-Event-ID", ""))
        self.rpc = json_request.JsonRpcRequest(point.rpc_id, "tools/call", {})
        self.log_entry.method, self.log_entry.is_known_method = "tools/call", True

    def _decode(self) -> Decoded:
        point = self._point
        self.envelope = Envelope(read_session(self.headers.get(SESSION_HEADER, "")), point.progress_token)
        return self._decoder.follow_again(point.tenant, point.task_id, point.tool)

    def call(self) -> Call:
        call = super().call()
        call.cursor = self._point.cursor
        return call

    async def _send_call(self, call: WaitingCall, events: EventStream) -> web.StreamResponse:
        call.task_id = self._point.task_id
        async with aclosing(call.frames(events)) as frames:
            return await self._send_stream(frames, call.last_frame)


async def _after(
    first: asyncio.Future[Sequence[bytes]], frames: AsyncGenerator[Sequence[bytes], None]
) -> AsyncGenerator[Sequence[bytes], None]:
    """The frames of a call whose first ones are on their way; a comment keeps the connection until then."""
    if not first.done():
        yield (sse.KEEP_ALIVE,)
    yield await first
    async for batch in frames:
        yield batch
