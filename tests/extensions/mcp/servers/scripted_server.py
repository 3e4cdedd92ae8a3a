"""An MCP server that follows a script, call by call, and the agent's side of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from dragoman.calling.errors import ProtocolError, ServerUnavailable
from dragoman.core.schemas import compile_schema
from dragoman.extensions.mcp.servers.connection import call_error
from dragoman.extensions.mcp.servers.open_calls import OpenCalls
from dragoman.extensions.mcp.servers.readers import valid_answers
from dragoman.extensions.mcp.servers.tasks_extension import CreateTaskResult, McpTask
from dragoman.extensions.mcp.servers.transport import SESSION_LOST_CODE, UNAVAILABLE_CODE

CONNECT_FAILURE = ServerUnavailable.for_reason("refused the connection", may_have_arrived=False)
NOT_SENT = MCPError(UNAVAILABLE_CODE, "refused the connection", {"arrived": False})
BROKEN = MCPError(types.CONNECTION_CLOSED, "Connection closed")
SESSION_LOST = MCPError(SESSION_LOST_CODE, "the session is unknown", {"arrived": False})

T = TypeVar("T")

READ_ONLY = types.ToolAnnotations(read_only_hint=True)


def tool(name: str, *, repeatable: bool = False) -> types.Tool:
    """A tool that takes a text."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return types.Tool(name=name, input_schema=schema, annotations=READ_ONLY if repeatable else None)


TOOLS = (tool("write"), tool("read", repeatable=True))


def text_result(text: str, *, is_error: bool = False) -> types.CallToolResult:
    """A result with this text."""
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=is_error)


def task_result(task: str = "t-1") -> CreateTaskResult:
    """The answer to a call that goes on as a task."""
    return CreateTaskResult(task_id=task, status="working")


def task_state(status: Any, **fields: Any) -> McpTask:
    """The state of that task."""
    return McpTask(task_id="t-1", status=status, **fields)


class ScriptedServer:
    """The part of an `McpAgent` that its turns use.

    Each request takes the next entry of its method; the last entry is repeated.
    """

    def __init__(
        self,
        results: dict[str, list[Any]],
        tools: Sequence[types.Tool] = TOOLS,
        *,
        failures: int = 3,
        stateless: bool = True,
    ) -> None:
        """failures: in a row, after which it is unavailable. stateless: whether it speaks 2026-07-28."""
        self.results = {name: list(entries) for name, entries in results.items()}
        self.tools: Sequence[types.Tool] = tools
        self.calls = OpenCalls()
        self.requests: list[tuple[str, Any]] = []
        self.failures: list[str] = []
        self.listed = 0
        self.output_schemas: dict[str, dict[str, Any]] = {}
        self.new_tools: list[types.Tool] = []
        """Tools that it does not announce."""
        self._max_failures = failures
        session = SimpleNamespace(
            call_tool=self._call_tool, send_request=self._send, discover_result="x" if stateless else None
        )
        self._client = cast(Client, SimpleNamespace(session=session))

    kind = "MCP server"

    @property
    def is_unavailable(self) -> bool:
        return len(self.failures) >= self._max_failures

    async def connect(self) -> None:
        if "connect" in self.results and (error := self._next("connect")) is not None:
            raise error

    async def call(self, request: Callable[[Client], Awaitable[T]]) -> T:
        try:
            with valid_answers():
                return await request(self._client)
        except MCPError as error:
            raise call_error(error) from None
        except RuntimeError as error:
            raise ProtocolError(str(error)) from None

    @property
    def announces_changes(self) -> bool:
        return not self.new_tools

    async def read_tools(self) -> None:
        self.listed += 1
        self.tools = [*self.tools, *self.new_tools]

    def has_output_schema(self, tool: str) -> bool:
        return tool in self.output_schemas

    def check_output(self, tool: str, value: object) -> str:
        return compile_schema(self.output_schemas[tool]).find_problem(value)

    def record_success(self) -> None:
        self.failures.clear()

    def record_failure(self, reason: str) -> None:
        self.failures.append(reason)

    def called(self, method: str) -> list[Any]:
        """The parameters of the requests of a method."""
        return [parameters for name, parameters in self.requests if name == method]

    def _next(self, method: str) -> Any:
        entries = self.results[method]
        return entries.pop(0) if len(entries) > 1 else entries[0]

    async def _call_tool(self, name: str, arguments: dict[str, Any], **options: Any) -> Any:
        self.requests.append(("call", (name, arguments, options)))
        return await self._result("call", options.get("progress_callback"))

    async def _send(self, request: Any, kind: Any) -> Any:
        parameters = request.params.model_dump(by_alias=True, mode="json", exclude_none=True)
        self.requests.append((request.method, parameters))
        return await self._result(request.method, None)

    async def _result(self, method: str, on_progress: Any) -> Any:
        found = self._next(method)
        if callable(found):
            found = await found(on_progress)
        if isinstance(found, Exception):
            raise found
        return found
