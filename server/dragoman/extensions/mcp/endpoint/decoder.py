"""Decodes MCP requests: into an operation of A2A, whose response becomes a result, or a fact about the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from google.protobuf.message import Message

from dragoman.bindings import method_table as a2a
from dragoman.bindings.method_table import A2AOperation, ExtensionRow
from dragoman.core.access.identity import Identity
from dragoman.core.errors import InvalidParams, MethodNotFound, TaskEnded, TaskNotCancelable, TaskNotFound
from dragoman.core.names import DEFAULT_SCOPE, tenant_of
from dragoman.extensions.mcp.endpoint.answers import TaskAnswers, answer_and_follow, answer_task
from dragoman.extensions.mcp.endpoint.services import McpServices
from dragoman.extensions.mcp.endpoint.tool_call import ElicitationId, tool_result
from dragoman.extensions.mcp.wire import results, tools
from dragoman.extensions.mcp.wire.envelope import (
    CONTEXT_META,
    STATELESS_METHODS,
    Envelope,
    negotiated_version,
    new_session,
)
from dragoman.extensions.mcp.wire.errors import TASKS_REQUIRED, MissingClientCapability
from dragoman.extensions.mcp.wire.results import view_of
from dragoman.extensions.mcp.wire.tools import AgentTool, InvalidArguments, NewId
from dragoman.runtime import Operations
from dragoman.runtime.access import Call
from dragoman.runtime.feeds import EventStream
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DESCRIBE: Final = ExtensionRow(
    A2AOperation(request=pb.GetExtendedAgentCardRequest, response=pb.AgentCard, names_agent=False)
)
"""A request about the server: no agent is asked."""

BEGIN_TASK: Final = ExtensionRow(a2a.SEND_MESSAGE)
CALL_TOOL: Final = ExtensionRow(a2a.STREAM_MESSAGE)
GET_TASK: Final = ExtensionRow(a2a.GET_TASK)
FOLLOW_TASK: Final = ExtensionRow(a2a.SUBSCRIBE_TASK)
CANCEL_TASK: Final = ExtensionRow(a2a.CANCEL_TASK)

EMPTY_RESULT: Final[Mapping[str, Any]] = {}

MakeResult = Callable[[bytes, str], Mapping[str, Any]]
"""Makes the result from the response of the operation and the tenant of the agent."""


def _empty_result(response: bytes, tenant: str) -> Mapping[str, Any]:
    return EMPTY_RESULT


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded request."""

    row: ExtensionRow
    request: Message
    result: MakeResult = _empty_result
    """Unused for calls that are followed (`WaitingCall`)."""
    tool: AgentTool | None = None
    """The called tool of an agent."""
    description: Mapping[str, Any] | None = None
    """The result of a request about the server; None for a notification, which has none."""
    session: str = ""
    """The id of the session that begins with it."""
    listens: bool = False
    """It is answered with a stream of notifications."""
    canceled_request: object = None
    """The id of the request that a notification cancels."""


def described(result: Mapping[str, Any] | None, **columns: Any) -> Decoded:
    """A request about the server, with its result."""
    return Decoded(DESCRIBE, pb.GetExtendedAgentCardRequest(), description=result, **columns)


