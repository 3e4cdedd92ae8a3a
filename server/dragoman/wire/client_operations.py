"""How a client says each call of A2A 1.0 in each dialect and over each binding, and how it reads the answers.

Requests and answers are those of `lf.a2a.v1` in every one of them. There is no I/O here: our own client says these
phrases to our server, and agents upstream are spoken to with them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from google.protobuf.message import Message

from dragoman.wire.dialects import json_proto, json_v01, json_v03, v03_client
from dragoman.wire.json import protojson
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

OPERATION_TYPES: Final = {
    "SendMessage": (pb.SendMessageRequest, pb.SendMessageResponse),
    "SendStreamingMessage": (pb.SendMessageRequest, pb.StreamResponse),
    "GetTask": (pb.GetTaskRequest, pb.Task),
    "ListTasks": (pb.ListTasksRequest, pb.ListTasksResponse),
    "CancelTask": (pb.CancelTaskRequest, pb.Task),
    "SubscribeToTask": (pb.SubscribeToTaskRequest, pb.StreamResponse),
}
"""The calls by the names of 1.0: what is asked, and what is answered."""


@dataclass(frozen=True, slots=True)
class ClientOperation:
    """How one call is said: its name or path, the request as JSON, the answer from JSON."""

    name: str
    encode_request: Callable[[Any], Any]
    decode_response: Callable[[Any], Message]


# JSON-RPC --------------------------------------------------------------------------------------------------

_JSONRPC_METHODS_03: Final = {
    "SendMessage": "message/send",
    "SendStreamingMessage": "message/stream",
    "GetTask": "tasks/get",
    "CancelTask": "tasks/cancel",
    "SubscribeToTask": "tasks/resubscribe",
}


def _jsonrpc_operations(dialect: protojson.JsonDialect, names: Mapping[str, str]) -> dict[str, ClientOperation]:
    return {
        rpc: ClientOperation(
            name,
            protojson.compile(OPERATION_TYPES[rpc][0], dialect).to_dict,
            protojson.compile(OPERATION_TYPES[rpc][1], dialect).decode,
        )
        for rpc, name in names.items()
    }


def _task_id_params(request: Any) -> dict[str, Any]:
    return {"id": request.id}


def _write_send_01(request: Any) -> dict[str, Any]:
    """A 0.1 send: the client names its task."""
    request.message.task_id = request.message.task_id or str(uuid.uuid4())
    return json_v01.write_send(request)


def _read_send_01(value: Any) -> Message:
    return pb.SendMessageResponse(task=json_v01.read_task(value))


JSONRPC_OPERATIONS: Final[dict[str, dict[str, ClientOperation]]] = {
    "1.0": _jsonrpc_operations(json_proto.PROTOJSON_V1, {rpc: rpc for rpc in OPERATION_TYPES}),
    "0.3": _jsonrpc_operations(json_v03.JSON_V03, _JSONRPC_METHODS_03),
    "0.1": {
        "SendMessage": ClientOperation("tasks/send", _write_send_01, _read_send_01),
        "SendStreamingMessage": ClientOperation("tasks/sendSubscribe", _write_send_01, json_v01.read_event),
        "GetTask": ClientOperation("tasks/get", _task_id_params, json_v01.read_task),
        "CancelTask": ClientOperation("tasks/cancel", _task_id_params, json_v01.read_task),
        "SubscribeToTask": ClientOperation("tasks/resubscribe", _task_id_params, json_v01.read_event),
    },
}
"""By dialect, then by the call's name in 1.0; what is not there cannot be said."""


# REST ------------------------------------------------------------------------------------------------------


def _rest_codec_03(
    write: Callable[[Any], Message], response_class: type[Message], read: Callable[[Any], Message]
) -> tuple[Any, Any]:
    """A 0.3 call as REST has it: ProtoJSON of `a2a.v1`."""
    codec: protojson.Codec[Any] = protojson.compile(response_class, json_proto.PROTOJSON_V03)

    def to_json(request: Any) -> Any:
        sent = write(request)
        codec: protojson.Codec[Any] = protojson.compile(type(sent), json_proto.PROTOJSON_V03)
        return codec.to_dict(sent)

    return to_json, lambda value: read(codec.decode(value))


