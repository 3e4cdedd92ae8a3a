"""JSON of A2A 0.2 and 0.3 over JSON-RPC, for 1.0 messages (0.3.0 §6 and §7).

Differences to 1.0: `kind` on every object, parts of the `kind` family (wire/dialects/parts.py), lower-case states and
roles, `blocking` as the opposite of `returnImmediately` (absent means blocking), push configurations in a wrapper, and
a `historyLength` of zero means absent.
`JSON_V03` decodes more than it encodes: a missing `kind`, enums as in 1.0, both spellings of a key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dragoman.core.push.configuration import OLDEST_CONFIG_ID, scheme_description, split_schemes
from dragoman.core.task import states
from dragoman.wire.dialects import json_proto, parts
from dragoman.wire.json import protojson
from dragoman.wire.json.wellknown import Decode, Encode, FieldError
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def encode_hook(change: Callable[[dict[str, Any]], Any]) -> Callable[[Encode], Encode]:
    """A hook that applies `change` to the JSON of an object after encoding it."""

    def around(encode: Encode) -> Encode:
        return lambda message: change(encode(message))

    return around


def wrap_union(member_name: Callable[[dict[str, Any]], str]) -> Callable[[Decode], Decode]:
    """A hook that decodes a union without its wrapper. `member_name` returns the name of an object's member."""
    return json_proto.decode_hook(lambda value: {member_name(value): value})


def unwrap_union(encode: Encode) -> Encode:
    """A hook that encodes the member of a union without its wrapper."""

    def write(message: Any) -> Any:
        value = encode(message)
        return next(iter(value.values()), value)

    return write


# Requests --------------------------------------------------------------------------------------------------


def write_blocking(value: dict[str, Any]) -> dict[str, Any]:
    """Writes the opposite of `returnImmediately`, always, because servers differ if it is absent."""
    return {"blocking": not value.pop("returnImmediately", False), **value}


def leaves_blocking_open(params: object) -> bool:
    """Whether the params of a send do not say whether it waits. Those of 0.1 never do."""
    configuration = params.get("configuration") if isinstance(params, dict) else None
    names = ("blocking", "returnImmediately", "return_immediately")
    return not isinstance(configuration, dict) or all(configuration.get(name) is None for name in names)


def write_push(value: dict[str, Any]) -> dict[str, Any]:
    """One push configuration in 0.3 form, without its task."""
    if "authentication" in value:
        authentication = dict(value["authentication"])
        scheme = authentication.pop("scheme", "")
        value["authentication"] = {"schemes": split_schemes(scheme), **authentication}
    return {key: item for key, item in value.items() if key not in ("taskId", "tenant")}


def read_configuration(value: dict[str, Any]) -> dict[str, Any]:
    """Reads `blocking`, and a `historyLength` of zero as "all"."""
    return json_proto.read_history(json_proto.read_blocking(value))


def _write_configuration(value: dict[str, Any]) -> dict[str, Any]:
    push = value.pop("taskPushNotificationConfig", None)
    if push is not None:
        value["pushNotificationConfig"] = push["pushNotificationConfig"]
    return write_blocking(value)


def _write_task_push(value: dict[str, Any]) -> dict[str, Any]:
    return {"taskId": value.get("taskId", ""), "pushNotificationConfig": write_push(value)}


def _read_get_push_config(value: dict[str, Any]) -> dict[str, Any]:
    # The task is `id` here. Without a configuration id, the first one is used (0.2.5 §7.6).
    id = value.pop("pushNotificationConfigId", None)
    return {**read_list_push_configs(value), "id": OLDEST_CONFIG_ID if id is None or id == "" else id}


def _read_delete_push_config(value: dict[str, Any]) -> dict[str, Any]:
    if not value.get("pushNotificationConfigId"):
        raise FieldError("is required", "pushNotificationConfigId")
    return _read_get_push_config(value)


def read_list_push_configs(value: dict[str, Any]) -> dict[str, Any]:
    """Reads the task from `id`, or from `taskId` as some clients send it."""
    task = value.get("taskId", value.get("id"))
    if "taskId" not in value and not task:
        raise FieldError("is required", "id")
    return {**value, "taskId": task}


# Responses -------------------------------------------------------------------------------------------------

_KINDS: Final = {"status-update": "statusUpdate", "artifact-update": "artifactUpdate"}


def union_member(value: dict[str, Any]) -> str:
    """Whether an object is a Task, Message, status or artifact update: by `kind`, otherwise by its keys."""
    kind = str(value.get("kind"))
    if kind in ("task", "message", *_KINDS):
        return _KINDS.get(kind, kind)
    if "artifact" in value:
        return "artifactUpdate"
    if "parts" in value:
        return "message"
    return "task" if "id" in value else "statusUpdate"


def show_unknown(value: dict[str, Any]) -> None:
    """Makes the state of a task or update with metadata `unknown`, while an upstream agent's state is.

    1.0 has no such state: the task is WORKING there, and in the store.
    """
    status = value.get("status", {})
    is_unknown = value["metadata"].get(states.UPSTREAM_STATE_KEY) == states.UNKNOWN_STATE
    if is_unknown and status.get("state") == "working":
        status["state"] = states.UNKNOWN_STATE


