"""Requests of A2A 1.0 as they go over the wire, for each binding: the load of tests and of bench/load.

JSON comes from protobuf's own library, not from the codecs of the server under load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import orjson
from google.protobuf.json_format import MessageToDict

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

Request = (
    pb.SendMessageRequest | pb.GetTaskRequest | pb.CancelTaskRequest | pb.SubscribeToTaskRequest | pb.ListTasksRequest
)

HEADERS: Final = {"A2A-Version": "1.0"}
RESUME: Final = "urn:dragoman:resume:v1"
"""The extension that gives events their position; its key in their metadata."""
STREAMING: Final = frozenset({"SendStreamingMessage", "SubscribeToTask"})
"""RPCs whose response is a stream."""

_SERVICE: Final = f"/{pb.DESCRIPTOR.services_by_name['A2AService'].full_name}/"
_REST: Final = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("GET", "/tasks/{id}:subscribe"),
}
"""HTTP method and path of each RPC."""


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A request: an HTTP method, path and body, or a gRPC path and message."""

    path: str
    body: bytes = b""
    method: str = "POST"


def grpc_request(rpc: str, request: Request) -> WireRequest:
    """A gRPC call."""
    return WireRequest(_SERVICE + rpc, request.SerializeToString())


def rest_request(rpc: str, request: Request) -> WireRequest:
    """A call over HTTP+JSON. The tenant and the task are in its path, other fields of a GET in its query."""
    fields = MessageToDict(request)
    tenant = f"/{request.tenant}" if fields.pop("tenant", "") else ""
    method, template = _REST[rpc]
    path = tenant + template.format(id=fields.pop("id", ""))
    if method == "POST":
        return WireRequest(path, orjson.dumps(fields))
    return WireRequest(f"{path}?{urlencode(fields)}" if fields else path, method=method)


def jsonrpc_request(rpc: str, request: Request, path: str = "/") -> WireRequest:
    """A JSON-RPC call, by POST; its body is a frame of a WebSocket too."""
    call = {"jsonrpc": "2.0", "id": 1, "method": rpc, "params": MessageToDict(request)}
    return WireRequest(path, orjson.dumps(call))
