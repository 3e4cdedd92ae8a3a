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

from dragoman.wire import a2a_json, protojson, v01_json, v03_back, v03_json
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

V1: Final = {
    "SendMessage": (pb.SendMessageRequest, pb.SendMessageResponse),
    "SendStreamingMessage": (pb.SendMessageRequest, pb.StreamResponse),
    "GetTask": (pb.GetTaskRequest, pb.Task),
    "ListTasks": (pb.ListTasksRequest, pb.ListTasksResponse),
    "CancelTask": (pb.CancelTaskRequest, pb.Task),
    "SubscribeToTask": (pb.SubscribeToTaskRequest, pb.StreamResponse),
}
"""The calls by the names of 1.0: what is asked, and what is answered."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """How one call is said: its name or path, the request as JSON, the answer from JSON."""

    name: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Message]


# JSON-RPC --------------------------------------------------------------------------------------------------

_NAMES_03: Final = {
    "SendMessage": "message/send",
    "SendStreamingMessage": "message/stream",
    "GetTask": "tasks/get",
    "CancelTask": "tasks/cancel",
    "SubscribeToTask": "tasks/resubscribe",
}


def _phrases(json: protojson.JsonDialect, names: Mapping[str, str]) -> dict[str, Phrase]:
    return {
        rpc: Phrase(name, protojson.compile(V1[rpc][0], json).to_dict, protojson.compile(V1[rpc][1], json).decode)
        for rpc, name in names.items()
    }


def _id(request: Any) -> dict[str, Any]:
    return {"id": request.id}


def _named(request: Any) -> dict[str, Any]:
    """A 0.1 send: the client names its task."""
    request.message.task_id = request.message.task_id or str(uuid.uuid4())
    return v01_json.write_send(request)


def _sent(value: Any) -> Message:
    return pb.SendMessageResponse(task=v01_json.read_task(value))


JSONRPC: Final[dict[str, dict[str, Phrase]]] = {
    "1.0": _phrases(a2a_json.V1, {rpc: rpc for rpc in V1}),
    "0.3": _phrases(v03_json.JSON, _NAMES_03),
    "0.1": {
        "SendMessage": Phrase("tasks/send", _named, _sent),
        "SendStreamingMessage": Phrase("tasks/sendSubscribe", _named, v01_json.read_event),
        "GetTask": Phrase("tasks/get", _id, v01_json.read_task),
        "CancelTask": Phrase("tasks/cancel", _id, v01_json.read_task),
        "SubscribeToTask": Phrase("tasks/resubscribe", _id, v01_json.read_event),
    },
}
"""By dialect, then by the call's name in 1.0; what is not there cannot be said."""


# REST ------------------------------------------------------------------------------------------------------


def _old(write: Callable[[Any], Message], answer: type[Message], read: Callable[[Any], Message]) -> tuple[Any, Any]:
    """A 0.3 call as REST has it: ProtoJSON of `a2a.v1`."""
    codec: protojson.Codec[Any] = protojson.compile(answer, a2a_json.V03)

    def to_json(request: Any) -> Any:
        sent = write(request)
        made: protojson.Codec[Any] = protojson.compile(type(sent), a2a_json.V03)
        return made.to_dict(sent)

    return to_json, lambda value: read(codec.decode(value))


_REST_03: Final = {
    "SendMessage": _old(v03_back.write_send_message, v03.SendMessageResponse, v03_back.read_send_message),
    "SendStreamingMessage": _old(v03_back.write_send_message, v03.StreamResponse, v03_back.read_stream),
    "GetTask": _old(v03_back.write_get_task, v03.Task, v03_back.read_task),
    "ListTasks": _old(v03_back.write_list_tasks, v03.ListTasksResponse, v03_back.read_list_tasks),
    "CancelTask": _old(v03_back.write_cancel_task, v03.Task, v03_back.read_task),
    "SubscribeToTask": _old(v03_back.write_subscription, v03.StreamResponse, v03_back.read_stream),
}

_PATHS: Final = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("GET", "/tasks/{id}:subscribe"),
}
_IN_PATH: Final = ("id", "name", "tenant")


class RestCall(NamedTuple):
    """One call over REST: the path is what comes after the interface's URL, with its query; a body of None is none."""

    phrase: Phrase
    method: str
    path: str
    body: Any


def rest(dialect: str, rpc: str, request: Any, tenant: str = "") -> RestCall:
    """A call in 1.0 or 0.3 over REST. `tenant` goes before the path."""
    old = dialect == "0.3"
    if old:
        write, read = _REST_03[rpc]
    else:
        sent, answer = V1[rpc]
        write = protojson.compile(sent, a2a_json.V1).to_dict
        read = protojson.compile(answer, a2a_json.V1).decode
    method, template = _PATHS[rpc]
    path = template.format(id=quote(getattr(request, "id", ""), safe=""))
    prefix = f"/{tenant}" if tenant else ""
    value = write(request)
    query = ""
    if method == "GET":
        pairs = [f"{key}={quote(str(item))}" for key, item in value.items() if key not in _IN_PATH]
        query = "?" + "&".join(pairs) if pairs else ""
        value = None
    return RestCall(Phrase(rpc, write, read), method, f"{prefix}{'/v1' if old else ''}{path}{query}", value)


# gRPC ------------------------------------------------------------------------------------------------------


class GrpcPhrase(NamedTuple):
    """How one call is said over gRPC: the method's path, the request, and the answer as it comes and as it is read."""

    path: str
    write: Callable[[Any], Message]
    answer: type[Message]
    read: Callable[[Any], Message]


def _same(message: Any) -> Any:
    return message


_OLD_GRPC: Final[dict[str, tuple[str, Callable[[Any], Message], type[Message], Callable[[Any], Message]]]] = {
    "SendMessage": (
        "SendMessage",
        v03_back.write_send_message,
        v03.SendMessageResponse,
        v03_back.read_send_message,
    ),
    "SendStreamingMessage": (
        "SendStreamingMessage",
        v03_back.write_send_message,
        v03.StreamResponse,
        v03_back.read_stream,
    ),
    "GetTask": ("GetTask", v03_back.write_get_task, v03.Task, v03_back.read_task),
    "ListTasks": ("ListTasks", v03_back.write_list_tasks, v03.ListTasksResponse, v03_back.read_list_tasks),
    "CancelTask": ("CancelTask", v03_back.write_cancel_task, v03.Task, v03_back.read_task),
    "SubscribeToTask": ("TaskSubscription", v03_back.write_subscription, v03.StreamResponse, v03_back.read_stream),
}

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["A2AService"].full_name
_OLD_SERVICE: Final = v03.DESCRIPTOR.services_by_name["A2AService"].full_name

GRPC: Final[dict[str, dict[str, GrpcPhrase]]] = {
    "1.0": {rpc: GrpcPhrase(f"/{_SERVICE}/{rpc}", _same, answer, _same) for rpc, (_, answer) in V1.items()},
    "0.3": {
        rpc: GrpcPhrase(f"/{_OLD_SERVICE}/{name}", write, answer, read)
        for rpc, (name, write, answer, read) in _OLD_GRPC.items()
    },
}
"""By dialect, then by the call's name in 1.0."""
