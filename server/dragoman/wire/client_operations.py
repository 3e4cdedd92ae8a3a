"""Client codecs: requests and responses of each operation, by binding and dialect.

Callers use the messages of `lf.a2a.v1` with every dialect. The public client and upstream agents use these codecs.
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
"""The request and response class of each operation, by its 1.0 name."""


@dataclass(frozen=True, slots=True)
class ClientOperation:
    """The codec of one operation over JSON: method name, request encoder, response decoder."""

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


_CANCEL_JSON_01: Final = protojson.compile(pb.CancelTaskRequest, json_v01.JSON_V01)


def _cancel_params(request: Any) -> dict[str, Any]:
    params = _CANCEL_JSON_01.to_dict(request)
    return {key: params[key] for key in ("id", "metadata") if key in params}


def _write_send_01(request: Any) -> dict[str, Any]:
    """Encodes a 0.1 send, in which the client chooses the task id."""
    request.message.task_id = request.message.task_id or str(uuid.uuid4())
    return json_v01.write_send(request)


def _read_send_01(result: Any) -> Message:
    return pb.SendMessageResponse(task=json_v01.read_task(result))


JSONRPC_OPERATIONS: Final[dict[str, dict[str, ClientOperation]]] = {
    "1.0": _jsonrpc_operations(json_proto.PROTOJSON_V1, {rpc: rpc for rpc in OPERATION_TYPES}),
    "0.3": _jsonrpc_operations(json_v03.JSON_V03, _JSONRPC_METHODS_03),
    "0.1": {
        "SendMessage": ClientOperation("tasks/send", _write_send_01, _read_send_01),
        "SendStreamingMessage": ClientOperation("tasks/sendSubscribe", _write_send_01, json_v01.read_event),
        "GetTask": ClientOperation("tasks/get", _task_id_params, json_v01.read_task),
        "CancelTask": ClientOperation("tasks/cancel", _cancel_params, json_v01.read_task),
        "SubscribeToTask": ClientOperation("tasks/resubscribe", _task_id_params, json_v01.read_event),
    },
}
"""By dialect, then by 1.0 name. Missing operations do not exist in that dialect."""


# REST ------------------------------------------------------------------------------------------------------


def _rest_codec_03(
    write: Callable[[Any], Message], response_class: type[Message], read: Callable[[Any], Message]
) -> tuple[Any, Any]:
    """The JSON encoder and decoder of a 0.3 operation over REST: ProtoJSON of `a2a.v1`."""
    response_codec: protojson.Codec[Any] = protojson.compile(response_class, json_proto.PROTOJSON_V03)

    def to_json(request: Any) -> Any:
        message = write(request)
        request_codec: protojson.Codec[Any] = protojson.compile(type(message), json_proto.PROTOJSON_V03)
        return request_codec.to_dict(message)

    return to_json, lambda body: read(response_codec.decode(body))


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
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
}
"""HTTP method and path by 1.0 name. Subscriptions are a POST without body (1.0 §11.3.2, 0.3 §7.9)."""
_PATH_FIELDS: Final = ("id", "name", "tenant")


class RestCall(NamedTuple):
    """One REST request. `path` follows the interface's URL and includes the query; `body` is JSON, None for no body."""

    operation: ClientOperation
    method: str
    path: str
    body: Any


def rest_call(dialect: str, rpc: str, request: Any, tenant: str = "") -> RestCall:
    """Encodes a request for REST in dialect `1.0` or `0.3`. The path begins with `tenant`, if any."""
    is_v03 = dialect == "0.3"
    if is_v03:
        write, read = _REST_03[rpc]
    else:
        request_class, response_class = OPERATION_TYPES[rpc]
        write = protojson.compile(request_class, json_proto.PROTOJSON_V1).to_dict
        read = protojson.compile(response_class, json_proto.PROTOJSON_V1).decode
    method, template = _REST_PATHS[rpc]
    path = template.format(id=quote(getattr(request, "id", ""), safe=""))
    prefix = f"/{tenant}" if tenant else ""
    body = write(request)
    query = ""
    if rpc == "SubscribeToTask":
        body = None
    elif method == "GET":
        pairs = [f"{key}={quote(str(item))}" for key, item in body.items() if key not in _PATH_FIELDS]
        query = "?" + "&".join(pairs) if pairs else ""
        body = None
    return RestCall(ClientOperation(rpc, write, read), method, f"{prefix}{'/v1' if is_v03 else ''}{path}{query}", body)


# gRPC ------------------------------------------------------------------------------------------------------


class GrpcOperation(NamedTuple):
    """The codec of one operation over gRPC: path, request encoder, and the response as received and as decoded."""

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
        rpc: GrpcOperation(f"/{_SERVICE}/{rpc}", _identity, response_class, _identity)
        for rpc, (_, response_class) in OPERATION_TYPES.items()
    },
    "0.3": {
        rpc: GrpcOperation(f"/{_SERVICE_03}/{name}", write, response_class, read)
        for rpc, (name, write, response_class, read) in _GRPC_03.items()
    },
}
"""By dialect, then by 1.0 name."""
