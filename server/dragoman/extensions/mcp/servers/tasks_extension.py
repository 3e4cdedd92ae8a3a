"""The tasks extension of MCP (SEP-2663, `io.modelcontextprotocol/tasks`): its messages and calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import mcp_types as types
from mcp.client.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"

DEFAULT_POLL_SECONDS: Final = 1.0
MIN_POLL_SECONDS: Final = 0.05
MAX_POLL_SECONDS: Final = 60.0
"""Seconds between two polls of a task: what the server suggests, within these bounds."""


class _TaskFields(types.Result):
    task_id: str
    status: Literal["working", "input_required", "completed", "cancelled", "failed"]
    status_message: str | None = None
    poll_interval_ms: float | None = None

    @property
    def poll_seconds(self) -> float:
        """Seconds until the next poll."""
        if self.poll_interval_ms is None:
            return DEFAULT_POLL_SECONDS
        return min(max(self.poll_interval_ms / 1000, MIN_POLL_SECONDS), MAX_POLL_SECONDS)


class CreateTaskResult(_TaskFields):
    """The answer to a call that goes on as a task."""

    result_type: Literal["task"] = "task"


class McpTask(_TaskFields):
    """The state of a task."""

    result_type: str = "complete"
    input_requests: types.InputRequests | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class _TaskParams(types.RequestParams):
    task_id: str


class _UpdateParams(_TaskParams):
    input_responses: Mapping[str, Any]


class _GetTask(types.Request[_TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: _TaskParams
    name_param = "taskId"


class _UpdateTask(types.Request[_UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: _UpdateParams
    name_param = "taskId"


class _CancelTask(types.Request[_TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: _TaskParams
    name_param = "taskId"


class TasksExtension(ClientExtension):
    """Tells servers that calls may be answered with a task."""

    identifier = TASKS_EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """The result of a call that goes on as a task."""
        return [ResultClaim(result_type="task", model=CreateTaskResult, resolve=_never_resolved)]


async def _never_resolved(result: CreateTaskResult, context: ClaimContext) -> types.CallToolResult:
    raise AssertionError("turns follow tasks themselves")


async def get_task(client: Client, task_id: str) -> McpTask:
    """The state of a task. Raises MCPError."""
    return await client.session.send_request(_GetTask(params=_TaskParams(task_id=task_id)), McpTask)


async def update_task(client: Client, task_id: str, responses: Mapping[str, Any]) -> None:
    """Answers input requests of a task. Raises MCPError."""
    request = _UpdateTask(params=_UpdateParams(task_id=task_id, input_responses=responses))
    await client.session.send_request(request, types.EmptyResult)


async def cancel_task(client: Client, task_id: str) -> None:
    """Asks the server to cancel a task. Raises MCPError."""
    await client.session.send_request(_CancelTask(params=_TaskParams(task_id=task_id)), types.EmptyResult)
