"""The official Python SDK 2.3.0: MCP 2026-07-28 with the extension for tasks, and 2025-11-25."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parents[1]))

from checks import Checks, arguments, finish
from mcp import Client, MCPError
from mcp.client.extension import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import Subscription, ToolsListChanged
from mcp_checks import every
from mcp_client import Answer, Connect, EndOfNotices, Json, Notices, OnProgress, Result, RpcError, Tool
from mcp_helpers import Place
from mcp_run import check_client, tools_of
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    EmbeddedResource,
    Request,
    RequestParams,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    SubscriptionsListenRequestParams,
    TextContent,
)
from mcp_types import Result as McpResult
from pydantic import BaseModel, ConfigDict

TASKS = "io.modelcontextprotocol/tasks"
POLL_LIMIT = 0.2


class CreateTaskResult(McpResult):
    result_type: Literal["task"]
    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None


class GetTaskResult(McpResult):
    """Its other fields depend on the status."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["complete"]
    task_id: str
    status: Literal["working", "input_required", "completed", "cancelled", "failed"]


class TaskNotice(BaseModel):
    """A task, and the id of the subscription in `_meta`."""

    model_config = ConfigDict(extra="allow")


class TaskParams(RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    name_param = "taskId"
    params: TaskParams


class CancelTask(Request[TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    name_param = "taskId"
    params: TaskParams


class UpdateTask(Request[UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    name_param = "taskId"
    params: UpdateParams


class Tasks(ClientExtension):
    """The extension as an application has to write it: the SDK claims results of a type, and knows no tasks itself."""

    identifier = TASKS

    def __init__(self, answer: Answer | None) -> None:
        self._answer = answer

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=CreateTaskResult, resolve=self._resolve),)

    async def _resolve(self, created: CreateTaskResult, context: ClaimContext) -> CallToolResult:
        return await TaskHandle(context.session, created.task_id, self._answer).resolved()


class TaskNotices(ClientExtension):
    """Receives notifications of tasks: the SDK has no name for these, either."""

    identifier = "com.example/task-notices"

    def __init__(self) -> None:
        self.seen: asyncio.Queue[Json] = asyncio.Queue()

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        return (NotificationBinding(method="notifications/tasks", params_type=TaskNotice, handler=self._take),)

    async def _take(self, notice: TaskNotice) -> None:
        self.seen.put_nowait(notice.model_dump(by_alias=True, mode="json"))


class TaskHandle:
    def __init__(self, session: Any, id: str, answer: Answer | None) -> None:
        self._session = session
        self.id = id
        self._answer = answer
        self._answered: set[str] = set()

    async def get(self) -> Json:
        request = GetTask(params=TaskParams(task_id=self.id))
        return (await _sent(self._session.send_request(request, GetTaskResult))).model_dump(by_alias=True, mode="json")

    async def cancel(self) -> None:
        await _sent(self._session.send_request(CancelTask(params=TaskParams(task_id=self.id)), McpResult))

    async def resolved(self) -> CallToolResult:
        while True:
            task = await self.get()
            match task["status"]:
                case "completed":
                    return CallToolResult.model_validate(task["result"])
                case "failed":
                    raise RpcError(task["error"]["code"], task["error"]["message"])
                case "cancelled":
                    raise RpcError(0, "the task was canceled")
                case "input_required":
                    await self._answer_all(task["inputRequests"])
            await asyncio.sleep(min(task.get("pollIntervalMs", 1000) / 1000, POLL_LIMIT))

    async def result(self) -> Result:
        return result_of(await self.resolved())

    async def _answer_all(self, requests: Json) -> None:
        assert self._answer is not None, requests
        responses = {}
        for key in requests.keys() - self._answered:
            question = ElicitRequest.model_validate(requests[key]).params
            responses[key] = await self._answer(question.model_dump(by_alias=True, mode="json", exclude_none=True))
        if responses:
            self._answered |= responses.keys()
            params = UpdateParams(task_id=self.id, input_responses=responses)
            await _sent(self._session.send_request(UpdateTask(params=params), McpResult))


class ToolNotices:
    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def wait(self) -> Json:
        async for event in self._subscription:
            assert isinstance(event, ToolsListChanged), event
            return {}
        raise EndOfNotices


class QueuedNotices:
    def __init__(self, queue: asyncio.Queue[Json]) -> None:
        self.wait = queue.get


class McpSession:
    def __init__(self, client: Client, answer: Answer | None, notices: TaskNotices) -> None:
        self._client = client
        self._answer = answer
        self._notices = notices
        self.version = client.protocol_version

    async def tools(self) -> dict[str, Tool]:
        listed = (await self._client.list_tools()).tools
        return {
            tool.name: Tool(
                tool.description or "",
                tool.input_schema,
                tool.output_schema,
                tool.annotations.model_dump(by_alias=True) if tool.annotations else {},
            )
            for tool in listed
        }

    async def call(
        self,
        tool: str,
        arguments: Json,
        *,
        on_progress: OnProgress | None = None,
        limit: float | None = None,
        meta: Json | None = None,
    ) -> Result:
        async def report(progress: float, _: float | None, message: str | None) -> None:
            assert on_progress is not None
            on_progress(progress, message or "")

        call = self._client.call_tool(
            tool,
            arguments,
            read_timeout_seconds=limit,
            progress_callback=report if on_progress else None,
            meta=meta,  # type: ignore[arg-type]
        )
        return result_of(await _sent(call))

    async def start(self, tool: str, arguments: Json) -> TaskHandle:
        created = await _sent(self._client.session.call_tool(tool, arguments, allow_claimed=True))
        assert isinstance(created, CreateTaskResult), created
        return self.handle(created.task_id)

    def handle(self, id: str) -> TaskHandle:
        return TaskHandle(self._client.session, id, self._answer)

    @asynccontextmanager
    async def listen(self, *tasks: str) -> AsyncIterator[Notices]:
        if not tasks:
            async with self._client.listen(tools_list_changed=True) as subscription:
                assert subscription.honored.tools_list_changed, subscription.honored
                yield ToolNotices(subscription)
            return
        wanted = SubscriptionFilter(**{"taskIds": list(tasks)})
        request = SubscriptionsListenRequest(params=SubscriptionsListenRequestParams(notifications=wanted))
        listening = asyncio.ensure_future(self._client.session.send_request(request, McpResult))
        try:
            yield QueuedNotices(self._notices.seen)
        finally:
            listening.cancel()


async def _sent(call: Any) -> Any:
    try:
        return await call
    except MCPError as error:
        raise RpcError(error.code, error.message) from error


def result_of(result: CallToolResult) -> Result:
    files = {
        part.resource.uri: base64.b64decode(part.resource.blob)
        for part in result.content
        if isinstance(part, EmbeddedResource)
    }
    texts = tuple(part.text for part in result.content if isinstance(part, TextContent))
    return Result(texts, result.structured_content, files, result.is_error, result.meta or {})


def connecting(mode: str) -> Connect:
    @asynccontextmanager
    async def connect(url: str, answer: Answer | None = None, *, tasks: bool = False) -> AsyncIterator[McpSession]:
        async def elicit(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            assert answer is not None
            question = params.model_dump(by_alias=True, mode="json", exclude_none=True)
            return ElicitResult.model_validate(await answer(question))

        notices = TaskNotices()
        extensions = [Tasks(answer), notices] if tasks else []
        async with Client(
            url, mode=mode, elicitation_callback=elicit if answer else None, extensions=extensions
        ) as client:
            yield McpSession(client, answer, notices)

    return connect


async def main() -> bool:
    where = arguments()
    good = await check_client("mcp", "2026-07-28", connecting("auto"), where, has_tasks=True, listens_too=True)
    pinned = connecting("2026-07-28")
    place = Place(where.http, "playground", await tools_of(pinned, where.http, "2026-07-28"))
    good &= await Checks().extend(every).run("2026-07-28 without a probe", pinned, place)
    return await check_client("mcp", "2025-11-25", connecting("legacy"), where) and good


finish(asyncio.run(main()))