class McpDecoder:
    """Decodes the requests of one caller at one address."""

    def __init__(
        self, services: McpServices, envelope: Envelope, identity: Identity, address: str, *, takes_streams: bool
    ) -> None:
        """`address`: the tenant of the one agent that the address names; empty for all agents."""
        self._services = services
        self._envelope = envelope
        self._client = envelope.client
        self._identity = identity
        self._address = address
        self._takes_streams = takes_streams

    def decode(self, method: str, params: Mapping[str, Any]) -> Decoded:
        """Decodes a request or notification. Raises MethodNotFound, InvalidParams, TaskNotFound."""
        decode = _METHODS.get(method)
        if decode is None or (method in STATELESS_METHODS and not self._client.is_stateless):
            if method.startswith("notifications/"):
                return described(None)  # unknown ones mean nothing
            raise MethodNotFound(f'Method not found: "{method[:100]}"')
        return decode(self, params)

    # The server -----------------------------------------------------------------------------------------------

    def _discover(self, params: Mapping[str, Any]) -> Decoded:
        return described(self._services.catalog.discovery(self._address))

    def _initialize(self, params: Mapping[str, Any]) -> Decoded:
        version, capabilities = negotiated_version(params.get("protocolVersion")), params.get("capabilities")
        known = capabilities if isinstance(capabilities, dict) else {}
        result = self._services.catalog.initialization(version, self._address)
        return described(result, session=new_session(version, known, self._services.new_id()))

    def _ping(self, params: Mapping[str, Any]) -> Decoded:
        return described(EMPTY_RESULT)

    def _list_tools(self, params: Mapping[str, Any]) -> Decoded:
        if params.get("cursor") is not None:
            raise InvalidParams.field("cursor", "must be absent: the list has one page")
        catalog = self._services.catalog
        listed = catalog.tools(self._identity, self._address)
        if self._client.is_stateless:
            return described({"tools": listed, **catalog.cache_hints})
        return described({"tools": [_with_object_output(tool) for tool in listed]})

    def _listen(self, params: Mapping[str, Any]) -> Decoded:
        return described(EMPTY_RESULT, listens=True)

    def _notification(self, params: Mapping[str, Any]) -> Decoded:
        return described(None)

    def _cancel_notification(self, params: Mapping[str, Any]) -> Decoded:
        if self._client.is_stateless:  # there, closing the stream of a call cancels it
            return described(None)
        return described(None, canceled_request=params.get("requestId"))

    # Tools ----------------------------------------------------------------------------------------------------

    def _call_tool(self, params: Mapping[str, Any]) -> Decoded:
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not name:
            raise InvalidParams.field("name", "is required: the name of a tool")
        if arguments is not None and not isinstance(arguments, dict):
            raise InvalidParams.field("arguments", "must be an object")
        arguments = arguments or {}
        if name in tools.TASK_TOOLS:
            return self._call_task_tool(name, arguments)
        tool = self._services.catalog.find(name, self._identity, self._address)
        if tool is None:
            raise InvalidParams(f'Unknown tool: "{name[:100]}"; tools/list shows the tools')
        tenant = self._address or tenant_of(DEFAULT_SCOPE, tool.spec.id)
        if "requestState" in params:
            return self._retry_call(params, tool, tenant)
        if problem := tool.check_arguments(arguments):
            raise InvalidArguments(f"arguments: {problem}")
        context = self._envelope.text(CONTEXT_META)
        request = tools.call_request(tool, arguments, self._services.new_id(), context)
        request.tenant = tenant
        if not self._client.takes_tasks and tool.spec.streaming and self._takes_streams:
            return Decoded(CALL_TOOL, request, tool=tool)
        request.configuration.history_length = 0
        request.configuration.return_immediately = self._client.takes_tasks and not self._services.handle_after
        return Decoded(BEGIN_TASK, request, partial(self._sent, tool), tool)

    def _sent(self, tool: AgentTool, response: bytes, tenant: str) -> Mapping[str, Any]:
        sent = pb.SendMessageResponse.FromString(response)
        if sent.HasField("message"):
            return results.message_result(sent.message)
        view = view_of(tenant, sent.task)
        if self._client.takes_tasks and not (view.ended and self._services.handle_after):
            return results.created_task(view, self._services.clock())
        return tool_result(view, tool)

    def _retry_call(self, params: Mapping[str, Any], tool: AgentTool, tenant: str) -> Decoded:
        """A call again, with answers to the question that its first response asked (basic/patterns/mrtr)."""
        try:
            question = ElicitationId.parse(params["requestState"])
        except InvalidParams:
            raise InvalidParams.field("requestState", "is none of this server") from None
        if question.tenant != tenant:
            raise InvalidParams.field("requestState", "is of a call of another agent")
        answers = _input_responses(params) if "inputResponses" in params else {}
        return self._follow(TaskAnswers(answers), tenant, question.task_id, tool)

    def _call_task_tool(self, name: str, arguments: Mapping[str, Any]) -> Decoded:
        handle, answer = tools.task_arguments(name, arguments)
        tenant, task_id = self._split(handle)
        if name == tools.CANCEL_TASK_TOOL:
            return Decoded(CANCEL_TASK, pb.CancelTaskRequest(tenant=tenant, id=task_id), _shown)
        return self._follow(TaskAnswers({}, answer if name == tools.ANSWER_TASK_TOOL else None), tenant, task_id)

    def _follow(self, answers: TaskAnswers, tenant: str, task_id: str, tool: AgentTool | None = None) -> Decoded:
        """Answers a task, if there is an answer, then waits for its turn as a call does."""
        follow = partial(_answer_and_follow, answers, self._services.new_id)
        row = ExtensionRow(A2AOperation(request=pb.GetTaskRequest, response=pb.Task, operation=follow, streaming=True))
        return Decoded(row, pb.GetTaskRequest(tenant=tenant, id=task_id), tool=tool)

    # Tasks ----------------------------------------------------------------------------------------------------

    def _get_task(self, params: Mapping[str, Any]) -> Decoded:
        tenant, task_id = self._task_of(params)
        return Decoded(GET_TASK, pb.GetTaskRequest(tenant=tenant, id=task_id, history_length=0), self._task_object)

    def _task_object(self, response: bytes, tenant: str) -> Mapping[str, Any]:
        return results.task_object(view_of(tenant, pb.Task.FromString(response)), self._client, self._services.clock())

    def _update_task(self, params: Mapping[str, Any]) -> Decoded:
        tenant, task_id = self._task_of(params)
        return self.answer(TaskAnswers(_input_responses(params)), tenant, task_id)

    def _cancel_task(self, params: Mapping[str, Any]) -> Decoded:
        tenant, task_id = self._task_of(params)
        row = ExtensionRow(A2AOperation(request=pb.CancelTaskRequest, response=pb.Task, operation=_cancel))
        return Decoded(row, pb.CancelTaskRequest(tenant=tenant, id=task_id))

    def answer(self, answers: TaskAnswers, tenant: str, task_id: str) -> Decoded:
        """Answers a task without waiting for what follows. Raises TaskNotFound for one of another address."""
        self._check_address(tenant)
        send = partial(_answer, answers, self._services.new_id)
        row = ExtensionRow(A2AOperation(request=pb.GetTaskRequest, response=pb.Task, operation=send))
        return Decoded(row, pb.GetTaskRequest(tenant=tenant, id=task_id))

    def follow_again(self, tenant: str, task_id: str, tool_name: str) -> Decoded:
        """Follows the task of a call whose stream broke. Raises TaskNotFound for one of another address."""
        self._check_address(tenant)
        tool = self._services.catalog.find(tool_name, self._identity, self._address) if tool_name else None
        return Decoded(FOLLOW_TASK, pb.SubscribeToTaskRequest(tenant=tenant, id=task_id), tool=tool)

    def _task_of(self, params: Mapping[str, Any]) -> tuple[str, str]:
        """The task that a method of the tasks extension names. Raises MissingClientCapability without the extension."""
        if not self._client.takes_tasks:
            raise MissingClientCapability("the method needs the tasks extension", TASKS_REQUIRED)
        handle = params.get("taskId")
        if not isinstance(handle, str) or not handle:
            raise InvalidParams.field("taskId", "is required, and must be a string that is not empty")
        return self._split(handle)

    def _split(self, handle: str) -> tuple[str, str]:
        """The tenant and id of a task. At the address of one agent its id is enough."""
        tenant, task_id = tools.split_handle(handle)
        if not tenant:
            if not self._address:
                raise TaskNotFound(f'Task not found: "{handle[:200]}" is no task handle, which is AGENT/ID')
            return self._address, handle
        self._check_address(tenant)
        return tenant, task_id

    def _check_address(self, tenant: str) -> None:
        """The address of one agent shows no tasks of others."""
        if self._address and tenant != self._address:
            raise TaskNotFound