def _with_kind(kind: str = "") -> Callable[[Encode], Encode]:
    """Adds `kind`, and shows the state `unknown`, which only a task or status update has."""
    head = {"kind": kind} if kind else {}

    def change(value: dict[str, Any]) -> dict[str, Any]:
        if "metadata" in value:
            show_unknown(value)
        return {**head, **value}

    return encode_hook(change)


STATUS_HOOKS: Final = {f"lf.a2a.v1.{name}": _with_kind() for name in ("Task", "TaskStatusUpdateEvent")}
"""Show `unknown`, for dialects without `kind`."""


ALWAYS_EMITTED: Final = {
    "lf.a2a.v1.Task": {"id", "context_id"},
    "lf.a2a.v1.Message": {"message_id", "role", "parts"},
    "lf.a2a.v1.Artifact": {"artifact_id", "parts"},
    "lf.a2a.v1.TaskStatus": {"state"},
    "lf.a2a.v1.TaskStatusUpdateEvent": {"task_id", "context_id"},
    "lf.a2a.v1.TaskArtifactUpdateEvent": {"task_id", "context_id"},
    "lf.a2a.v1.ListTasksResponse": {"tasks", "next_page_token", "page_size", "total_size"},
}
"""The required fields that may be empty."""

JSON_V03: Final = protojson.JsonDialect(
    "0.3",
    fields={"lf.a2a.v1.SendMessageConfiguration": [(*json_proto.PUSH_CONFIG_KEYS, "pushNotification")]},
    enums=json_proto.ENUM_ALIASES,
    enum_words=json_proto.ENUM_WORDS,
    always_emitted=ALWAYS_EMITTED,
    decode_hooks={
        **json_proto.STATUS_HOOK,
        "lf.a2a.v1.Part": parts.part_decoder,
        "lf.a2a.v1.SendMessageConfiguration": json_proto.decode_hook(read_configuration),
        "lf.a2a.v1.GetTaskRequest": json_proto.decode_hook(json_proto.read_history),
        "lf.a2a.v1.TaskPushNotificationConfig": json_proto.decode_hook(json_proto.read_push),
        "lf.a2a.v1.GetTaskPushNotificationConfigRequest": json_proto.decode_hook(_read_get_push_config),
        "lf.a2a.v1.DeleteTaskPushNotificationConfigRequest": json_proto.decode_hook(_read_delete_push_config),
        "lf.a2a.v1.ListTaskPushNotificationConfigsRequest": json_proto.decode_hook(read_list_push_configs),
        "lf.a2a.v1.SendMessageResponse": wrap_union(union_member),
        "lf.a2a.v1.StreamResponse": wrap_union(union_member),
    },
    encode_hooks={
        "lf.a2a.v1.Part": lambda _: parts.part_encoder("kind"),
        "lf.a2a.v1.Task": _with_kind("task"),
        "lf.a2a.v1.Message": _with_kind("message"),
        "lf.a2a.v1.TaskStatusUpdateEvent": _with_kind("status-update"),
        "lf.a2a.v1.TaskArtifactUpdateEvent": _with_kind("artifact-update"),
        "lf.a2a.v1.SendMessageConfiguration": encode_hook(_write_configuration),
        "lf.a2a.v1.TaskPushNotificationConfig": encode_hook(_write_task_push),
        "lf.a2a.v1.ListTaskPushNotificationConfigsResponse": encode_hook(lambda value: value.get("configs", [])),
        "lf.a2a.v1.SendMessageResponse": unwrap_union,
        "lf.a2a.v1.StreamResponse": unwrap_union,
    },
)
"""A2A 0.2.x and 0.3 over JSON-RPC."""

_EVENT: Final = protojson.compile(pb.StreamResponse, JSON_V03)
_PUSH: Final = protojson.compile(pb.TaskPushNotificationConfig, JSON_V03)


def write_v01_push(config: pb.TaskPushNotificationConfig) -> dict[str, Any]:
    """A configuration for fasta2a 0.5 and 0.6: the task is `id` too, and 0.5 reads authentication as OpenAPI does."""
    value = _PUSH.to_dict(config)
    if config.authentication.scheme:
        authentication = value["pushNotificationConfig"]["authentication"]
        _, description = scheme_description(config.authentication.scheme)
        authentication |= {"type": "http", "scheme": authentication["schemes"][0], **description}
    return {"id": value["taskId"], **value}


def write_push_list(response: pb.ListTaskPushNotificationConfigsResponse) -> list[dict[str, Any]]:
    """All configurations of a task, for 0.3 and for fasta2a 0.5 and 0.6, which use the same method."""
    return [write_v01_push(config) for config in response.configs]


def write_event(event: pb.StreamResponse, is_last: bool) -> dict[str, Any]:
    """One event of a stream. A status update is `final` if it `is_last` or its state is terminal."""
    value = _EVENT.to_dict(event)
    if event.WhichOneof("payload") == "status_update":
        value["final"] = is_last or states.is_terminal(event.status_update.status.state)
    return value
