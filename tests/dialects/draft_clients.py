"""Clients of 1.0 and of the draft of 1.1 over every binding: requests are JSON, answers are JSON and raw bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import grpc
from aiohttp import ClientResponse
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from tests.dialects.dialect_clients import ServerConnections

from dragoman.wire.dialects import draft_v1_1
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["A2AService"]


class Rejected(NamedTuple):
    """What a client reads of an error: the number or name of its code, and ErrorInfo."""

    code: Any
    reason: str
    metadata: Mapping[str, str]


@dataclass
class Answer:
    """One answer: the raw bytes of its parts, and the JSON values in them, or the error."""

    raw: list[bytes]
    values: list[Any]
    error: Rejected | None = None

    @property
    def value(self) -> Any:
        assert self.error is None, self.error
        (value,) = self.values
        return value


Call = Callable[[ServerConnections, str, dict[str, Any], str], Any]
"""A call of a method of 1.0 with these params, and this version (empty: none named)."""


def headers_of(version: str) -> dict[str, str]:
    return {"A2A-Version": version} if version else {}


def head(response: ClientResponse) -> bytes:
    """Status and headers, without the date."""
    lines = [f"{name}: {value}" for name, value in response.headers.items() if name not in ("Date", "Content-Length")]
    return "\n".join([str(response.status), *sorted(lines)]).encode()


def rejected(code: Any, details: list[dict[str, Any]]) -> Rejected:
    (info,) = [detail for detail in details if detail["@type"].endswith("ErrorInfo")]
    return Rejected(code, info["reason"], info.get("metadata", {}))


def jsonrpc_answer(raw: list[bytes], responses: list[Any]) -> Answer:
    for response in responses:
        if "error" in response:
            error = response["error"]
            return Answer(raw, [], rejected(error["code"], error["data"]))
    return Answer(raw, [response["result"] for response in responses])


def sse_data(body: bytes) -> list[Any]:
    return [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: ")]


async def jsonrpc(connections: ServerConnections, method: str, params: dict[str, Any], version: str) -> Answer:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with connections.http.post("/", json=call, headers=headers_of(version)) as response:
        body = await response.read()
        is_stream = response.content_type == "text/event-stream"
        return jsonrpc_answer([head(response), body], sse_data(body) if is_stream else [json.loads(body)])


async def websocket(connections: ServerConnections, method: str, params: dict[str, Any], version: str) -> Answer:
    raw: list[bytes] = []
    responses: list[Any] = []
    async with connections.http.ws_connect("/ws", headers=headers_of(version)) as socket:
        await socket.send_json({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        while True:
            text = await socket.receive_str()
            raw.append(text.encode())
            response = json.loads(text)
            if response.get("result") == {"status": "stream_complete"}:
                return jsonrpc_answer(raw, responses)
            responses.append(response)
            if not SERVICE.methods_by_name[method].server_streaming or "error" in response:
                return jsonrpc_answer(raw, responses)


REST_PATHS = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}


async def rest(connections: ServerConnections, method: str, params: dict[str, Any], version: str) -> Answer:
    verb, path = REST_PATHS[method]
    rest_of = {key: value for key, value in params.items() if f"{{{key}}}" not in path}
    query = {key: str(value) for key, value in rest_of.items()} if verb == "GET" else {}
    async with connections.http.request(
        verb,
        path.format(**params),
        params=query,
        json=None if verb == "GET" else rest_of,
        headers=headers_of(version),
    ) as response:
        body = await response.read()
        raw = [head(response), body]
        if response.content_type == "text/event-stream":
            return Answer(raw, sse_data(body))
        value = json.loads(body)
        if response.status != 200:
            return Answer(raw, [], rejected(response.status, value["error"]["details"]))
        return Answer(raw, [value])


async def over_grpc(connections: ServerConnections, method: str, params: dict[str, Any], version: str) -> Answer:
    """With the draft's messages whatever the version, as one stub may send both."""
    rpc = SERVICE.methods_by_name[method]
    request_class = draft_v1_1.message_class(getattr(pb, rpc.input_type.name))
    response_class = draft_v1_1.message_class(getattr(pb, rpc.output_type.name))
    channel: Any = connections.channel
    metadata = [(name.lower(), value) for name, value in headers_of(version).items()]
    request: Message = ParseDict(params, request_class())
    data = request.SerializeToString()
    name = f"/{SERVICE.full_name}/{method}"
    try:
        if rpc.server_streaming:
            raw = [event async for event in channel.unary_stream(name)(data, metadata=metadata)]
        else:
            raw = [await channel.unary_unary(name)(data, metadata=metadata)]
    except grpc.aio.AioRpcError as error:
        status = status_pb2.Status.FromString(dict(error.trailing_metadata() or ())["grpc-status-details-bin"])
        info = error_details_pb2.ErrorInfo()
        assert status.details[0].Unpack(info)
        return Answer([status.SerializeToString()], [], Rejected(error.code().name, info.reason, dict(info.metadata)))
    return Answer(raw, [MessageToDict(response_class.FromString(data)) for data in raw])


BINDINGS: dict[str, Call] = {"JSON-RPC": jsonrpc, "WebSocket": websocket, "REST": rest, "gRPC": over_grpc}

MISMATCH_CODES = {"JSON-RPC": -32010, "WebSocket": -32010, "REST": 409, "gRPC": "ABORTED"}