_METHODS: Final[Mapping[str, Callable[[McpDecoder, Mapping[str, Any]], Decoded]]] = {
    "initialize": McpDecoder._initialize,
    "ping": McpDecoder._ping,
    "server/discover": McpDecoder._discover,
    "tools/list": McpDecoder._list_tools,
    "tools/call": McpDecoder._call_tool,
    "tasks/get": McpDecoder._get_task,
    "tasks/update": McpDecoder._update_task,
    "tasks/cancel": McpDecoder._cancel_task,
    "subscriptions/listen": McpDecoder._listen,
    "notifications/initialized": McpDecoder._notification,
    "notifications/cancelled": McpDecoder._cancel_notification,
}
KNOWN_METHODS: Final = _METHODS.keys()


def _answer_and_follow(answers: TaskAnswers, new_id: NewId, operations: Operations) -> Callable[..., EventStream]:
    return partial(answer_and_follow, operations, answers, new_id)


def _answer(answers: TaskAnswers, new_id: NewId, operations: Operations) -> Callable[..., Any]:
    return partial(answer_task, operations, answers, new_id)


def _cancel(operations: Operations) -> Callable[..., Any]:
    """Acknowledges a cancel also when the task has ended or goes on: it is a wish (SEP-2663, "Task Cancellation")."""

    async def cancel(call: Call, request: pb.CancelTaskRequest) -> bytes:
        try:
            return await operations.cancel.cancel_task(call, request)
        except (TaskEnded, TaskNotCancelable):
            return b""

    return cancel


def _shown(response: bytes, tenant: str) -> Mapping[str, Any]:
    return tool_result(view_of(tenant, pb.Task.FromString(response)), None)


def _input_responses(params: Mapping[str, Any]) -> Mapping[str, Any]:
    responses = params.get("inputResponses")
    if not isinstance(responses, dict):
        raise InvalidParams.field("inputResponses", "is required, and must be an object")
    return responses


def _with_object_output(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """The definition for revisions before 2026-07-28, where an output schema is that of an object."""
    schema = tool.get("outputSchema")
    if schema is None or schema.get("type") == "object":
        return tool
    return {name: value for name, value in tool.items() if name != "outputSchema"}
