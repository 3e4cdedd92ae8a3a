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

from dragoman.core.errors import InvalidParams
from dragoman.core.push.configuration import OLDEST_CONFIG_ID
from dragoman.core.task import states
from dragoman.wire.dialects import parts
from dragoman.wire.dialects.json_proto import (
    ENUM_ALIASES,
    ROLE_WORDS,
    STATE_WORDS,
    STATUS_HOOK,
    decode_hook,
    read_push,
)
from dragoman.wire.dialects.json_v03 import encode_hook, read_list_push_configs, write_push
from dragoman.wire.json import protojson
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_STATES: Final = {**STATE_WORDS, "TASK_STATE_REJECTED": "failed", "TASK_STATE_AUTH_REQUIRED": "input-required"}


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
    return out


def _read_task(value: dict[str, Any]) -> dict[str, Any]:
    if "sessionId" in value:
        value["contextId"] = value.pop("sessionId")
    return value


def _read_push(value: dict[str, Any]) -> dict[str, Any]:
    # 0.1 has one configuration per task, without an id.
    return _without("id")(read_push(value))


def _write_push(value: dict[str, Any]) -> dict[str, Any]:
    return {"id": value.get("taskId", ""), "pushNotificationConfig": _without("id")(write_push(value))}


def _read_artifact(value: dict[str, Any]) -> dict[str, Any]:
    value.setdefault("artifactId", str(value.pop("index", None) or 0))
    return value


