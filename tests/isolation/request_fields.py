"""Every request of the method table, filled with names.

The tables below say what each field names. `undecided` lists fields without an entry: a new row of the method table
needs none here, a new field of a request does.
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
"""Fields that contain a name, and its format."""

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
"""Fields without a name, with a constant value in each request."""

LEFT_OUT: Final = frozenset(
    {
        "lf.a2a.v1.Message.extensions",
        "lf.a2a.v1.SendMessageConfiguration.accepted_output_modes",
        # The configuration of a task that the caller itself creates.
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
"""Optional fields without a name, which are left empty."""

ABSENT: Final = frozenset({"tenant", "metadata"})
"""Fields of any message that are skipped: the caller sets the tenant, and metadata is for agents."""


@dataclass(frozen=True)
class Field:
    """A field of a request, at this path."""

    path: tuple[str, ...]
    descriptor: FieldDescriptor

    @property
    def full_name(self) -> str:
        return str(self.descriptor.full_name)


def fields(descriptor: Any, path: tuple[str, ...] = ()) -> Iterator[Field]:
    """The text fields of a request, on all levels."""
    for field in descriptor.fields:
        entry = Field((*path, field.name), field)
        decided = entry.full_name in CONSTANT or entry.full_name in LEFT_OUT
        inner = field.message_type
        if field.name in ABSENT or entry.full_name in LEFT_OUT:
            continue
        if inner is not None and not decided and not inner.full_name.startswith("google.protobuf."):
            yield from fields(inner, entry.path)
        elif decided or field.type == FieldDescriptor.TYPE_STRING:
            yield entry


def requests() -> set[type[Message]]:
    """The request types of all bindings."""
    called = {row.op.request for row in (*JSONRPC_ROWS, *SHARED_TASK_ROWS.values())}
    return {row.request for row in RPC_ROWS} | called


def undecided() -> set[str]:
    """Text fields without an entry in the tables."""
    names = {field.full_name for request in requests() for field in fields(request.DESCRIPTOR)}
    return names - set(NAMES) - set(CONSTANT)


def naming(request: type[Message], without: frozenset[str] = frozenset()) -> Iterator[frozenset[str]]:
    """The sets of named fields to fill: each one alone, then all, then none."""
    named = [field.full_name for field in fields(request.DESCRIPTOR) if field.full_name in NAMES]
    named = [name for name in named if name not in without]
    sets = [frozenset({name}) for name in named] + [frozenset(named), frozenset()]
    yield from dict.fromkeys(sets)


def filled(request: type[Message], names: Names, tenant: str, which: frozenset[str]) -> Message:
    """A request with these fields set to the names."""
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
