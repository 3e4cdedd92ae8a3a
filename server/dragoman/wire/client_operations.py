"""Client codecs: requests and responses of each operation, by binding and dialect.

Callers use the messages of `lf.a2a.v1` with every dialect. The public client and upstream agents use these codecs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.wire.dialects import json_proto, json_v01, json_v03, v03
from dragoman.wire.json import protojson
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_SERVICES: Final = {
    "1.0": pb.DESCRIPTOR.services_by_name["A2AService"],
    "0.3": v03_pb.DESCRIPTOR.services_by_name["A2AService"],
}
_GRPC_NAMES_03: Final = {"SubscribeToTask": "TaskSubscription"}
"""The operations that have another name in the 0.3 service."""


def _types(service: ServiceDescriptor, rpc: str) -> tuple[type[Message], type[Message]]:
    method = service.methods_by_name[rpc]
    return GetMessageClass(method.input_type), GetMessageClass(method.output_type)


_OPERATIONS: Final = ("SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask")
OPERATION_TYPES: Final = {rpc: _types(_SERVICES["1.0"], rpc) for rpc in _OPERATIONS}
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
_JSONRPC_METHODS_01: Final = {
    **_JSONRPC_METHODS_03,
    "SendMessage": "tasks/send",
    "SendStreamingMessage": "tasks/sendSubscribe",
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


JSONRPC_OPERATIONS: Final[dict[str, dict[str, ClientOperation]]] = {
    "1.0": _jsonrpc_operations(json_proto.PROTOJSON_V1, {rpc: rpc for rpc in OPERATION_TYPES}),
    "0.3": _jsonrpc_operations(json_v03.JSON_V03, _JSONRPC_METHODS_03),
    "0.1": _jsonrpc_operations(json_v01.JSON_V01, _JSONRPC_METHODS_01),
}
"""By dialect, then by 1.0 name. Missing operations do not exist in that dialect."""


# gRPC ------------------------------------------------------------------------------------------------------


class GrpcOperation(NamedTuple):
    """The codec of one operation over gRPC: path, request encoder, and the messages as sent and as decoded."""

    path: str
    request_class: type[Message]
    encode_request: Callable[[Any], Message]
    response_class: type[Message]
    decode_response: Callable[[Any], Message]


def unconverted(service: ServiceDescriptor, name: str) -> GrpcOperation:
    """An operation with the service's own messages."""
    request_class, response_class = _types(service, name)
    path = f"/{service.full_name}/{name}"
    return GrpcOperation(path, request_class, lambda request: request, response_class, lambda response: response)


def _grpc_operation(dialect: str, rpc: str) -> GrpcOperation:
    if dialect == "1.0":
        return unconverted(_SERVICES[dialect], rpc)
    operation = unconverted(_SERVICES[dialect], _GRPC_NAMES_03.get(rpc, rpc))
    return operation._replace(
        encode_request=lambda request: v03.write_request(request, operation.request_class()),
        decode_response=lambda response: v03.convert(response, OPERATION_TYPES[rpc][1]()),
    )


GRPC_OPERATIONS: Final = {dialect: {rpc: _grpc_operation(dialect, rpc) for rpc in _OPERATIONS} for dialect in _SERVICES}
"""By dialect, then by 1.0 name."""


# REST ------------------------------------------------------------------------------------------------------


def _rest_operation(dialect: str, rpc: str) -> ClientOperation:
    """An operation over REST: ProtoJSON of its messages over gRPC."""
    operation = GRPC_OPERATIONS[dialect][rpc]
    json = json_proto.PROTOJSON_V1 if dialect == "1.0" else json_proto.PROTOJSON_V03
    write = protojson.compile(operation.request_class, json).to_dict
    read = protojson.compile(operation.response_class, json).decode
    return ClientOperation(
        rpc,
        lambda request: write(operation.encode_request(request)),
        lambda body: operation.decode_response(read(body)),
    )


_REST_OPERATIONS: Final = {
    dialect: {rpc: _rest_operation(dialect, rpc) for rpc in _OPERATIONS} for dialect in _SERVICES
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


class HttpCall(NamedTuple):
    """One HTTP request. `body` is JSON, None for no body."""

    operation: ClientOperation
    method: str
    url: str
    body: Any


def rest_call(dialect: str, rpc: str, request: Any, base: str = "") -> HttpCall:
    """Encodes a request for REST in dialect `1.0` or `0.3`. base: the interface's URL, with a tenant at its end."""
    operation = _REST_OPERATIONS[dialect][rpc]
    method, template = _REST_PATHS[rpc]
    path = template.format(id=quote(getattr(request, "id", ""), safe=""))
    prefix = f"{base}/v1" if dialect == "0.3" else base
    body = operation.encode_request(request)
    query = ""
    if rpc == "SubscribeToTask":
        body = None
    elif method == "GET":
        pairs = [f"{key}={quote(str(item))}" for key, item in body.items() if key not in ("id", "name", "tenant")]
        query = "?" + "&".join(pairs) if pairs else ""
        body = None
    return HttpCall(operation, method, f"{prefix}{path}{query}", body)
