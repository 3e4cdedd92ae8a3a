"""Server side of A2A 0.3 (`a2a.v1`): `read_…` converts to 1.0 messages, `write_…` converts back.

A task is a resource name (`tasks/ID`) in 0.3. `blocking` is the opposite of `returnImmediately`: a call without
configuration blocks, one whose configuration omits `blocking` does not (false equals absent in proto3). Zero means
absent for every number, including `history_length`, where 1.0 has "none". Data is an object; other JSON is sent as
`{"value": …}` with the part metadata `data_part_compat`, as in the official converters. The last status update of a
stream is `final`. Without a 0.3 field and omitted: media type and file name of a part other than a file, `pageSize`.
"""

from __future__ import annotations

from typing import Final, cast

from google.protobuf import struct_pb2

from dragoman.core.errors import InvalidParams
from dragoman.core.limits import message_limits
from dragoman.core.names import split_resource_name
from dragoman.core.push.configuration import OLDEST_CONFIG_ID, join_schemes, split_schemes
from dragoman.core.task import states
from dragoman.wire.dialects.parts import DATA_WRAPPER_KEY
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

# Requests --------------------------------------------------------------------------------------------------


def parse_task_name(field: str, name: str, tenant: str = "") -> tuple[str, str]:
    """The tenant and task id in a resource name and the tenant of the request.

    Accepts `tasks/ID`, `projects/…/agents/AGENT/tasks/ID` (the tenant is everything before `/tasks/`), and the plain
    `ID` of clients of the 1.0 release candidate. Raises InvalidParams for `field` otherwise, and if name and request
    have different tenants.
    """
    within, rest = split_resource_name(name)
    task_id = rest.removeprefix("tasks/")
    bare = task_id == rest
    if not task_id or (bare and (within or "/" in task_id)):
        raise InvalidParams.field(field, "must be tasks/ID or projects/…/agents/AGENT/tasks/ID")
    if within and tenant and tenant.strip("/") != within:
        raise InvalidParams.field("tenant", f"differs from the tenant in {field}; omit one of them")
    return within or tenant, task_id


def read_send_message(request: v03.SendMessageRequest) -> pb.SendMessageRequest:
    """SendMessage and SendStreamingMessage.

    `core.limits.message_limits` validates the message later; its errors call `content` `message.parts`, as later 0.3
    texts do; in Google's form `message.content` (wire/errors.py).
    """
    out = pb.SendMessageRequest(tenant=request.tenant)
    if request.HasField("request"):
        _read_message(request.request, out.message)
    if request.HasField("configuration"):
        _read_configuration(request.configuration, out.configuration)
    if request.HasField("metadata"):
        out.metadata.CopyFrom(request.metadata)
    return out


def leaves_blocking_open(request: v03.SendMessageRequest) -> bool:
    """Whether a send does not say whether it waits: one without configuration, which has no absent `blocking`."""
    return not request.HasField("configuration")


def _read_configuration(configuration: v03.SendMessageConfiguration, out: pb.SendMessageConfiguration) -> None:
    out.accepted_output_modes.extend(configuration.accepted_output_modes)
    out.return_immediately = not configuration.blocking
    if configuration.history_length:
        out.history_length = configuration.history_length
    if configuration.HasField("push_notification"):
        out.task_push_notification_config.CopyFrom(read_push_config(configuration.push_notification))


def read_push_config(config: v03.PushNotificationConfig) -> pb.TaskPushNotificationConfig:
    """A push configuration without its task."""
    out = pb.TaskPushNotificationConfig(id=config.id, url=config.url, token=config.token)
    if config.HasField("authentication"):
        out.authentication.scheme = join_schemes(config.authentication.schemes)
        out.authentication.credentials = config.authentication.credentials
    return out


def read_get_task(request: v03.GetTaskRequest) -> pb.GetTaskRequest:
    """GetTask. Raises InvalidParams for an invalid task name."""
    tenant, task_id = parse_task_name("name", request.name, request.tenant)
    out = pb.GetTaskRequest(tenant=tenant, id=task_id)
    if request.history_length:
        out.history_length = request.history_length
    return out


def read_list_tasks(request: v03.ListTasksRequest) -> pb.ListTasksRequest:
    """ListTasks, which existed only on the main branch of 0.3."""
    out = pb.ListTasksRequest(
        tenant=request.tenant,
        context_id=request.context_id,
        status=cast(pb.TaskState, request.status),
        page_token=request.page_token,
    )
    if request.page_size:
        out.page_size = request.page_size
    if request.history_length:
        out.history_length = request.history_length
    if request.HasField("last_updated_time"):
        out.status_timestamp_after.CopyFrom(request.last_updated_time)
    if request.include_artifacts:
        out.include_artifacts = True
    return out


