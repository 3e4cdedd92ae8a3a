"""A2A 0.3 (`a2a.v1`): converts its messages to those of 1.0 and back, for servers and clients.

A task is a resource name (`tasks/ID`) in 0.3. `blocking` is the opposite of `returnImmediately`: a call without
configuration blocks, one whose configuration omits `blocking` does not (false equals absent in proto3). Zero means
absent for every number, including `history_length`, where 1.0 has "none". Data is an object; other JSON is sent as
`{"value": …}` with the part metadata `data_part_compat`, as in the official converters. The last status update of a
stream is `final`. Without a 0.3 field and omitted: media type and file name of a part other than a file, `pageSize`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeVar, cast

from google.protobuf import struct_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from dragoman.core.errors import InvalidParams
from dragoman.core.limits.message_limits import check_parts
from dragoman.core.names import split_resource_name
from dragoman.core.push.configuration import OLDEST_CONFIG_ID, join_schemes, split_schemes
from dragoman.core.task import states
from dragoman.wire.dialects.parts import DATA_WRAPPER_KEY, is_wrapped, remove_wrapper_key
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

M = TypeVar("M", bound=Message)

# Messages with the same fields: one function for each pair, generated from their descriptors as in protojson.py
#
# Most fields have the same name and meaning. The code for a status:
#
#     def convert_a2a_v1_TaskStatus_to_TaskStatus(source, target):
#         target.state = source.state
#         if source.HasField("update"):
#             target.message.SetInParent(); convert_a2a_v1_Message_to_Message(source.update, target.message)
#         if source.HasField("timestamp"): target.timestamp.CopyFrom(source.timestamp)

_V1_NAMES: Final = {
    "content": "parts",
    "update": "message",
    "request": "message",
    "msg": "message",
    "push_notification": "task_push_notification_config",
    "last_updated_time": "status_timestamp_after",
}
"""The fields of 0.3 that have another name in 1.0."""


def convert(source: Message, target: M) -> M:
    """Fills a message from that of the other version, and returns it. Raises InvalidParams for too many parts."""
    name = _define(cast(Descriptor, source.DESCRIPTOR), cast(Descriptor, target.DESCRIPTOR))
    _CONVERTERS[name](source, target)
    return target


@cache
def _define(source: Descriptor, target: Descriptor) -> str:
    """The name of the function that converts from one type to the other. Fields that the other lacks are left out."""
    name = f"convert_{source.full_name.replace('.', '_')}_to_{target.name}"
    if name in _CONVERTERS:
        return name
    old, new = (source, target) if source.file.package == "a2a.v1" else (target, source)
    lines = [f"def {name}(source, target):", f" {_FIRST_STATEMENTS.get(source.full_name, 'pass')}"]
    for field in old.fields:
        renamed = _V1_NAMES.get(field.name, field.name)
        if renamed not in new.fields_by_name:
            continue
        ours, theirs = (field.name, renamed) if old is source else (renamed, field.name)
        read, kind = source.fields_by_name[ours], target.fields_by_name[theirs].message_type
        value, place = f"source.{ours}", f"target.{theirs}"
        if kind is not None and kind.file.package != "google.protobuf":
            inner = _define(cast(Descriptor, read.message_type), kind)
            lines.append(
                f" for one in {value}: {inner}(one, {place}.add())"
                if read.is_repeated
                else f" if source.HasField({ours!r}): {place}.SetInParent(); {inner}({value}, {place})"
            )
        elif read.is_repeated:
            lines.append(f" {place}.extend({value})")
        elif read.has_presence:
            copy = f"{place}.CopyFrom({value})" if kind is not None else f"{place} = {value}"
            lines.append(f" if source.HasField({ours!r}): {copy}")
        else:
            has_zero = not target.fields_by_name[theirs].has_presence
            lines.append(f" {place} = {value}" if has_zero else f" if {value}: {place} = {value}")
    exec("\n".join(lines), _CONVERTERS)
    return name


_FIRST_STATEMENTS: Final = {
    "a2a.v1.Message": "check_parts('message.parts', len(source.content))",
    "a2a.v1.Artifact": "check_parts('message.parts', len(source.parts))",
    "a2a.v1.SendMessageConfiguration": "target.return_immediately = not source.blocking",
    "lf.a2a.v1.SendMessageConfiguration": "target.blocking = not source.return_immediately",
    "a2a.v1.AuthenticationInfo": "target.scheme = join_schemes(source.schemes)",
    "lf.a2a.v1.AuthenticationInfo": "target.schemes.extend(split_schemes(source.scheme))",
}
"""The statement with which a conversion begins, by the type that it reads: for fields that differ in more than name."""


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
            if list(fields) == ["value"] and is_wrapped(part):
                out.data.CopyFrom(fields["value"])
                remove_wrapper_key(out)
            else:
                out.data.struct_value.CopyFrom(part.data.data)


def _write_part(part: pb.Part, out: v03.Part) -> None:
    if part.HasField("metadata"):
        out.metadata.CopyFrom(part.metadata)
    match part.WhichOneof("content"):
        case "text":
            out.text = part.text
        case "raw":
            out.file.file_with_bytes = part.raw
            out.file.name, out.file.mime_type = part.filename, part.media_type
        case "url":
            out.file.file_with_uri = part.url
            out.file.name, out.file.mime_type = part.filename, part.media_type
        case "data" if part.data.WhichOneof("kind") == "struct_value":
            out.data.data.CopyFrom(part.data.struct_value)
        case "data":
            value = out.data.data.fields["value"]
            value.CopyFrom(part.data)
            if value.WhichOneof("kind") is None:
                value.null_value = struct_pb2.NULL_VALUE  # an empty Value has no JSON form
            out.metadata.fields[DATA_WRAPPER_KEY].bool_value = True


_CONVERTERS: Final[dict[str, Any]] = {
    "convert_a2a_v1_Part_to_Part": _read_part,
    "convert_lf_a2a_v1_Part_to_Part": _write_part,
    **{function.__name__: function for function in (check_parts, join_schemes, split_schemes)},
}
"""The namespace of the generated functions."""

# Requests and responses --------------------------------------------------------------------------------------


PUSH_CONFIGS_COLLECTION: Final = "/pushNotificationConfigs"

_MISSING_IDS: Final = ("", "None", "undefined", "null")  # placeholders in names from clients without a configuration id


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


def read_request(request: Any, target: M) -> M:
    """Converts a request that may name a task. Raises InvalidParams for an invalid task name.

    `core.limits.message_limits` validates a message later; its errors call `content` `message.parts`, as later 0.3
    texts do; in Google's form `message.content` (wire/errors.py).
    """
    out: Any = convert(request, target)
    if "name" in request.DESCRIPTOR.fields_by_name:
        out.tenant, out.id = parse_task_name("name", request.name, request.tenant)
    return target


def write_request(request: Any, target: M) -> M:
    """The inverse of `read_request`, for clients.

    `blocking` is always set, because servers differ if it is absent. A history of zero messages cannot be requested.
    """
    out: Any = convert(request, target)
    if "name" in out.DESCRIPTOR.fields_by_name:
        out.name = f"tasks/{request.id}"
    elif isinstance(request, pb.SendMessageRequest):
        out.configuration.blocking = not request.configuration.return_immediately
    return target


def write_stream(response: pb.StreamResponse, *, is_last: bool = False) -> v03.StreamResponse:
    """One event of a stream. A status update is `final` if it `is_last` or its state is terminal."""
    out = convert(response, v03.StreamResponse())
    if response.HasField("status_update"):
        out.status_update.final = is_last or states.is_terminal(response.status_update.status.state)
    return out


def leaves_blocking_open(request: v03.SendMessageRequest) -> bool:
    """Whether a send does not say whether it waits: one without configuration, which has no absent `blocking`."""
    return not request.HasField("configuration")


def read_create_push_config(request: v03.CreateTaskPushNotificationConfigRequest) -> pb.TaskPushNotificationConfig:
    """CreateTaskPushNotificationConfig. Raises InvalidParams for an invalid parent.

    The published HTTP rule includes the collection in `parent`.
    """
    tenant, task_id = parse_task_name("parent", request.parent.removesuffix(PUSH_CONFIGS_COLLECTION), request.tenant)
    out = convert(request.config.push_notification_config, pb.TaskPushNotificationConfig())
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


def read_get_push_config(request: v03.GetTaskPushNotificationConfigRequest) -> pb.GetTaskPushNotificationConfigRequest:
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
    out = convert(request, pb.ListTaskPushNotificationConfigsRequest())
    out.tenant, out.task_id = tenant, task_id
    return out


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


def write_push_config(config: pb.TaskPushNotificationConfig) -> v03.TaskPushNotificationConfig:
    return v03.TaskPushNotificationConfig(
        name=f"tasks/{config.task_id}{PUSH_CONFIGS_COLLECTION}/{config.id}",
        push_notification_config=convert(config, v03.PushNotificationConfig()),
    )


def write_push_configs(
    response: pb.ListTaskPushNotificationConfigsResponse,
) -> v03.ListTaskPushNotificationConfigResponse:
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


def qualify_push_configs(
    response: v03.TaskPushNotificationConfig | v03.ListTaskPushNotificationConfigResponse, agent: str
) -> None:
    """Makes the names of configurations full (AIP-122): callers get the form of name that they used."""
    for config in [response] if isinstance(response, v03.TaskPushNotificationConfig) else response.configs:
        config.name = f"{agent}/{config.name}"
