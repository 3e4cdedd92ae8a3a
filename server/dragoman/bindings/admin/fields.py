"""Request and response fields that several operator calls share."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar

from google.protobuf.message import Message

from dragoman.core.access.identity import AGENT_GRANT_PREFIX, SCOPE_GRANT_PREFIX, Identity
from dragoman.core.daily_usage import DailyUsageQuery
from dragoman.core.errors import InvalidParams, PermissionDenied
from dragoman.core.task.cursors import TaskSearch
from dragoman.core.task.maintenance import TaskSelection
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


Query = TypeVar("Query", TaskSearch, DailyUsageQuery)


def within_grants(identity: Identity, query: Query) -> Query:
    """Returns the query for the scopes and agents of an operator or viewer. Raises PermissionDenied for others."""
    return replace(
        query,
        scopes=allowed_names(identity, SCOPE_GRANT_PREFIX, query.scopes),
        agents=allowed_names(identity, AGENT_GRANT_PREFIX, query.agents),
    )


def allowed_names(identity: Identity, kind: str, wanted: frozenset[str]) -> frozenset[str]:
    """Returns the scopes or agents that a request of an operator or viewer covers; empty for all.

    These are those that it names, else all granted. `kind`: the prefix of the grants. Raises PermissionDenied for names
    outside of the grants.
    """
    granted = identity.granted(kind)
    if granted and (outside := sorted(wanted - granted)):
        raise PermissionDenied(f'your grants do not include "{kind}{outside[0]}"', log_details=identity.log_details)
    return wanted or granted


def narrow_request(request: Message, identity: Identity) -> None:
    """Limits a request on tasks to the scopes and agents in the grants of its operator or viewer.

    Raises PermissionDenied for others, and InvalidParams for a request that does not say which of several it means.
    """
    target = getattr(request, "selection", request)
    for name, kind in (("scope", SCOPE_GRANT_PREFIX), ("agent", AGENT_GRANT_PREFIX)):
        if name not in target.DESCRIPTOR.fields_by_name:
            continue
        named = frozenset(filter(None, (getattr(target, name),)))
        allowed = allowed_names(identity, kind, named)
        if len(allowed) > 1:
            names = ", ".join(sorted(allowed))
            raise InvalidParams.field(name, f"is required, because your grants name several: {names}")
        if allowed:
            setattr(target, name, *allowed)