def read_cancel_task(request: v03.CancelTaskRequest) -> pb.CancelTaskRequest:
    """CancelTask. Raises InvalidParams for an invalid task name."""
    tenant, task_id = parse_task_name("name", request.name, request.tenant)
    return pb.CancelTaskRequest(tenant=tenant, id=task_id)


def read_subscription(request: v03.TaskSubscriptionRequest) -> pb.SubscribeToTaskRequest:
    """TaskSubscription (SubscribeToTask in 1.0). Raises InvalidParams for an invalid task name."""
    tenant, task_id = parse_task_name("name", request.name, request.tenant)
    return pb.SubscribeToTaskRequest(tenant=tenant, id=task_id)


def read_get_agent_card(request: v03.GetAgentCardRequest) -> pb.GetExtendedAgentCardRequest:
    """GetAgentCard; its only field is the tenant."""
    return pb.GetExtendedAgentCardRequest(tenant=request.tenant)


def read_message(message: v03.Message) -> pb.Message:
    """A message as 1.0 message; a part without content remains one."""
    out = pb.Message()
    _read_message(message, out)
    return out


def _read_message(message: v03.Message, out: pb.Message) -> None:
    out.message_id = message.message_id
    out.context_id = message.context_id
    out.task_id = message.task_id
    out.role = cast(pb.Role, message.role)  # the numbers are the same
    message_limits.check_parts("message.parts", len(message.content))
    for part in message.content:
        _read_part(part, out.parts.add())
    if message.HasField("metadata"):
        out.metadata.CopyFrom(message.metadata)
    out.extensions.extend(message.extensions)
    out.reference_task_ids.extend(message.reference_task_ids)


def _read_part(part: v03.Part, out: pb.Part) -> None:
    if part.HasField("metadata"):
        out.metadata.CopyFrom(part.metadata)
    match part.WhichOneof("part"):
        case "text":
            out.text = part.text
        case "file":
            out.filename = part.file.name
            out.media_type = part.file.mime_type
            match part.file.WhichOneof("file"):
                case "file_with_bytes":
                    # Possibly base64 text: wire/dialects/file_bytes.py decodes it.
                    out.raw = part.file.file_with_bytes
                case "file_with_uri":
                    out.url = part.file.file_with_uri
        case "data":
            fields = part.data.data.fields
            if _is_wrapped(part) and list(fields) == ["value"]:
                out.data.CopyFrom(fields["value"])
                del out.metadata.fields[DATA_WRAPPER_KEY]
                if not out.metadata.fields:
                    out.ClearField("metadata")
            else:
                out.data.struct_value.CopyFrom(part.data.data)


def _is_wrapped(part: v03.Part) -> bool:
    # The `in` is needed: reading a missing key of a message map creates it.
    return DATA_WRAPPER_KEY in part.metadata.fields and part.metadata.fields[DATA_WRAPPER_KEY].bool_value


# Responses -------------------------------------------------------------------------------------------------


def write_send_message(response: pb.SendMessageResponse) -> v03.SendMessageResponse:
    """The response to a send: a task or a message."""
    out = v03.SendMessageResponse()
    match response.WhichOneof("payload"):
        case "task":
            _write_task(response.task, out.task)
        case "message":
            _write_message(response.message, out.msg)
    return out


def write_stream(response: pb.StreamResponse, *, is_last: bool = False) -> v03.StreamResponse:
    """One event of a stream. A status update is `final` if it `is_last` or its state is terminal."""
    out = v03.StreamResponse()
    match response.WhichOneof("payload"):
        case "task":
            _write_task(response.task, out.task)
        case "message":
            _write_message(response.message, out.msg)
        case "status_update":
            _write_status_update(response.status_update, out.status_update, is_last)
        case "artifact_update":
            _write_artifact_update(response.artifact_update, out.artifact_update)
    return out


def write_list_tasks(response: pb.ListTasksResponse) -> v03.ListTasksResponse:
    """One page of tasks."""
    out = v03.ListTasksResponse(next_page_token=response.next_page_token, total_size=response.total_size)
    for task in response.tasks:
        _write_task(task, out.tasks.add())
    return out


def write_task(task: pb.Task) -> v03.Task:
    """A task as 0.3 message."""
    out = v03.Task()
    _write_task(task, out)
    return out


def write_message(message: pb.Message) -> v03.Message:
    """A message as 0.3 message."""
    out = v03.Message()
    _write_message(message, out)
    return out


