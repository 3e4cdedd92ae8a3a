"""JSON of A2A 0.1 over JSON-RPC, for 1.0 messages (0.1.0 §6 and §7).

Differences to later versions: the client chooses the task id (`id`) and the context (`sessionId`), messages have no
ids, parts are of the `type` family (wire/dialects/parts.py). An artifact has no id but an `index`, its position in the
task, and carries `append` and `lastChunk`; V01StreamWriter remembers the indexes of a stream. A stream has no Task: it
is written as one event per artifact, then its status. `rejected` and `auth-required` do not exist and are written as
`failed` and `input-required`, which mean the same to a caller: no result, or action needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import uuid4

from dragoman.core.push.configuration import OLDEST_CONFIG_ID
from dragoman.core.task import states
from dragoman.wire.dialects import json_proto, parts
from dragoman.wire.dialects.json_v03 import (
    encode_hook,
    read_list_push_configs,
    show_unknown,
    unwrap_union,
    wrap_union,
    write_push,
)
from dragoman.wire.json import protojson
from dragoman.wire.json.wellknown import Encode, FieldError, encode_struct
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_TASK_REQUESTS: Final = ("GetTask", "CancelTask", "SubscribeToTask")
_STATES: Final = json_proto.STATE_WORDS | {
    "TASK_STATE_REJECTED": "failed",
    "TASK_STATE_AUTH_REQUIRED": "input-required",
}


def _without(*keys: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda value: {key: item for key, item in value.items() if key not in keys}


def _write_part(value: dict[str, Any]) -> dict[str, Any]:
    # fasta2a 0.2 reads `data` or `url` of a file, in place of `bytes` and `uri`, and requires a media type.
    file = value.get("file")
    if file is not None:
        file.setdefault("mimeType", "application/octet-stream")
        for name, other in (("bytes", "data"), ("uri", "url")):
            if name in file:
                file[other] = file[name]
    return value


def _write_task(value: dict[str, Any]) -> dict[str, Any]:
    out = {"id": value["id"], "sessionId": value["contextId"]}
    out |= {key: item for key, item in value.items() if key not in ("id", "contextId")}
    if "artifacts" in out:
        out["artifacts"] = [{**artifact, "index": index} for index, artifact in enumerate(value["artifacts"])]
    if "metadata" in out:
        show_unknown(out)
    return out


def _read_task(value: dict[str, Any]) -> dict[str, Any]:
    if "sessionId" in value:
        value["contextId"] = value.pop("sessionId")
    return value


def _read_push(value: dict[str, Any]) -> dict[str, Any]:
    # 0.1 has one configuration per task, without an id.
    return _without("id")(json_proto.read_push(value))


def _write_task_request(value: dict[str, Any]) -> dict[str, Any]:
    # A history of length 0 means that the length is absent, in both directions.
    return {key: item for key, item in value.items() if key != "tenant" and (key != "historyLength" or item)}


def _write_push(value: dict[str, Any]) -> dict[str, Any]:
    return {"id": value.get("taskId", ""), "pushNotificationConfig": _without("id")(write_push(value))}


def _read_artifact(value: dict[str, Any]) -> dict[str, Any]:
    value.setdefault("artifactId", str(value.pop("index", None) or 0))
    return value


def _required_id(value: dict[str, Any]) -> str:
    task_id = value.get("id")
    if type(task_id) is not str or not task_id:
        raise FieldError("is required: the task id, a string that the client chooses", "id")
    return task_id


def _read_send(value: dict[str, Any]) -> dict[str, Any]:
    """TaskSendParams. Generates a message id, which 0.1 does not have."""
    message = value.get("message")
    if type(message) is dict:
        message_id = message.get("messageId") or str(uuid4())
        ids = {"taskId": _required_id(value), "contextId": value.get("sessionId"), "messageId": message_id}
        message = message | ids
    configuration = {
        "acceptedOutputModes": value.get("acceptedOutputModes"),
        "historyLength": value.get("historyLength") or None,
        "taskPushNotificationConfig": value.get("pushNotification"),
    }
    is_set = any(item is not None for item in configuration.values())
    return {"message": message, "metadata": value.get("metadata"), "configuration": configuration if is_set else None}


def _send_encoder(encode: Encode) -> Encode:
    def write(request: pb.SendMessageRequest) -> dict[str, Any]:
        # Kept in the request, so that a retry has the same id: in 0.1 the client chooses it.
        request.message.task_id = request.message.task_id or str(uuid4())
        value = encode(request)
        configuration = value.get("configuration", {})
        push = configuration.get("taskPushNotificationConfig", {})
        out = {
            "id": request.message.task_id,
            "message": value["message"],
            "sessionId": request.message.context_id or None,
            "acceptedOutputModes": configuration.get("acceptedOutputModes"),
            "historyLength": configuration.get("historyLength") or None,
            "pushNotification": push.get("pushNotificationConfig"),
            "metadata": value.get("metadata"),
        }
        return {key: item for key, item in out.items() if item is not None}

    return write


def _read_get(value: dict[str, Any]) -> dict[str, Any]:
    _required_id(value)
    return json_proto.read_history(value)


def _task_of(message: pb.Message) -> pb.Task:
    """The completed task that stands for a Message: 0.1 has only tasks."""
    status = pb.TaskStatus(state=pb.TASK_STATE_COMPLETED, message=message)
    return pb.Task(id=message.task_id, context_id=message.context_id, status=status)


def _response_encoder(encode: Encode) -> Encode:
    def write(response: pb.SendMessageResponse) -> Any:
        is_message = response.WhichOneof("payload") == "message"
        return encode(pb.SendMessageResponse(task=_task_of(response.message)) if is_message else response)

    return unwrap_union(write)


def _read_event(value: dict[str, Any]) -> dict[str, Any]:
    """One event of a 0.1 server; `artifact` distinguishes the two kinds."""
    common = {"taskId": value.get("id"), "metadata": value.get("metadata")}
    artifact = value.get("artifact")
    if type(artifact) is dict:
        flags = {"append": artifact.get("append"), "lastChunk": artifact.get("lastChunk")}
        return {"artifactUpdate": {**common, "artifact": artifact, **flags}}
    return {"statusUpdate": {**common, "status": value.get("status")}}


JSON_V01: Final = protojson.JsonDialect(
    "0.1",
    enums=json_proto.ENUM_ALIASES,
    # Two states are written as one word, which is read as the state of that name.
    enum_words={"lf.a2a.v1.TaskState": _STATES, "lf.a2a.v1.Role": json_proto.ROLE_WORDS},
    always_emitted={
        "lf.a2a.v1.Task": {"id", "context_id"},
        "lf.a2a.v1.Message": {"role", "parts"},
        "lf.a2a.v1.Artifact": {"parts"},
        "lf.a2a.v1.TaskStatus": {"state"},
    },
    decode_hooks={
        **json_proto.STATUS_HOOK,
        "lf.a2a.v1.Part": parts.part_decoder,
        "lf.a2a.v1.Task": json_proto.decode_hook(_read_task),
        "lf.a2a.v1.Artifact": json_proto.decode_hook(_read_artifact),
        "lf.a2a.v1.SendMessageRequest": json_proto.decode_hook(_read_send),
        "lf.a2a.v1.SendMessageResponse": wrap_union(lambda _: "task"),
        "lf.a2a.v1.StreamResponse": json_proto.decode_hook(_read_event),
        "lf.a2a.v1.GetTaskRequest": json_proto.decode_hook(_read_get),
        "lf.a2a.v1.TaskPushNotificationConfig": json_proto.decode_hook(_read_push),
        "lf.a2a.v1.GetTaskPushNotificationConfigRequest": json_proto.decode_hook(
            lambda value: {**read_list_push_configs(value), "id": OLDEST_CONFIG_ID}
        ),
    },
    encode_hooks={
        "lf.a2a.v1.Part": lambda _: encode_hook(_write_part)(parts.part_encoder("type")),
        "lf.a2a.v1.Task": encode_hook(_write_task),
        "lf.a2a.v1.Message": encode_hook(
            _without("messageId", "contextId", "taskId", "extensions", "referenceTaskIds")
        ),
        "lf.a2a.v1.Artifact": encode_hook(_without("artifactId", "extensions")),
        "lf.a2a.v1.SendMessageRequest": _send_encoder,
        "lf.a2a.v1.SendMessageResponse": _response_encoder,
        **{f"lf.a2a.v1.{name}Request": encode_hook(_write_task_request) for name in _TASK_REQUESTS},
        "lf.a2a.v1.TaskPushNotificationConfig": encode_hook(_write_push),
    },
)
"""A2A 0.1. The events of a stream are encoded by V01StreamWriter."""

_STATUS: Final = protojson.compile(pb.TaskStatus, JSON_V01)
_ARTIFACT: Final = protojson.compile(pb.Artifact, JSON_V01)


def to_updates(event: pb.StreamResponse) -> list[pb.StreamResponse]:
    """Splits an event into status and artifact updates: a Task into its artifacts and status."""
    payload = event.WhichOneof("payload")
    if payload not in ("task", "message"):
        return [event]
    task = event.task if payload == "task" else _task_of(event.message)
    shared: Any = {"task_id": task.id, "context_id": task.context_id}
    if task.HasField("metadata"):
        shared["metadata"] = task.metadata
    updates = [pb.TaskArtifactUpdateEvent(artifact=artifact, **shared) for artifact in task.artifacts]
    status = pb.TaskStatusUpdateEvent(status=task.status, **shared)
    return [*(pb.StreamResponse(artifact_update=update) for update in updates), pb.StreamResponse(status_update=status)]


class V01StreamWriter:
    """Encodes the updates of one stream; remembers artifact indexes."""

    def __init__(self, artifact_ids: Iterable[str] = ()) -> None:
        """`artifact_ids`: artifacts already sent, in the order of their first updates."""
        self._indexes: dict[str, int] = {id: index for index, id in enumerate(artifact_ids)}

    def write(self, event: pb.StreamResponse, is_last: bool) -> dict[str, Any]:
        """Encodes one update (see `to_updates`). Skipping updates would give later artifacts wrong indexes."""
        update: Any = getattr(event, event.WhichOneof("payload") or "status_update")
        metadata = {"metadata": encode_struct(update.metadata)} if update.HasField("metadata") else {}
        if isinstance(update, pb.TaskStatusUpdateEvent):
            final = is_last or states.is_terminal(update.status.state)
            value = {"id": update.task_id, "status": _STATUS.to_dict(update.status), "final": final, **metadata}
            if metadata:
                show_unknown(value)
            return value
        index = self._indexes.setdefault(update.artifact.artifact_id, len(self._indexes))
        artifact = {**_ARTIFACT.to_dict(update.artifact), "index": index}
        flags = {"append": update.append, "lastChunk": update.last_chunk}
        artifact |= {name: True for name, is_set in flags.items() if is_set}
        return {"id": update.task_id, "artifact": artifact, **metadata}
