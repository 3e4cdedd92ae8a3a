"""Request and response fields that several operator calls share."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

from dragoman.core.access.identity import AGENT_GRANT_PREFIX, SCOPE_GRANT_PREFIX, Identity
from dragoman.core.errors import InvalidParams
from dragoman.core.task.maintenance import TaskSelection
from dragoman.runtime.operations.operator_tasks import check_reach
from dragoman_pb.dragoman.ops.v1 import events_pb2 as events_pb
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import push_pb2 as push_pb
from dragoman_pb.dragoman.ops.v1 import steps_pb2 as steps_pb
from dragoman_pb.dragoman.ops.v1 import tasks_pb2 as tasks_pb

TaskRequest = (
    events_pb.ListEventsRequest
    | steps_pb.ListStepsRequest
    | ops.ExportTaskRequest
    | push_pb.ListPushConfigsRequest
    | push_pb.RedeliverRequest
    | tasks_pb.CancelTaskRequest
    | tasks_pb.RerunTaskRequest
)
"""Requests that select tasks by id; agent, principal and scope narrow the selection."""


def check_present(field: str, text: str) -> None:
    """Raises InvalidParams for an empty field."""
    if not text:
        raise InvalidParams.field(field, "is required")


MAX_REQUEST_ID_LENGTH: Final = 128
"""Characters of a request id."""


def check_request_id(request_id: str) -> None:
    """Raises InvalidParams for a request id that is too long."""
    if len(request_id) > MAX_REQUEST_ID_LENGTH:
        rule = f"must have at most {MAX_REQUEST_ID_LENGTH} characters, not {len(request_id)}"
        raise InvalidParams.field("requestId", rule)


def task_selection(request: TaskRequest) -> TaskSelection:
    """The tasks that a request selects. Raises InvalidParams without a task id."""
    check_present("taskId", request.task_id)
    return TaskSelection(task=request.task_id, agent=request.agent, principal=request.principal, scope=request.scope)


def page_limit(limit: int, *, default: int, maximum: int) -> int:
    """The number of entries to return; 0 selects the default. Raises InvalidParams."""
    if not 0 <= limit <= maximum:
        raise InvalidParams.field("limit", f"must be 1 to {maximum}, or 0 for {default}")
    return limit or default


def set_timestamps(message: Message, **milliseconds: int) -> None:
    """Sets Timestamp fields from milliseconds since 1970; 0 leaves a field absent."""
    for field, at in milliseconds.items():
        if at:
            getattr(message, field).FromMilliseconds(at)


def narrow_request(request: Message, identity: Identity) -> None:
    """Limits a request on tasks to the scopes and agents in the grants of its operator or viewer.

    Raises PermissionDenied for others, and InvalidParams for a request that does not say which of several it means.
    """
    target = getattr(request, "selection", request)
    for name, kind in (("scope", SCOPE_GRANT_PREFIX), ("agent", AGENT_GRANT_PREFIX)):
        if name not in target.DESCRIPTOR.fields_by_name:
            continue
        named = frozenset(filter(None, (getattr(target, name),)))
        reach = check_reach(identity, kind, named)
        if len(reach) > 1:
            raise InvalidParams.field(
                name, f"is required, because your grants name several: {', '.join(sorted(reach))}"
            )
        if reach:
            setattr(target, name, *reach)
