"""A2A 0.2 and 0.3 over JSON-RPC: the domain messages in the JSON of those versions (0.3.0 §6 and §7).

They are the 1.0 messages with `kind` on every object, parts of the `kind` family (wire/dialects/parts.py), lower-case
words
for states and roles, `blocking` for the opposite of `returnImmediately`, and a push configuration in a wrapper.
Zero is "not said" for `historyLength`, and a call without `blocking` waits.

`JSON` reads and writes `lf.a2a.v1` messages in that shape. Readers take more than writers make: no `kind` at all,
enums in 1.0's words, either spelling of a key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dragoman.core.push.configuration import OLDEST_CONFIG_ID
from dragoman.core.task import states
from dragoman.wire.dialects import parts
from dragoman.wire.dialects.json_proto import (
    ENUM_ALIASES,
    ENUM_WORDS,
    decode_hook,
    read_blocking,
    read_history,
    read_push,
)
from dragoman.wire.json import protojson
from dragoman.wire.json.protojson_decoder import Decode
from dragoman.wire.json.protojson_encoder import Encode
from dragoman.wire.json.wellknown import FieldError
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def constant_hook(key: str, value: str) -> Callable[[Encode], Encode]:
    """Writes a constant before what a message has."""

    def around(encode: Encode) -> Encode:
        return lambda message: {key: value, **encode(message)}

    return around


def encode_hook(change: Callable[[dict[str, Any]], Any]) -> Callable[[Encode], Encode]:
    """Writes what `change` makes of an object's JSON."""

    def around(encode: Encode) -> Encode:
        return lambda message: change(encode(message))

    return around


def wrap_union(member_name: Callable[[dict[str, Any]], str]) -> Callable[[Decode], Decode]:
    """Reads a union that is written without its wrapper; `members` says which member an object is."""
    return decode_hook(lambda value: {member_name(value): value})


def unwrap_union(encode: Encode) -> Encode:
    """Writes the one member of a union without its wrapper."""

    def write(message: Any) -> Any:
        value = encode(message)
        return next(iter(value.values()), value)

    return write


# Requests --------------------------------------------------------------------------------------------------


def write_blocking(value: dict[str, Any]) -> dict[str, Any]:
    """The opposite of `returnImmediately`, said in any case: servers differ on what its absence means."""
    return {"blocking": not value.pop("returnImmediately", False), **value}


def write_push(value: dict[str, Any]) -> dict[str, Any]:
    """One push configuration in the shape of 0.3, without the task it is for."""
    if "authentication" in value:
        authentication = dict(value["authentication"])
        scheme = authentication.pop("scheme", "")
        value["authentication"] = {"schemes": [scheme] if scheme else [], **authentication}
    return {key: item for key, item in value.items() if key not in ("taskId", "tenant")}


def _read_configuration(value: dict[str, Any]) -> dict[str, Any]:
    for key in ("pushNotificationConfig", "push_notification_config", "pushNotification"):
        push = value.pop(key, None)
        if push is not None:
            value["taskPushNotificationConfig"] = push
    return read_history(read_blocking(value))


def _write_configuration(value: dict[str, Any]) -> dict[str, Any]:
    push = value.pop("taskPushNotificationConfig", None)
    if push is not None:
        value["pushNotificationConfig"] = push["pushNotificationConfig"]
    return write_blocking(value)


def _write_task_push(value: dict[str, Any]) -> dict[str, Any]:
    return {"taskId": value.get("taskId", ""), "pushNotificationConfig": write_push(value)}


def _read_get_push_config(value: dict[str, Any]) -> dict[str, Any]:
    # The task is `id` here. Who names no configuration means the first one that there is (0.2.5 §7.6).
    id = value.pop("pushNotificationConfigId", None)
    return {
        **value,
        "taskId": value.get("taskId", value.get("id")),
        "id": OLDEST_CONFIG_ID if id is None or id == "" else id,
    }


def _read_delete_push_config(value: dict[str, Any]) -> dict[str, Any]:
    if not value.get("pushNotificationConfigId"):
        error = FieldError("is required")
        error.path.append("pushNotificationConfigId")
        raise error
    return _read_get_push_config(value)