def _write_task(task: pb.Task, out: v03.Task) -> None:
    out.id = task.id
    out.context_id = task.context_id
    if task.HasField("status"):
        _write_status(task.status, out.status)
    for artifact in task.artifacts:
        _write_artifact(artifact, out.artifacts.add())
    for message in task.history:
        _write_message(message, out.history.add())
    if task.HasField("metadata"):
        out.metadata.CopyFrom(task.metadata)


def _write_status(status: pb.TaskStatus, out: v03.TaskStatus) -> None:
    out.state = cast(v03.TaskState, status.state)  # the numbers are the same, CANCELED is CANCELLED
    if status.HasField("message"):
        _write_message(status.message, out.update)
    if status.HasField("timestamp"):
        out.timestamp.CopyFrom(status.timestamp)


def _write_status_update(update: pb.TaskStatusUpdateEvent, out: v03.TaskStatusUpdateEvent, is_last: bool) -> None:
    out.task_id = update.task_id
    out.context_id = update.context_id
    _write_status(update.status, out.status)
    out.final = is_last or states.is_terminal(update.status.state)
    if update.HasField("metadata"):
        out.metadata.CopyFrom(update.metadata)


def _write_artifact_update(update: pb.TaskArtifactUpdateEvent, out: v03.TaskArtifactUpdateEvent) -> None:
    out.task_id = update.task_id
    out.context_id = update.context_id
    _write_artifact(update.artifact, out.artifact)
    out.append = update.append
    out.last_chunk = update.last_chunk
    if update.HasField("metadata"):
        out.metadata.CopyFrom(update.metadata)


def _write_artifact(artifact: pb.Artifact, out: v03.Artifact) -> None:
    out.artifact_id = artifact.artifact_id
    out.name = artifact.name
    out.description = artifact.description
    for part in artifact.parts:
        _write_part(part, out.parts.add())
    if artifact.HasField("metadata"):
        out.metadata.CopyFrom(artifact.metadata)
    out.extensions.extend(artifact.extensions)


def _write_message(message: pb.Message, out: v03.Message) -> None:
    out.message_id = message.message_id
    out.context_id = message.context_id
    out.task_id = message.task_id
    out.role = cast(v03.Role, message.role)
    for part in message.parts:
        _write_part(part, out.content.add())
    if message.HasField("metadata"):
        out.metadata.CopyFrom(message.metadata)
    out.extensions.extend(message.extensions)
    out.reference_task_ids.extend(message.reference_task_ids)


def _write_part(part: pb.Part, out: v03.Part) -> None:
    if part.HasField("metadata"):
        out.metadata.CopyFrom(part.metadata)
    match part.WhichOneof("content"):
        case "text":
            out.text = part.text
        case "raw":
            out.file.file_with_bytes = part.raw
            _write_file(part, out.file)
        case "url":
            out.file.file_with_uri = part.url
            _write_file(part, out.file)
        case "data" if part.data.WhichOneof("kind") == "struct_value":
            out.data.data.CopyFrom(part.data.struct_value)
        case "data":
            value = out.data.data.fields["value"]
            value.CopyFrom(part.data)
            if value.WhichOneof("kind") is None:
                value.null_value = struct_pb2.NULL_VALUE  # an empty Value has no JSON form
            out.metadata.fields[DATA_WRAPPER_KEY].bool_value = True


def _write_file(part: pb.Part, out: v03.FilePart) -> None:
    out.name = part.filename
    out.mime_type = part.media_type


PUSH_CONFIGS_COLLECTION: Final = "/pushNotificationConfigs"

_MISSING_IDS: Final = ("", "None", "undefined", "null")
"""Placeholders in names from clients without a configuration id."""


# Requests --------------------------------------------------------------------------------------------------


def read_create_push_config(request: v03.CreateTaskPushNotificationConfigRequest) -> pb.TaskPushNotificationConfig:
    """CreateTaskPushNotificationConfig. Raises InvalidParams for an invalid parent.

    The published HTTP rule includes the collection in `parent`.
    """
    tenant, task_id = parse_task_name("parent", request.parent.removesuffix(PUSH_CONFIGS_COLLECTION), request.tenant)
    out = read_push_config(request.config.push_notification_config)
    out.tenant, out.task_id, out.id = tenant, task_id, request.config_id or out.id
    return out