_REST_03: Final = {
    "SendMessage": _rest_codec_03(v03_client.write_send_message, v03.SendMessageResponse, v03_client.read_send_message),
    "SendStreamingMessage": _rest_codec_03(v03_client.write_send_message, v03.StreamResponse, v03_client.read_stream),
    "GetTask": _rest_codec_03(v03_client.write_get_task, v03.Task, v03_client.read_task),
    "ListTasks": _rest_codec_03(v03_client.write_list_tasks, v03.ListTasksResponse, v03_client.read_list_tasks),
    "CancelTask": _rest_codec_03(v03_client.write_cancel_task, v03.Task, v03_client.read_task),
    "SubscribeToTask": _rest_codec_03(v03_client.write_subscription, v03.StreamResponse, v03_client.read_stream),
}

_REST_PATHS: Final = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("GET", "/tasks/{id}:subscribe"),
}
_PATH_FIELDS: Final = ("id", "name", "tenant")


class RestCall(NamedTuple):
    """One call over REST: the path is what comes after the interface's URL, with its query; a body of None is none."""

    operation: ClientOperation
    method: str
    path: str
    body: Any


def rest_call(dialect: str, rpc: str, request: Any, tenant: str = "") -> RestCall:
    """A call in 1.0 or 0.3 over REST. `tenant` goes before the path."""
    old = dialect == "0.3"
    if old:
        write, read = _REST_03[rpc]
    else:
        sent, answer = OPERATION_TYPES[rpc]
        write = protojson.compile(sent, json_proto.PROTOJSON_V1).to_dict
        read = protojson.compile(answer, json_proto.PROTOJSON_V1).decode
    method, template = _REST_PATHS[rpc]
    path = template.format(id=quote(getattr(request, "id", ""), safe=""))
    prefix = f"/{tenant}" if tenant else ""
    value = write(request)
    query = ""
    if method == "GET":
        pairs = [f"{key}={quote(str(item))}" for key, item in value.items() if key not in _PATH_FIELDS]
        query = "?" + "&".join(pairs) if pairs else ""
        value = None
    return RestCall(ClientOperation(rpc, write, read), method, f"{prefix}{'/v1' if old else ''}{path}{query}", value)


# gRPC ------------------------------------------------------------------------------------------------------


class GrpcOperation(NamedTuple):
    """How one call is said over gRPC: the method's path, the request, and the answer as it comes and as it is read."""

    path: str
    encode_request: Callable[[Any], Message]
    response_class: type[Message]
    decode_response: Callable[[Any], Message]


def _identity(message: Any) -> Any:
    return message


_GRPC_03: Final[dict[str, tuple[str, Callable[[Any], Message], type[Message], Callable[[Any], Message]]]] = {
    "SendMessage": (
        "SendMessage",
        v03_client.write_send_message,
        v03.SendMessageResponse,
        v03_client.read_send_message,
    ),
    "SendStreamingMessage": (
        "SendStreamingMessage",
        v03_client.write_send_message,
        v03.StreamResponse,
        v03_client.read_stream,
    ),
    "GetTask": ("GetTask", v03_client.write_get_task, v03.Task, v03_client.read_task),
    "ListTasks": ("ListTasks", v03_client.write_list_tasks, v03.ListTasksResponse, v03_client.read_list_tasks),
    "CancelTask": ("CancelTask", v03_client.write_cancel_task, v03.Task, v03_client.read_task),
    "SubscribeToTask": ("TaskSubscription", v03_client.write_subscription, v03.StreamResponse, v03_client.read_stream),
}

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["A2AService"].full_name
_SERVICE_03: Final = v03.DESCRIPTOR.services_by_name["A2AService"].full_name

GRPC_OPERATIONS: Final[dict[str, dict[str, GrpcOperation]]] = {
    "1.0": {
        rpc: GrpcOperation(f"/{_SERVICE}/{rpc}", _identity, answer, _identity)
        for rpc, (_, answer) in OPERATION_TYPES.items()
    },
    "0.3": {
        rpc: GrpcOperation(f"/{_SERVICE_03}/{name}", write, answer, read)
        for rpc, (name, write, answer, read) in _GRPC_03.items()
    },
}
"""By dialect, then by the call's name in 1.0."""
