"""Every request of the method table, filled with names.

What each field of a request names is said here once, and `undecided` tells which fields nobody has thought of: a new
row of the table needs no word here, a new field of a request does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from tests.isolation.names import Names

from dragoman.bindings.method_table import JSONRPC_ROWS, RPC_ROWS, SHARED_TASK_ROWS
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

TASK: Final = "{task}"
CONFIG: Final = "tasks/{task}/pushNotificationConfigs/{config}"

NAMES: Final[Mapping[str, str]] = {
    "lf.a2a.v1.Message.task_id": TASK,
    "lf.a2a.v1.Message.context_id": "{context}",
    "lf.a2a.v1.Message.reference_task_ids": TASK,
    "lf.a2a.v1.GetTaskRequest.id": TASK,
    "lf.a2a.v1.CancelTaskRequest.id": TASK,
    "lf.a2a.v1.SubscribeToTaskRequest.id": TASK,
    "lf.a2a.v1.ListTasksRequest.context_id": "{context}",
    "lf.a2a.v1.ListTasksRequest.page_token": "{token}",
    "lf.a2a.v1.TaskPushNotificationConfig.id": "{config}",
    "lf.a2a.v1.TaskPushNotificationConfig.task_id": TASK,
    "lf.a2a.v1.GetTaskPushNotificationConfigRequest.id": "{config}",
    "lf.a2a.v1.GetTaskPushNotificationConfigRequest.task_id": TASK,
    "lf.a2a.v1.DeleteTaskPushNotificationConfigRequest.id": "{config}",
    "lf.a2a.v1.DeleteTaskPushNotificationConfigRequest.task_id": TASK,
    "lf.a2a.v1.ListTaskPushNotificationConfigsRequest.task_id": TASK,
    "lf.a2a.v1.ListTaskPushNotificationConfigsRequest.page_token": "{token}",
    "a2a.v1.Message.task_id": TASK,
    "a2a.v1.Message.context_id": "{context}",
    "a2a.v1.Message.reference_task_ids": TASK,
    "a2a.v1.GetTaskRequest.name": "tasks/{task}",
    "a2a.v1.CancelTaskRequest.name": "tasks/{task}",
    "a2a.v1.TaskSubscriptionRequest.name": "tasks/{task}",
    "a2a.v1.ListTasksRequest.context_id": "{context}",
    "a2a.v1.ListTasksRequest.page_token": "{token}",
    "a2a.v1.CreateTaskPushNotificationConfigRequest.parent": "tasks/{task}",
    "a2a.v1.CreateTaskPushNotificationConfigRequest.config_id": "{config}",
    "a2a.v1.TaskPushNotificationConfig.name": CONFIG,
    "a2a.v1.PushNotificationConfig.id": "{config}",
    "a2a.v1.GetTaskPushNotificationConfigRequest.name": CONFIG,
    "a2a.v1.DeleteTaskPushNotificationConfigRequest.name": CONFIG,
    "a2a.v1.ListTaskPushNotificationConfigRequest.parent": "tasks/{task}",
    "a2a.v1.ListTaskPushNotificationConfigRequest.page_token": "{token}",
}
"""Fields that name something, and how."""

_WEBHOOK: Final = "https://stranger.example/hook"

CONSTANT: Final[Mapping[str, Any]] = {
    "lf.a2a.v1.Message.message_id": "m-1",
    "lf.a2a.v1.Message.role": pb.ROLE_USER,
    "lf.a2a.v1.Message.parts": [pb.Part(text="hello")],
    "lf.a2a.v1.TaskPushNotificationConfig.url": _WEBHOOK,
    "a2a.v1.Message.message_id": "m-1",
    "a2a.v1.Message.role": v03_pb.ROLE_USER,
    "a2a.v1.Message.content": [v03_pb.Part(text="hello")],
    "a2a.v1.PushNotificationConfig.url": _WEBHOOK,
}
"""Fields that name nothing of anybody's, and are the same in each request."""

LEFT_OUT: Final = frozenset(
    {
        "lf.a2a.v1.Message.extensions",
        "lf.a2a.v1.SendMessageConfiguration.accepted_output_modes",
        # A config of a task that the stranger itself begins: what it names is the stranger's.
        "lf.a2a.v1.SendMessageConfiguration.task_push_notification_config",
        "lf.a2a.v1.TaskPushNotificationConfig.token",
        "lf.a2a.v1.TaskPushNotificationConfig.authentication",
        "a2a.v1.Message.extensions",
        "a2a.v1.SendMessageConfiguration.accepted_output_modes",
        "a2a.v1.SendMessageConfiguration.push_notification",
        "a2a.v1.PushNotificationConfig.token",
        "a2a.v1.PushNotificationConfig.authentication",
    }
)
"""Fields that name nothing of anybody's, and are not needed."""

ABSENT: Final = frozenset({"tenant", "metadata"})
"""Fields of any message: the tenant is said by who asks, and metadata is for agents."""


@dataclass(frozen=True)
class Field:
    """A field of a request, reached by these names."""

    path: tuple[str, ...]
    descriptor: FieldDescriptor

    @property
    def full_name(self) -> str:
        return str(self.descriptor.full_name)


def fields(descriptor: Any, path: tuple[str, ...] = ()) -> Iterator[Field]:
    """The fields of a request that hold text, however deep."""
    for field in descriptor.fields:
        found = Field((*path, field.name), field)
        decided = found.full_name in CONSTANT or found.full_name in LEFT_OUT
        inner = field.message_type
        if field.name in ABSENT or found.full_name in LEFT_OUT:
            continue
        if inner is not None and not decided and not inner.full_name.startswith("google.protobuf."):
            yield from fields(inner, found.path)
        elif decided or field.type == FieldDescriptor.TYPE_STRING:
            yield found


def requests() -> set[type[Message]]:
    """The types of all requests, over every binding."""
    called = {row.op.request for row in (*JSONRPC_ROWS, *SHARED_TASK_ROWS.values())}
    return {row.request for row in RPC_ROWS} | called


def undecided() -> set[str]:
    """Fields that could name something, and nobody said what."""
    found = {field.full_name for request in requests() for field in fields(request.DESCRIPTOR)}
    return found - set(NAMES) - set(CONSTANT)


def naming(request: type[Message], without: frozenset[str] = frozenset()) -> Iterator[frozenset[str]]:
    """The sets of fields to fill: each field that names something alone, then all of them, then none."""
    found = [field.full_name for field in fields(request.DESCRIPTOR) if field.full_name in NAMES]
    found = [name for name in found if name not in without]
    wanted = [frozenset({name}) for name in found] + [frozenset(found), frozenset()]
    yield from dict.fromkeys(wanted)


def filled(request: type[Message], names: Names, tenant: str, which: frozenset[str]) -> Message:
    """A request in which these fields name what the names say."""
    message = request()
    if "tenant" in request.DESCRIPTOR.fields_by_name and tenant:
        message.tenant = tenant  # type: ignore[attr-defined]  # looked up above
    for field in fields(request.DESCRIPTOR):
        at: Any = message
        for name in field.path[:-1]:
            at = getattr(at, name)
        value = CONSTANT.get(field.full_name)
        if field.full_name in which:
            value = NAMES[field.full_name].format(**vars(names))
        if value is None:
            continue
        if field.descriptor.is_repeated:
            getattr(at, field.path[-1]).extend(value if isinstance(value, list) else [value])
        else:
            setattr(at, field.path[-1], value)
    return message
