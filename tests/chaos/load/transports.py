"""Minimal clients of the four bindings of A2A 1.0 and of MCP, with cursors and idempotency keys.

Both are sent as HTTP headers and gRPC metadata; events have their position in their metadata if the client activates
the extension. A server without support ignores them, and its events have no sequence.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import aiohttp
import grpc
import orjson
from tests.chaos.history import RESUME
from tests.chaos.load.mcp_transport import MCP_BINDINGS, McpTransport

from dragoman.client import ClientError
from dragoman.wire.dialects import json_proto
from dragoman.wire.http import sse
from dragoman.wire.json import protojson
from dragoman.wire.remote_errors import parse_json_error
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

BINDINGS: Final = ("grpc", "rest", "jsonrpc", "ws")
UNARY_BINDINGS: Final = (*BINDINGS, *MCP_BINDINGS)
"""MCP shows no events of A2A, so its streams are followed by clients of their own (mcp_clients.py)."""
CALL_TIMEOUT: Final = 30.0
"""Seconds for a response, including a pause of the server."""

_VERBS: Final = {
    "SendMessage": "/message:send",
    "SendStreamingMessage": "/message:stream",
    "GetTask": "/tasks/{id}",
    "CancelTask": "/tasks/{id}:cancel",
    "SubscribeToTask": "/tasks/{id}:subscribe",
}
Answer = TypeVar("Answer", pb.SendMessageResponse, pb.Task)
Request = pb.SendMessageRequest | pb.GetTaskRequest | pb.CancelTaskRequest | pb.SubscribeToTaskRequest


@dataclass(frozen=True, slots=True)
class Place:
    """An event with its cursor and sequence, or neither."""

    event: pb.StreamResponse
    cursor: str
    sequence: int | None


class Transports:
    """Transports of all bindings to one server. Raises ClientError and TimeoutError."""

    def __init__(self, http: str, target: str) -> None:
        self._base = http
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # its default of 100 would keep followers from connecting
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        )
        self._channel = grpc.aio.insecure_channel(target)
        self.mcp = McpTransport(self._session, http)

    async def close(self) -> None:
        await self._session.close()
        await self._channel.close()

    async def call(self, binding: str, rpc: str, request: Request, answer: type[Answer], key: str = "") -> Answer:
        """Makes a unary call."""
        async with (
            asyncio.timeout(CALL_TIMEOUT),
            aclosing(self._answers(binding, rpc, request, answer, key)) as answers,
        ):
            async for value in answers:
                assert isinstance(value, answer)
                return value
        raise ClientError("UNAVAILABLE", "the connection closed without an answer")

    async def stream(
        self, binding: str, rpc: str, request: Request, key: str = "", after: str = ""
    ) -> AsyncGenerator[Place, None]:
        """Yields the events of a stream. Raises UNAVAILABLE when it breaks."""
        answers = self._answers(binding, rpc, request, pb.StreamResponse, key, after)
        async with aclosing(answers):
            async for event in answers:
                yield placed(event)

    async def _answers(
        self, binding: str, rpc: str, request: Request, answer: Any, key: str = "", after: str = ""
    ) -> AsyncGenerator[Any, None]:
        try:
            if binding in MCP_BINDINGS:
                task = await self.mcp.call(binding, rpc, request, key)
                yield pb.SendMessageResponse(task=task) if answer is pb.SendMessageResponse else task
                return
            if binding == "grpc":
                async for value in self._grpc(rpc, request, answer, key, after):
                    yield value
                return
            codec: protojson.Codec[Any] = protojson.compile(answer, json_proto.PROTOJSON_V1)
            requested_codec: protojson.Codec[Any] = protojson.compile(type(request), json_proto.PROTOJSON_V1)
            values = getattr(self, f"_{binding}")(rpc, request, requested_codec.to_dict(request), _headers(key, after))
            async with aclosing(values):
                async for value in values:
                    if "error" in value:
                        raise ClientError.from_remote_error(parse_json_error(value["error"]))
                    yield codec.decode(value)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise ClientError("UNAVAILABLE", str(error)) from error

    async def _grpc(self, rpc: str, request: Request, answer: Any, key: str, after: str) -> AsyncGenerator[Any, None]:
        metadata = [("a2a-version", "1.0"), ("a2a-extensions", RESUME)]
        metadata += [("idempotency-key", key)] * bool(key) + [("dragoman-after", after)] * bool(after)
        path = f"/{pb.DESCRIPTOR.services_by_name['A2AService'].full_name}/{rpc}"
        write = type(request).SerializeToString
        try:
            if answer is not pb.StreamResponse:
                yield await self._channel.unary_unary(path, write, answer.FromString)(request, metadata=metadata)
                return
            events = self._channel.unary_stream(path, write, answer.FromString)(request, metadata=metadata)
            try:
                async for event in events:
                    yield event
            finally:
                events.cancel()
        except grpc.aio.AioRpcError as error:
            raise ClientError.from_rpc_error(error) from error

    async def _rest(
        self, rpc: str, request: Any, body: dict[str, Any], headers: Mapping[str, str]
    ) -> AsyncGenerator[dict[str, Any], None]:
        path = (f"/{request.tenant}" if request.tenant else "") + _VERBS[rpc].format(id=getattr(request, "id", ""))
        reads = rpc in ("GetTask", "SubscribeToTask")
        data = None if reads else orjson.dumps({name: body[name] for name in body if name not in ("tenant", "id")})
        streams = rpc in ("SendStreamingMessage", "SubscribeToTask")
        accept = "text/event-stream" if streams else "application/json"
        how = {**headers, "Accept": accept, "Content-Type": "application/json"}
        async with self._session.request(
            "GET" if reads else "POST", self._base + path, data=data, headers=how
        ) as response:
            async for value in _values(response):
                yield value

    async def _jsonrpc(
        self, rpc: str, request: Any, body: dict[str, Any], headers: Mapping[str, str]
    ) -> AsyncGenerator[dict[str, Any], None]:
        async with self._session.post(self._base + "/", data=_envelope(rpc, body), headers=headers) as response:
            async for value in _values(response):
                yield value if "error" in value else value["result"]

    async def _ws(
        self, rpc: str, request: Any, body: dict[str, Any], headers: Mapping[str, str]
    ) -> AsyncGenerator[dict[str, Any], None]:
        streams = rpc in ("SendStreamingMessage", "SubscribeToTask")
        async with self._session.ws_connect(self._base + "/ws", max_msg_size=0, headers=headers) as socket:
            await socket.send_str(_envelope(rpc, body).decode())
            async for frame in socket:
                if frame.type is not aiohttp.WSMsgType.TEXT:
                    break
                value = orjson.loads(frame.data)
                if value.get("result") == {"status": "stream_complete"}:
                    return
                yield value if "error" in value else value["result"]
                if not streams:
                    return
        raise ClientError("UNAVAILABLE", "the connection broke off")


def placed(event: pb.StreamResponse) -> Place:
    """Returns an event with the position in its metadata."""
    payload = getattr(event, event.WhichOneof("payload") or "task")
    if RESUME not in payload.metadata:
        return Place(event, "", None)
    value = payload.metadata[RESUME]
    return Place(event, str(value["cursor"]), int(value["sequence"]))


def _headers(key: str, after: str) -> dict[str, str]:
    headers = {"A2A-Version": "1.0", "A2A-Extensions": RESUME, "Content-Type": "application/json"}
    if key:
        headers["Idempotency-Key"] = key
    if after:
        headers["Last-Event-ID"] = after
    return headers


def _envelope(rpc: str, body: dict[str, Any]) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": uuid.uuid4().hex, "method": rpc, "params": body})


async def _values(response: aiohttp.ClientResponse) -> AsyncGenerator[dict[str, Any], None]:
    """Yields the JSON of a response: one object, or the data of its events."""
    if response.content_type != "text/event-stream":
        value = orjson.loads(await response.read())
        if not isinstance(value, dict):
            raise ClientError("INTERNAL", f"the answer is no object: {value!r}")
        yield value
        return
    parser = sse.SseParser()
    async for chunk in response.content.iter_any():
        for event in parser.feed(chunk):
            yield orjson.loads(event.data)
