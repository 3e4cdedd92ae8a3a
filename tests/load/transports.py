"""Minimal clients of the four bindings of A2A 1.0 and of MCP, with cursors and idempotency keys.

Both are sent as HTTP headers and gRPC metadata; events have their position in their metadata if the client activates
the extension. A server without support ignores them, and its events have no sequence.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import aiohttp
import grpc
import orjson
from tests.load.mcp_transport import MCP_BINDINGS, ROOT_AGENT, McpTransport
from tests.load.requests import HEADERS, RESUME, STREAMING, Request, grpc_request, jsonrpc_request, rest_request

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

Answer = TypeVar("Answer", pb.SendMessageResponse, pb.Task)


@dataclass(frozen=True, slots=True)
class Place:
    """An event with its cursor and sequence, or neither."""

    event: pb.StreamResponse
    cursor: str
    sequence: int | None


class Transports:
    """Transports of all bindings to one server. Raises ClientError and TimeoutError."""

    def __init__(
        self,
        http: str,
        target: str,
        *,
        caller: Mapping[str, str] | None = None,
        connections: int = 0,
        root_agent: str = ROOT_AGENT,
        call_timeout: float = CALL_TIMEOUT,
    ) -> None:
        """http: the base URL. target: HOST:PORT of gRPC. caller: headers of the principal.

        connections: the most HTTP connections at once, 0 for any number: a limit keeps followers from connecting.
        root_agent: the tool of MCP that stands for the agent without a name. call_timeout: seconds for a response.
        """
        self._base = http
        self._call_timeout = call_timeout
        self._caller = dict(caller or {})
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        )
        self._channel = grpc.aio.insecure_channel(target)
        self.mcp = McpTransport(self._session, http, self._caller, root_agent)

    async def close(self) -> None:
        await self._session.close()
        await self._channel.close()

    async def call(self, binding: str, rpc: str, request: Request, answer: type[Answer], key: str = "") -> Answer:
        """Makes a unary call."""
        async with (
            asyncio.timeout(self._call_timeout),
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
            values = getattr(self, f"_{binding}")(rpc, request, {**self._caller, **_headers(key, after)})
            async with aclosing(values):
                async for value in values:
                    if "error" in value:
                        raise ClientError.from_remote_error(parse_json_error(value["error"]))
                    yield codec.decode(value)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise ClientError("UNAVAILABLE", str(error)) from error

    async def _grpc(self, rpc: str, request: Request, answer: Any, key: str, after: str) -> AsyncGenerator[Any, None]:
        metadata = [("a2a-version", "1.0"), ("a2a-extensions", RESUME), *self._caller.items()]
        metadata += [("idempotency-key", key)] * bool(key) + [("dragoman-after", after)] * bool(after)
        wire = grpc_request(rpc, request)
        unary: Any = self._channel.unary_unary(wire.path, response_deserializer=answer.FromString)
        stream: Any = self._channel.unary_stream(wire.path, response_deserializer=answer.FromString)
        try:
            if rpc not in STREAMING:
                yield await unary(wire.body, metadata=metadata)
                return
            events = stream(wire.body, metadata=metadata)
            try:
                async for event in events:
                    yield event
            finally:
                events.cancel()
        except grpc.aio.AioRpcError as error:
            raise ClientError.from_rpc_error(error) from error

    async def _rest(self, rpc: str, request: Request, headers: Mapping[str, str]) -> AsyncGenerator[Any, None]:
        wire = rest_request(rpc, request)
        accept = {"Accept": "text/event-stream" if rpc in STREAMING else "application/json"}
        async with self._session.request(
            wire.method, self._base + wire.path, data=wire.body or None, headers={**headers, **accept}
        ) as response:
            async for value in _values(response):
                yield value

    async def _jsonrpc(self, rpc: str, request: Request, headers: Mapping[str, str]) -> AsyncGenerator[Any, None]:
        wire = jsonrpc_request(rpc, request)
        async with self._session.post(self._base + wire.path, data=wire.body, headers=headers) as response:
            async for value in _values(response):
                yield value if "error" in value else value["result"]

    async def _ws(self, rpc: str, request: Request, headers: Mapping[str, str]) -> AsyncGenerator[Any, None]:
        async with self._session.ws_connect(self._base + "/ws", max_msg_size=0, headers=headers) as socket:
            await socket.send_str(jsonrpc_request(rpc, request).body.decode())
            async for frame in socket:
                if frame.type is not aiohttp.WSMsgType.TEXT:
                    break
                value = orjson.loads(frame.data)
                if value.get("result") == {"status": "stream_complete"}:
                    return
                yield value if "error" in value else value["result"]
                if rpc not in STREAMING:
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
    headers = {**HEADERS, "A2A-Extensions": RESUME, "Content-Type": "application/json"}
    if key:
        headers["Idempotency-Key"] = key
    if after:
        headers["Last-Event-ID"] = after
    return headers


async def _values(response: aiohttp.ClientResponse) -> AsyncGenerator[dict[str, Any], None]:
    """Yields the JSON of a response: one object, or the data of its events."""
    if response.status == 204:  # the task has ended, without a further event
        return
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