JSON_V01: Final = protojson.JsonDialect(
    "0.1",
    enums=ENUM_ALIASES,
    # Two states are written as one word, which is read as the state of that name.
    enum_words={"lf.a2a.v1.TaskState": _STATES, "lf.a2a.v1.Role": ROLE_WORDS},
    always_emitted={
        "lf.a2a.v1.Task": {"id", "context_id"},
        "lf.a2a.v1.Message": {"role", "parts"},
        "lf.a2a.v1.Artifact": {"parts"},
        "lf.a2a.v1.TaskStatus": {"state"},
    },
    decode_hooks={
        **STATUS_HOOK,
        "lf.a2a.v1.Part": parts.part_decoder,
        "lf.a2a.v1.Task": decode_hook(_read_task),
        "lf.a2a.v1.Artifact": decode_hook(_read_artifact),
        "lf.a2a.v1.TaskPushNotificationConfig": decode_hook(_read_push),
        "lf.a2a.v1.GetTaskPushNotificationConfigRequest": decode_hook(
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
        "lf.a2a.v1.TaskPushNotificationConfig": encode_hook(_write_push),
    },
)
"""A2A 0.1, for objects that correspond to later versions."""

_SEND: Final = protojson.compile(pb.SendMessageRequest, JSON_V01)
_CONFIGURATION: Final = protojson.compile(pb.SendMessageConfiguration, JSON_V01)
_GET: Final = protojson.compile(pb.GetTaskRequest, JSON_V01)
_TASK: Final = protojson.compile(pb.Task, JSON_V01)
_STATUS: Final = protojson.compile(pb.TaskStatus, JSON_V01)
_ARTIFACT: Final = protojson.compile(pb.Artifact, JSON_V01)
_MESSAGE: Final = protojson.compile(pb.Message, JSON_V01)
_EVENT: Final = protojson.compile(pb.StreamResponse, JSON_V01)
_PUSH: Final = protojson.compile(pb.TaskPushNotificationConfig, JSON_V01)


# Requests --------------------------------------------------------------------------------------------------


def read_send(params: object) -> pb.SendMessageRequest:
    """TaskSendParams. Generates a message id, which 0.1 does not have.

    Raises InvalidParams with the path of the field, as all decoders here do.
    """
    fields = _object(params)
    message = fields.get("message")
    if type(message) is dict:
        message = {
            **message,
            "taskId": _required_id(fields),
            "contextId": fields.get("sessionId"),
            "messageId": message.get("messageId") or str(uuid4()),
        }
    configuration: dict[str, Any] = {"acceptedOutputModes": fields.get("acceptedOutputModes")}
    if fields.get("historyLength"):
        configuration["historyLength"] = fields["historyLength"]
    request = _SEND.decode({"message": message, "metadata": fields.get("metadata")})
    if any(value is not None for value in configuration.values()):
        _CONFIGURATION.merge(request.configuration, configuration)
    if fields.get("pushNotification") is not None:
        _PUSH.merge(
            request.configuration.task_push_notification_config, fields["pushNotification"], path="pushNotification"
        )
        request.configuration.task_push_notification_config.SetInParent()
    return request


def write_send(request: pb.SendMessageRequest) -> dict[str, Any]:
    """TaskSendParams; the message must have a task id."""
    message = request.message
    out: dict[str, Any] = {"id": message.task_id, "message": _MESSAGE.to_dict(message)}
    if message.context_id:
        out["sessionId"] = message.context_id
    configuration = request.configuration
    if configuration.accepted_output_modes:
        out["acceptedOutputModes"] = list(configuration.accepted_output_modes)
    if configuration.history_length:
        out["historyLength"] = configuration.history_length
    if configuration.HasField("task_push_notification_config"):
        config = _PUSH.to_dict(configuration.task_push_notification_config)
        out["pushNotification"] = config["pushNotificationConfig"]
    if request.HasField("metadata"):
        out["metadata"] = _SEND.to_dict(pb.SendMessageRequest(metadata=request.metadata))["metadata"]
    return out


def read_get(params: object) -> pb.GetTaskRequest:
    """TaskQueryParams."""
    fields = dict(_object(params))
    _required_id(fields)
    if not fields.get("historyLength"):
        fields.pop("historyLength", None)
    return _GET.decode(fields)


def _object(params: object) -> dict[str, Any]:
    if type(params) is not dict:
        raise InvalidParams.field("params", "must be a JSON object")
    return params


def _required_id(params: dict[str, Any]) -> str:
    task_id = params.get("id")
    if type(task_id) is not str or not task_id:
        raise InvalidParams.field("id", "is required: the task id, a string that the client chooses")
    return task_id


# Responses -------------------------------------------------------------------------------------------------


def write_task(task: pb.Task) -> dict[str, Any]:
    """A Task as 0.1 JSON."""
    return _TASK.to_dict(task)


def write_send_response(response: pb.SendMessageResponse) -> dict[str, Any]:
    """The response to a send. A Message becomes a completed task with it as status message: 0.1 has only tasks."""
    if response.WhichOneof("payload") == "message":
        message = response.message
        status = pb.TaskStatus(state=pb.TASK_STATE_COMPLETED, message=message)
        return write_task(pb.Task(id=message.task_id, context_id=message.context_id, status=status))
    return write_task(response.task)


def read_task(value: object) -> pb.Task:
    """Decodes a Task of a 0.1 server; artifact ids are the indexes."""
    return _TASK.decode(value)


def read_event(value: object) -> pb.StreamResponse:
    """Decodes one event of a 0.1 server; `artifact` distinguishes the two kinds."""
    fields = _object(value)
    task_id, metadata = fields.get("id"), fields.get("metadata")
    artifact = fields.get("artifact")
    common = {"taskId": task_id, "metadata": metadata}
    if type(artifact) is dict:
        flags = {"append": artifact.get("append"), "lastChunk": artifact.get("lastChunk")}
        return _EVENT.decode({"artifactUpdate": {**common, "artifact": artifact, **flags}})
    return _EVENT.decode({"statusUpdate": {**common, "status": fields.get("status")}})


def to_updates(event: pb.StreamResponse) -> list[pb.StreamResponse]:
    """Splits an event into status and artifact updates: a Task into its artifacts and status."""
    match event.WhichOneof("payload"):
        case "task":
            task = event.task
            artifacts = [
                pb.TaskArtifactUpdateEvent(task_id=task.id, context_id=task.context_id, artifact=artifact)
                for artifact in task.artifacts
            ]
            status = pb.TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)
            if task.HasField("metadata"):
                status.metadata.CopyFrom(task.metadata)
                for artifact in artifacts:
                    artifact.metadata.CopyFrom(task.metadata)
            return [
                *(pb.StreamResponse(artifact_update=artifact) for artifact in artifacts),
                pb.StreamResponse(status_update=status),
            ]
        case "message":
            message = event.message
            status = pb.TaskStatusUpdateEvent(
                task_id=message.task_id,
                context_id=message.context_id,
                status=pb.TaskStatus(state=pb.TASK_STATE_COMPLETED, message=message),
            )
            return [pb.StreamResponse(status_update=status)]
        case _:
            return [event]


class V01StreamWriter:
    """Encodes the updates of one stream; remembers artifact indexes."""

    def __init__(self, artifact_ids: Iterable[str] = ()) -> None:
        """`artifact_ids`: artifacts already sent, in the order of their first updates."""
        self._indexes: dict[str, int] = {id: index for index, id in enumerate(artifact_ids)}

    def write(self, event: pb.StreamResponse, is_last: bool) -> dict[str, Any]:
        """Encodes one update (see `to_updates`). Skipping updates would give later artifacts wrong indexes."""
        if event.WhichOneof("payload") == "status_update":
            update = event.status_update
            final = is_last or states.is_terminal(update.status.state)
            return {
                "id": update.task_id,
                "status": _STATUS.to_dict(update.status),
                "final": final,
                **_metadata(update),
            }
        change = event.artifact_update
        index = self._indexes.setdefault(change.artifact.artifact_id, len(self._indexes))
        artifact = {**_ARTIFACT.to_dict(change.artifact), "index": index}
        if change.append:
            artifact["append"] = True
        if change.last_chunk:
            artifact["lastChunk"] = True
        return {"id": change.task_id, "artifact": artifact, **_metadata(change)}


def _metadata(update: pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent) -> dict[str, Any]:
    if not update.HasField("metadata"):
        return {}
    return {"metadata": _TASK.to_dict(pb.Task(metadata=update.metadata))["metadata"]}
