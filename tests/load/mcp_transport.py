"""MCP to a server under load: unary operations of A2A as requests, and the messages of calls that wait.

Two bindings: `mcp` is revision 2026-07-28 with task handles, `mcp-2025` is 2025-11-25, where tools stand for tasks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from tests.extensions.mcp.endpoint.mcp_client import FORMS, STATELESS, TASKS, McpCaller, events_of
from tests.load.requests import Request

from dragoman.client import ClientError
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

HANDSHAKE: Final = "2025-11-25"
MCP_BINDINGS: Final = ("mcp", "mcp-2025")
ROOT_AGENT: Final = "once"
"""The tool of the agent that A2A clients call without a name."""

POLL_INTERVAL: Final = 0.2
KEY: Final = "dragoman/idempotencyKey"
CURSOR: Final = "dragoman/cursor"
TASK: Final = "dragoman/task"

_STATES: Final = {
    "working": states.WORKING,
    "input_required": states.INPUT_REQUIRED,
    "cancelled": states.CANCELED,
    "failed": states.FAILED,
}
"""States of tasks by their status in MCP, except completed ones, whose result says more."""


@dataclass(frozen=True, slots=True)
class McpOutcome:
    """What a result says about a task."""

    handle: str
    state: int
    text: str = ""
    """The text of a final result."""
    question: str = ""
    """The key of the question, if a client with forms may answer it."""
    request_state: str = ""

    @property
    def task(self) -> str:
        """The id of the task that A2A has."""
        return self.handle.rpartition("/")[2]

    @property
    def is_final(self) -> bool:
        """Whether the task has ended."""
        return self.state in states.TERMINAL


class McpTransport:
    """MCP over the session of the other transports. Raises ClientError."""

    def __init__(self, session: aiohttp.ClientSession, base: str, headers: Mapping[str, str], root_agent: str) -> None:
        """headers: those of the principal."""
        self._session = session
        self._url = f"{base}/mcp"
        self._headers = headers
        self._root_agent = root_agent
        self._stateless = self.caller(STATELESS, {**TASKS, **FORMS})
        self._tools = self.caller(HANDSHAKE)

    def caller(
        self, version: str, capabilities: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> McpCaller:
        """A caller of this server. Its ids of requests begin anew."""
        return McpCaller(self._session, self._url, version, capabilities, {**self._headers, **(headers or {})})

    async def call(self, binding: str, rpc: str, request: Request, key: str = "") -> pb.Task:
        """Makes a unary call of A2A. The task has an id and a state."""
        agent = request.tenant or self._root_agent
        if isinstance(request, pb.SendMessageRequest):
            send = self._send if binding == "mcp" else self._send_by_tools
            outcome = await send(agent, request, key)
        else:
            assert isinstance(request, pb.GetTaskRequest | pb.CancelTaskRequest)
            outcome = await self._of_task(binding, rpc, f"{agent}/{request.id}")
        return pb.Task(id=outcome.task, status=pb.TaskStatus(state=states.name(outcome.state)))

    async def _of_task(self, binding: str, rpc: str, handle: str) -> McpOutcome:
        if binding == "mcp-2025":
            name = "get_task" if rpc == "GetTask" else "cancel_task"
            return tool_outcome(await self._result(self._tools, "tools/call", tool_params(name, task=handle)))
        if rpc == "GetTask":
            return task_outcome(await self._result(self._stateless, "tasks/get", {"taskId": handle}))
        await self._result(self._stateless, "tasks/cancel", {"taskId": handle})
        return McpOutcome(handle, states.WORKING)  # the empty result acknowledges the request (SEP-2663), no more

    async def _send(self, agent: str, request: pb.SendMessageRequest, key: str) -> McpOutcome:
        text, handle = request.message.parts[0].text, f"{agent}/{request.message.task_id}"
        if request.message.task_id:
            outcome = task_outcome(await self._result(self._stateless, "tasks/get", {"taskId": handle}))
            if not outcome.question:
                raise ClientError("FAILED_PRECONDITION", "the task asks nothing", reason="UNSUPPORTED_OPERATION")
            answers = {"taskId": handle, "inputResponses": {outcome.question: accepting(text)}}
            await self._result(self._stateless, "tasks/update", answers)
        else:
            params, meta = tool_params(agent, message=text), {KEY: key} if key else {}
            handle = created_handle(await self._result(self._stateless, "tools/call", params, meta))
        outcome = McpOutcome(handle, states.WORKING)
        while not request.configuration.return_immediately and outcome.state == states.WORKING:
            await asyncio.sleep(POLL_INTERVAL)
            outcome = task_outcome(await self._result(self._stateless, "tasks/get", {"taskId": handle}))
        return outcome

    async def _send_by_tools(self, agent: str, request: pb.SendMessageRequest, key: str) -> McpOutcome:
        text, meta = request.message.parts[0].text, {KEY: key} if key else {}
        params = tool_params(agent, message=text)
        if request.message.task_id:
            params = tool_params("answer_task", task=f"{agent}/{request.message.task_id}", answer=text)
        return tool_outcome(await self._result(self._tools, "tools/call", params, meta))

    async def _result(
        self, caller: McpCaller, method: str, params: Mapping[str, Any], meta: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The result of a request, after all other messages of its stream."""
        body, headers = caller.envelope(method, params, meta or {})
        async for _, message in self.messages("POST", headers, body):
            if message.get("id") == body["id"] or "error" in message:  # a call rejected before it is read has no id
                return result_of(message)
        raise ClientError("UNAVAILABLE", "the connection closed without a result")

    @asynccontextmanager
    async def waiting(self, task: str) -> AsyncIterator[None]:
        """A call that waits for a task of the agent without a name, as a stream does. Raises ClientError."""
        params = tool_params("get_task", task=f"{self._root_agent}/{task}")
        body, headers = self._stateless.envelope("tools/call", params, {"progressToken": 1})
        async with self._session.post(self._url, json=body, headers=headers) as response:
            if response.content_type != "text/event-stream":
                raise _error_of((await response.json())["error"])
            yield

    async def messages(
        self, verb: str, headers: Mapping[str, str], body: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Yields the messages of a response with their event ids, and an empty message for an event without one."""
        data = json.dumps(body).encode() if body is not None else None
        how = {"Content-Type": "application/json", **headers} if data is not None else dict(headers)
        try:
            async with self._session.request(verb, self._url, data=data, headers=how) as response:
                if response.content_type == "text/event-stream":
                    async for event in events_of(response):
                        yield event.id, json.loads(event.data) if event.data else {}
                elif text := await response.text():
                    if response.content_type != "application/json":
                        raise ClientError("INTERNAL", f"{response.status}: {text[:200]}", reason="NO_JSON")
                    yield "", json.loads(text)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise ClientError("UNAVAILABLE", str(error)) from error


def tool_params(tool: str, /, **arguments: str) -> dict[str, Any]:
    """The parameters of a call."""
    return {"name": tool, "arguments": arguments}


def accepting(text: str) -> dict[str, Any]:
    """An answer to a question that wants one text."""
    return {"action": "accept", "content": {"answer": text}}


def result_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a response. Raises ClientError."""
    if "error" in message:
        raise _error_of(message["error"])
    return dict(message["result"])


def _error_of(error: Mapping[str, Any]) -> ClientError:
    data = error.get("data", {})
    return ClientError(
        str(error["code"]), error["message"], reason=data.get("reason") or f"CODE_{error['code']}",
        metadata={"limit": data.get("limit", "")}, retry_after=data.get("retryAfterSeconds"),
    )  # fmt: skip


def created_handle(result: Mapping[str, Any]) -> str:
    """The handle of the task that a call began. Raises ClientError for a result that says why there is none."""
    return str(result["taskId"]) if "taskId" in result else tool_outcome(result).handle


def task_outcome(task: Mapping[str, Any]) -> McpOutcome:
    """What a task in the form of `tasks/get` says."""
    handle, status = task["taskId"], task["status"]
    if status == "completed":
        return tool_outcome(task["result"])
    text = task["error"]["message"] if status == "failed" else ""
    return McpOutcome(handle, _STATES[status], text, next(iter(task.get("inputRequests", {})), ""))


def tool_outcome(result: Mapping[str, Any]) -> McpOutcome:
    """What the result of a tool says. Raises ClientError for one that names no task: the call was rejected."""
    handle = result.get("_meta", {}).get(TASK, "")
    if result.get("resultType") == "input_required":
        (key,) = result["inputRequests"]
        return McpOutcome(handle, states.INPUT_REQUIRED, question=key, request_state=result["requestState"])
    text = "".join(block["text"] for block in result["content"])
    if not handle:
        reason = "TASK_NOT_FOUND" if text.startswith("Task not found") else "REJECTED_CALL"
        raise ClientError("INVALID_ARGUMENT", text, reason=reason)
    if text.startswith("The task waits for an answer: "):
        return McpOutcome(handle, states.INPUT_REQUIRED)
    if text.startswith(f"The task {handle} is not finished yet."):
        return McpOutcome(handle, states.WORKING)
    if not result["isError"]:
        return McpOutcome(handle, states.COMPLETED, text)
    is_canceled = text.startswith(f"The task ended as {states.name(states.CANCELED)}")
    return McpOutcome(handle, states.CANCELED if is_canceled else states.FAILED, text)