def read_list_push_configs(value: dict[str, Any]) -> dict[str, Any]:
    """Which task's configurations to list: `id`."""
    return {**value, "taskId": value.get("taskId", value.get("id"))}


# Answers ---------------------------------------------------------------------------------------------------

_KINDS: Final = {"status-update": "statusUpdate", "artifact-update": "artifactUpdate"}


def union_member(value: dict[str, Any]) -> str:
    """Which of Task, Message, status and artifact update an object is, by `kind`, else by what it has."""
    kind = str(value.get("kind"))
    if kind in ("task", "message", *_KINDS):
        return _KINDS.get(kind, kind)
    if "artifact" in value:
        return "artifactUpdate"
    if "parts" in value:
        return "message"
    return "task" if "id" in value else "statusUpdate"


JSON_V03: Final = protojson.JsonDialect(
    "0.3",
    enums=ENUM_ALIASES,
    enum_words=ENUM_WORDS,
    always_emitted={
        "lf.a2a.v1.Task": {"id", "context_id"},
        "lf.a2a.v1.Message": {"message_id", "role", "parts"},
        "lf.a2a.v1.Artifact": {"artifact_id", "parts"},
        "lf.a2a.v1.TaskStatus": {"state"},
        "lf.a2a.v1.TaskStatusUpdateEvent": {"task_id", "context_id"},
        "lf.a2a.v1.TaskArtifactUpdateEvent": {"task_id", "context_id"},
        "lf.a2a.v1.ListTasksResponse": {"tasks", "next_page_token", "page_size", "total_size"},
    },
    decode_hooks={
        "lf.a2a.v1.Part": parts.part_decoder,
        "lf.a2a.v1.SendMessageConfiguration": decode_hook(_read_configuration),
        "lf.a2a.v1.GetTaskRequest": decode_hook(read_history),
        "lf.a2a.v1.TaskPushNotificationConfig": decode_hook(read_push),
        "lf.a2a.v1.GetTaskPushNotificationConfigRequest": decode_hook(_read_get_push_config),
        "lf.a2a.v1.DeleteTaskPushNotificationConfigRequest": decode_hook(_read_delete_push_config),
        "lf.a2a.v1.ListTaskPushNotificationConfigsRequest": decode_hook(read_list_push_configs),
        "lf.a2a.v1.SendMessageResponse": wrap_union(union_member),
        "lf.a2a.v1.StreamResponse": wrap_union(union_member),
    },
    encode_hooks={
        "lf.a2a.v1.Part": lambda _: parts.part_encoder("kind"),
        "lf.a2a.v1.Task": constant_hook("kind", "task"),
        "lf.a2a.v1.Message": constant_hook("kind", "message"),
        "lf.a2a.v1.TaskStatusUpdateEvent": constant_hook("kind", "status-update"),
        "lf.a2a.v1.TaskArtifactUpdateEvent": constant_hook("kind", "artifact-update"),
        "lf.a2a.v1.SendMessageConfiguration": encode_hook(_write_configuration),
        "lf.a2a.v1.TaskPushNotificationConfig": encode_hook(_write_task_push),
        "lf.a2a.v1.ListTaskPushNotificationConfigsResponse": encode_hook(lambda value: value.get("configs", [])),
        "lf.a2a.v1.SendMessageResponse": unwrap_union,
        "lf.a2a.v1.StreamResponse": unwrap_union,
    },
)
"""A2A 0.2.x and 0.3 as JSON-RPC carries them."""

_EVENT: Final = protojson.compile(pb.StreamResponse, JSON_V03)
_PUSH: Final = protojson.compile(pb.TaskPushNotificationConfig, JSON_V03)


def write_v01_push(config: pb.TaskPushNotificationConfig) -> dict[str, Any]:
    """A configuration for those who ask by 0.1's method names: fasta2a names the task `id` around it, as 0.1 does."""
    value = _PUSH.to_dict(config)
    return {"id": value["taskId"], **value}


def write_event(event: pb.StreamResponse, is_last: bool) -> dict[str, Any]:
    """What a stream says of one event. A status update is `final` when the stream stops with it (`ends`), and at a
    terminal state in any case."""
    value = _EVENT.to_dict(event)
    if event.WhichOneof("payload") == "status_update":
        value["final"] = is_last or states.is_terminal(event.status_update.status.state)
    return value