def read_google_config_id(request: v03.CreateTaskPushNotificationConfigRequest) -> None:
    """Sets `config_id` from the id of the configuration or, without one, from its name (Google's form).

    Raises InvalidParams for a field that contradicts another. Other forms of 0.3 ignore the name: published clients
    write placeholders and wrong ids there.
    """
    config, own_id = request.config, request.config.push_notification_config.id
    request.config_id = request.config_id or own_id
    if own_id and own_id != request.config_id:
        raise InvalidParams.field(
            "config.pushNotificationConfig.id", f'differs from configId, "{request.config_id[:200]}"; omit one of them'
        )
    if not config.name:
        return
    tenant, task_id = parse_task_name("parent", request.parent.removesuffix(PUSH_CONFIGS_COLLECTION), request.tenant)
    collection = f"tasks/{task_id}{PUSH_CONFIGS_COLLECTION}"
    place, _, named = config.name.removeprefix(f"{tenant}/").rpartition("/")
    if place != collection:
        raise InvalidParams.field("config.name", f"must be {collection}/ID, as the path says, or be omitted")
    if named in _MISSING_IDS:
        return
    request.config_id = request.config_id or named
    if named != request.config_id:
        raise InvalidParams.field("config.name", f'has another id than "{request.config_id[:200]}"; omit one of them')


def read_get_push_config(
    request: v03.GetTaskPushNotificationConfigRequest,
) -> pb.GetTaskPushNotificationConfigRequest:
    """GetTaskPushNotificationConfig. Without an id it returns the first. Raises InvalidParams."""
    tenant, task_id, id = _parse_config_name(request.name, request.tenant)
    return pb.GetTaskPushNotificationConfigRequest(
        tenant=tenant, task_id=task_id, id=OLDEST_CONFIG_ID if id in _MISSING_IDS else id
    )


def read_list_push_configs(
    request: v03.ListTaskPushNotificationConfigRequest,
) -> pb.ListTaskPushNotificationConfigsRequest:
    """ListTaskPushNotificationConfig. Raises InvalidParams for an invalid parent."""
    tenant, task_id = parse_task_name("parent", request.parent.removesuffix(PUSH_CONFIGS_COLLECTION), request.tenant)
    return pb.ListTaskPushNotificationConfigsRequest(
        tenant=tenant, task_id=task_id, page_size=request.page_size, page_token=request.page_token
    )


def read_delete_push_config(
    request: v03.DeleteTaskPushNotificationConfigRequest,
) -> pb.DeleteTaskPushNotificationConfigRequest:
    """DeleteTaskPushNotificationConfig. Raises InvalidParams for a name without a configuration id."""
    tenant, task_id, id = _parse_config_name(request.name, request.tenant)
    if not id:
        raise InvalidParams.field("name", f"must be tasks/TASK{PUSH_CONFIGS_COLLECTION}/ID")
    return pb.DeleteTaskPushNotificationConfigRequest(tenant=tenant, task_id=task_id, id=id)


def _parse_config_name(name: str, tenant: str) -> tuple[str, str, str]:
    """Splits a resource name into tenant, task id and configuration id."""
    within, rest = split_resource_name(name)
    task, _, id = rest.partition(f"{PUSH_CONFIGS_COLLECTION}/")
    task = f"{within}/{task}" if within else task
    return *parse_task_name("name", task.removesuffix(PUSH_CONFIGS_COLLECTION), tenant), id


# Responses -------------------------------------------------------------------------------------------------


def write_push_config(config: pb.TaskPushNotificationConfig) -> v03.TaskPushNotificationConfig:
    """A configuration of a task."""
    out = v03.TaskPushNotificationConfig(name=f"tasks/{config.task_id}{PUSH_CONFIGS_COLLECTION}/{config.id}")
    inner = out.push_notification_config
    inner.id, inner.url, inner.token = config.id, config.url, config.token
    if config.HasField("authentication"):
        inner.authentication.credentials = config.authentication.credentials
        inner.authentication.schemes.extend(split_schemes(config.authentication.scheme))
    return out


def write_push_configs(
    response: pb.ListTaskPushNotificationConfigsResponse,
) -> v03.ListTaskPushNotificationConfigResponse:
    """One page of configurations."""
    return v03.ListTaskPushNotificationConfigResponse(
        configs=map(write_push_config, response.configs), next_page_token=response.next_page_token
    )


def agent_name(
    request: v03.CreateTaskPushNotificationConfigRequest
    | v03.GetTaskPushNotificationConfigRequest
    | v03.ListTaskPushNotificationConfigRequest,
) -> str:
    """The agent in the resource name of a request; empty for a name relative to the tenant."""
    name = request.name if isinstance(request, v03.GetTaskPushNotificationConfigRequest) else request.parent
    return split_resource_name(name)[0]


def qualify_push_config(config: v03.TaskPushNotificationConfig, agent: str) -> None:
    """Makes the name of a configuration full (AIP-122): callers get the form of name that they used."""
    config.name = f"{agent}/{config.name}"


def qualify_push_configs(response: v03.ListTaskPushNotificationConfigResponse, agent: str) -> None:
    """Makes the names of a page of configurations full."""
    for config in response.configs:
        qualify_push_config(config, agent)
