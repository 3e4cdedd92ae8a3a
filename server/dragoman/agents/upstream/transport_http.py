"""JSON-RPC and REST to an agent upstream, through the one way out."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import orjson
from google.protobuf.message import Message

from dragoman.agents.upstream.transport import DEFAULT_TRANSPORT_LIMITS, ResponseStream, TransportLimits
from dragoman.calling.errors import CallForbidden, CallRefused, ProtocolError, ServerUnavailable
from dragoman.core.errors import A2AError
from dragoman.core.trace import CURRENT_TRACE, TRACE_HEADER
from dragoman.ports import ConnectFailed, OutboundFailed, OutboundForbidden, OutboundResponseStream, OutboundStreams
from dragoman.wire import client_operations, remote_errors
from dragoman.wire.cards.remote_card import Interface
from dragoman.wire.client_operations import ClientOperation
from dragoman.wire.http import sse
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

SSE_CONTENT_TYPE: Final = "text/event-stream"

_BLOCKING_CALLS: Final = frozenset({"SendMessage"})
"""Calls that some agents answer only when the task has ended, whatever they are asked."""


class UpstreamHttpTransport:
    """Implements `Road` over JSON-RPC or REST, as the interface says."""

    def __init__(
        self,
        interface: Interface,
        outlet: OutboundStreams,
        headers: Mapping[str, str],
        limits: TransportLimits = DEFAULT_TRANSPORT_LIMITS,
    ) -> None:
        """`headers` are sent with each call: they show who calls."""
        self.interface = interface
        self._outlet = outlet
        self._headers = dict(headers)
        self._limits = limits
        self._subscribe_method_swapped = False
        """Subscriptions over REST are asked for with the other method."""

    async def call(self, rpc: str, request: Message, *, key: str = "", extensions: str = "") -> Message:
        phrase, method, path, body = self._encode(rpc, request)
        silence = self._limits.idle_timeout if rpc in _BLOCKING_CALLS else self._limits.response_timeout
        async with self._open(method, path, body, "application/json", key, extensions, silence) as answer:
            value = await self._read_json(answer)
            return self._decode(phrase, self._unwrap_result(answer.status, value))

    async def stream(self, rpc: str, request: Message, *, key: str = "", extensions: str = "") -> ResponseStream:
        phrase, method, path, body = self._encode(rpc, request)
        if self._subscribe_method_swapped and rpc == "SubscribeToTask" and self._is_rest:
            method = _other_method(method)
        try:
            async with aclosing(self._events(phrase, method, path, body, key, extensions)) as events:
                async for event in events:
                    yield event
        except CallRefused as refused:
            # The proto says GET and the prose POST, and servers follow one or the other.
            wrong = (
                refused.remote_error.is_unknown_method
                and rpc == "SubscribeToTask"
                and self._is_rest
                and not self._subscribe_method_swapped
            )
            if not wrong:
                raise
            self._subscribe_method_swapped = True
            async with aclosing(self._events(phrase, _other_method(method), path, body, key, extensions)) as events:
                async for event in events:
                    yield event

    async def close(self) -> None:
        """The connections are the outlet's."""

    @property
    def _is_rest(self) -> bool:
        return self.interface.binding == "HTTP+JSON"

    def _encode(self, rpc: str, request: Any) -> tuple[ClientOperation, str, str, Any]:
        """The words of a call: how to read the answer, the method, the path behind the interface's URL, the body."""
        sent = type(request)()
        sent.CopyFrom(request)
        if "tenant" in sent.DESCRIPTOR.fields_by_name:
            sent.tenant = self.interface.tenant
        if self._is_rest:
            tenant = self.interface.tenant if self.interface.dialect == "1.0" else ""
            return tuple(client_operations.rest_call(self.interface.dialect, rpc, sent, tenant))
        phrase = client_operations.JSONRPC_OPERATIONS[self.interface.dialect].get(rpc)
        if phrase is None:
            raise CallRefused.from_answer(
                remote_errors.RemoteError("UNIMPLEMENTED", f"{self.interface.dialect} has no {rpc}")
            )
        envelope = {
            "jsonrpc": "2.0",
            "id": str(uuid.uuid4()),
            "method": phrase.name,
            "params": phrase.encode_request(sent),
        }
        return phrase, "POST", "", envelope

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, body: Any, accept: str, key: str, extensions: str, idle_timeout: float
    ) -> AsyncIterator[OutboundResponseStream]:
        url = self.interface.url.rstrip("/") + path if self._is_rest else self.interface.url
        headers = {**self._headers, "Accept": accept, **self._call_headers(key, extensions)}
        data = None if body is None else orjson.dumps(body)
        if data is not None:
            headers["Content-Type"] = "application/json"
        if context := CURRENT_TRACE.get():
            headers[TRACE_HEADER] = context
        try:
            async with self._outlet.open(method, url, headers, data, idle_timeout=idle_timeout) as answer:
                if 300 <= answer.status < 400:
                    raise ProtocolError(
                        f"{self._host}: answered with a redirect ({answer.status}), which is not followed"
                    )
                yield answer
        except OutboundForbidden as error:
            raise CallForbidden(str(error)) from None
        except OutboundFailed as error:
            raise ServerUnavailable.for_reason(
                str(error), may_have_arrived=not isinstance(error, ConnectFailed)
            ) from None

    def _call_headers(self, key: str, extensions: str) -> dict[str, str]:
        old = self.interface.dialect != "1.0"
        given = {
            "A2A-Version": "" if self.interface.dialect == "0.1" else self.interface.dialect,
            "X-A2A-Extensions" if old else "A2A-Extensions": extensions,
            "Idempotency-Key": key,
        }
        return {name: value for name, value in given.items() if value}

    async def _events(
        self, operation: ClientOperation, method: str, path: str, body: Any, key: str, extensions: str
    ) -> AsyncGenerator[pb.StreamResponse, None]:
        async with self._open(
            method, path, body, SSE_CONTENT_TYPE, key, extensions, self._limits.idle_timeout
        ) as answer:
            if answer.headers.get("content-type", "").partition(";")[0].strip().lower() != SSE_CONTENT_TYPE:
                # A refusal, or all that there is to say in one piece.
                result = self._unwrap_result(answer.status, await self._read_json(answer))
                yield self._decode_event(operation, result)
                return
            parser, taken = sse.SseParser(limit=self._limits.max_response_bytes), 0
            async for chunk in answer.chunks():
                taken += len(chunk)
                if taken > self._limits.max_stream_bytes:
                    raise ProtocolError(
                        f"{self._host}: the stream is longer than {self._limits.max_stream_bytes} bytes"
                    )
                try:
                    found = parser.feed(chunk)
                except A2AError as error:
                    raise ProtocolError(f"{self._host}: {error.message}") from None
                for one in found:
                    value = self._parse_event_json(one.data)
                    yield self._decode_event(operation, self._unwrap_result(200, value, stream=True))

    async def _read_json(self, response: OutboundResponseStream) -> Any:
        data, limit = bytearray(), time.monotonic() + self._limits.idle_timeout
        async for chunk in response.chunks():
            data += chunk
            if len(data) > self._limits.max_response_bytes:
                raise ProtocolError(f"{self._host}: the answer is longer than {self._limits.max_response_bytes} bytes")
            if time.monotonic() > limit:  # a byte now and then is no silence
                raise ServerUnavailable.for_reason(
                    f"{self._host}: the answer was not there within {self._limits.idle_timeout:g} s"
                )
        if response.status in (502, 503, 504):
            raise ServerUnavailable.for_reason(
                f"{self._host}: answered with status {response.status}", may_have_arrived=response.status != 503
            )
        try:
            return orjson.loads(bytes(data))
        except orjson.JSONDecodeError:
            if response.status >= 400:
                return None
            raise ProtocolError(f"{self._host}: the answer ({response.status}) is no JSON") from None

    def _parse_event_json(self, data: bytes) -> Any:
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            raise ProtocolError(f"{self._host}: an event of the stream is no JSON") from None

    def _unwrap_result(self, status: int, value: Any, *, stream: bool = False) -> Any:
        """What a call gave. Raises Refused, Nonsense."""
        if self._is_rest:
            if status >= 400 or (stream and isinstance(value, dict) and _is_error(value)):
                raise CallRefused.from_answer(remote_errors.parse_rest_error(status, value))
            return value
        if isinstance(value, dict) and value.get("error") is not None:
            raise CallRefused.from_answer(remote_errors.parse_json_error(value["error"]))
        if status >= 400:
            raise CallRefused.from_answer(remote_errors.parse_rest_error(status, value))
        if not isinstance(value, dict) or "result" not in value:
            raise ProtocolError(f"{self._host}: the answer is no JSON-RPC")
        return value["result"]

    def _decode(self, operation: ClientOperation, value: Any) -> Message:
        try:
            return operation.decode_response(value)
        except A2AError as error:
            said = (
                f"{self._host}: the answer to {operation.name} is not {self.interface.dialect}: {error.message[:300]}"
            )
            raise ProtocolError(said) from None

    def _decode_event(self, operation: ClientOperation, value: Any) -> pb.StreamResponse:
        event = self._decode(operation, value)
        assert isinstance(event, pb.StreamResponse)
        return event

    @property
    def _host(self) -> str:
        return self.interface.url.partition("://")[2].partition("/")[0]


def _other_method(method: str) -> str:
    return "POST" if method == "GET" else "GET"


def _is_error(value: Mapping[str, Any]) -> bool:
    """Whether an event of a REST stream is an error: of AIP-193, or of 0.3's servers."""
    return "error" in value or ("message" in value and ("code" in value or "type" in value))
