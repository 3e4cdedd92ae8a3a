"""Calls of a server over every binding, with any headers; results are HTTP statuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import grpc
from multidict import CIMultiDict

from dragoman.wiring.app import App
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.a2a.v1 import a2a_pb2_grpc as v03_rpc
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as ops_rpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

Headers = list[tuple[str, str]]

MESSAGE: Final = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
MESSAGE_03: Final = {"messageId": "m", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "hi"}]}
MESSAGE_A2A_V1: Final = {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}
MESSAGE_01: Final = {"role": "user", "parts": [{"type": "text", "text": "hi"}]}


@dataclass
class Response:
    """A response: status (200, 401, 403, ...), and everything else as one text."""

    status: int
    text: str = ""
    challenge: str = ""
    body: Any = field(default=None)


Endpoint = Callable[[App, Headers], Awaitable[Response]]

_STATUS: Final = {
    grpc.StatusCode.OK: 200,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.UNAVAILABLE: 503,
}


_REASONS: Final = {"": 200, "UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403}


def _over_grpc(call: Callable[[grpc.aio.Channel, Any], Any]) -> Endpoint:
    async def endpoint(app: App, headers: Headers) -> Response:
        metadata = tuple((name.lower(), value) for name, value in headers)
        async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
            try:
                called = call(channel, metadata)
                reported = [one async for one in called] if hasattr(called, "__aiter__") else await called
            except grpc.aio.AioRpcError as error:
                trailers = str(error.trailing_metadata())
                return Response(_STATUS.get(error.code(), 500), f"{error.details()} {trailers}")
            return Response(200, body=reported)

    return endpoint


def over_http(method: str, path: str, body: Any = None) -> Endpoint:
    async def endpoint(app: App, headers: Headers) -> Response:
        url = f"http://{app.http}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, json=body, headers=CIMultiDict(headers)) as answer,
        ):
            text = await answer.text()
            challenge = answer.headers.get("WWW-Authenticate", "")
            is_json = answer.content_type == "application/json"
            return Response(answer.status, text, challenge, await answer.json() if is_json else None)

    return endpoint


async def _over_websocket(app: App, headers: Headers) -> Response:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.ws_connect(f"http://{app.http}/ws", headers=CIMultiDict(headers)) as socket:
                await socket.send_json(rpc_call("SendMessage", {"message": MESSAGE}))
                async with asyncio.timeout(60):
                    value = await socket.receive_json()
                reason = value["error"]["data"][0]["reason"] if "error" in value else ""
                return Response(_REASONS.get(reason, 500), str(value), body=value)
        except aiohttp.WSServerHandshakeError as error:
            sent: Any = error.headers
            return Response(error.status, error.message, sent.get("WWW-Authenticate", ""))


def rpc_call(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


_SEND: Final = pb.SendMessageRequest(message=pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hi")]))
_SEND_03: Final = v03.SendMessageRequest(
    request=v03.Message(message_id="m", role=v03.ROLE_USER, content=[v03.Part(text="hi")])
)

ENDPOINTS: Final[dict[str, Endpoint]] = {
    "gRPC 1.0": _over_grpc(lambda channel, data: rpc.A2AServiceStub(channel).SendMessage(_SEND, metadata=data)),
    "gRPC 1.0 stream": _over_grpc(
        lambda channel, data: rpc.A2AServiceStub(channel).SendStreamingMessage(_SEND, metadata=data)
    ),
    "gRPC 0.3": _over_grpc(lambda channel, data: v03_rpc.A2AServiceStub(channel).SendMessage(_SEND_03, metadata=data)),
    "REST 1.0": over_http("POST", "/message:send", {"message": MESSAGE}),
    "REST 1.0 stream": over_http("POST", "/message:stream", {"message": MESSAGE}),
    "REST 0.3": over_http("POST", "/v1/message:send", {"message": MESSAGE_A2A_V1}),
    "REST, Google": over_http(
        "POST",
        "/v1/projects/p/locations/l/collections/c/engines/e/assistants/a/agents/echo/a2a/v1/message:send",
        {"message": MESSAGE_A2A_V1},
    ),
    "JSON-RPC 1.0": over_http("POST", "/", rpc_call("SendMessage", {"message": MESSAGE})),
    "JSON-RPC 1.0 stream": over_http("POST", "/", rpc_call("SendStreamingMessage", {"message": MESSAGE})),
    "JSON-RPC 0.3": over_http("POST", "/", rpc_call("message/send", {"message": MESSAGE_03})),
    "JSON-RPC 0.3 stream": over_http("POST", "/", rpc_call("message/stream", {"message": MESSAGE_03})),
    "JSON-RPC 0.1": over_http("POST", "/", rpc_call("tasks/send", {"id": "t", "message": MESSAGE_01})),
    "WebSocket": _over_websocket,
}
"""A send over every binding."""

OPERATORS: Final[Endpoint] = _over_grpc(
    lambda channel, data: ops_rpc.OpsServiceStub(channel).ListAgents(ops.ListAgentsRequest(), metadata=data)
)
"""An operator call."""
