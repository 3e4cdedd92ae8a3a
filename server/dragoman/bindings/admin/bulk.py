"""Operator calls that change many tasks (`dragoman.ops.v1`): one page of a filter for each call, or a dry run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from dragoman.bindings.admin.fields import check_request_id, page_limit
from dragoman.bindings.admin.tasks import check_state_names, task_search
from dragoman.core.access.identity import Identity
from dragoman.core.errors import InvalidParams
from dragoman.core.task import states
from dragoman.runtime.operations.bulk_tasks import (
    MAX_BULK_PAGE,
    OPEN_STATES,
    UNSUCCESSFUL_STATES,
    BulkCall,
    BulkFailure,
    BulkPage,
    BulkTasks,
    check_states,
)
from dragoman_pb.dragoman.ops.v1 import bulk_pb2 as pb

DEFAULT_BULK_PAGE: Final = 50

_SELECTING_FIELDS: Final = (
    "task_id", "scope", "agent", "context_id", "state", "principal", "states", "changed_since", "changed_before",
    "text", "metadata",
)  # fmt: skip
_REFUSED_FIELDS: Final = ("own", "page_token")

BulkRequest = pb.CancelTasksRequest | pb.RerunTasksRequest | pb.EraseTasksRequest
Response = TypeVar("Response", pb.CancelTasksResponse, pb.RerunTasksResponse, pb.EraseTasksResponse)


@dataclass(frozen=True, slots=True)
class _StatesOfCall:
    """The states that a filter may name, and those of a filter that names none; empty for all."""

    allowed: frozenset[int]
    default: frozenset[int] = frozenset()


_CANCEL: Final = _StatesOfCall(OPEN_STATES, OPEN_STATES)
_RERUN: Final = _StatesOfCall(states.TERMINAL, UNSUCCESSFUL_STATES)
_ERASE: Final = _StatesOfCall(states.STORED_STATES)


class BulkOperations:
    """Operations from request message to response message. They raise A2AError."""

    def __init__(self, bulk_tasks: BulkTasks) -> None:
        self._bulk_tasks = bulk_tasks

    async def cancel_tasks(self, identity: Identity, request: pb.CancelTasksRequest) -> pb.CancelTasksResponse:
        """Cancels a page of tasks."""
        return await self._run(identity, request, _CANCEL, self._bulk_tasks.cancel, pb.CancelTasksResponse())

    async def rerun_tasks(self, identity: Identity, request: pb.RerunTasksRequest) -> pb.RerunTasksResponse:
        """Reruns a page of tasks."""
        rerun = partial(self._bulk_tasks.rerun, repeat_steps=request.repeat_steps)
        return await self._run(identity, request, _RERUN, rerun, pb.RerunTasksResponse())

    async def erase_tasks(self, identity: Identity, request: pb.EraseTasksRequest) -> pb.EraseTasksResponse:
        """Erases a page of tasks."""
        return await self._run(identity, request, _ERASE, self._bulk_tasks.erase, pb.EraseTasksResponse())

    async def _run(
        self,
        identity: Identity,
        request: BulkRequest,
        of_call: _StatesOfCall,
        change_page: Callable[[BulkCall], Awaitable[BulkPage]],
        response: Response,
    ) -> Response:
        """Fills the response to a dry run, or changes a page."""
        call = _bulk_call(identity, request, of_call)
        if request.dry_run:
            count = await self._bulk_tasks.count(call)
            response.matched, response.matched_is_minimum = count.tasks, not count.is_exact
            return response
        page = await change_page(call)
        response.matched, response.changed, response.skipped = page.matched, page.changed, page.skipped
        response.failures.extend(map(_failure_message, page.failures))
        response.next_page_token = page.next_token
        return response


def _bulk_call(identity: Identity, request: BulkRequest, of_call: _StatesOfCall) -> BulkCall:
    """The call that a request describes. Raises InvalidParams."""
    selecting: Any = request.filter
    named = {field.name for field, _ in selecting.ListFields()}
    for name in _REFUSED_FIELDS:
        if name in named:
            camel_name = selecting.DESCRIPTOR.fields_by_name[name].camelcase_name
            raise InvalidParams.field(f"filter.{camel_name}", "is not possible for a change of many tasks")
    if not named.intersection(_SELECTING_FIELDS):
        names = ", ".join(selecting.DESCRIPTOR.fields_by_name[name].camelcase_name for name in _SELECTING_FIELDS)
        raise InvalidParams.field("filter", f"is required; select the tasks by at least one of {names}")
    check_request_id(request.request_id)
    check_state_names(selecting)
    limit = page_limit(request.limit, default=DEFAULT_BULK_PAGE, maximum=MAX_BULK_PAGE)
    query = replace(task_search(selecting, limit), artifacts=False)
    query = check_states(query, of_call.allowed, of_call.default)
    return BulkCall(identity, query, request.page_token, request.request_id)


def _failure_message(failure: BulkFailure) -> pb.TaskFailure:
    record = failure.record
    return pb.TaskFailure(
        task_id=record.id,
        agent=record.agent,
        principal=record.principal,
        scope=record.ref.owner.scope,
        reason=failure.reason,
    )
