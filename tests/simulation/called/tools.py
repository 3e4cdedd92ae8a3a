"""MCP servers that are called: tools over a peer's work, and the client of the SDK as far as turns use it.

`run` does what its text says within the call, `look` does the same and may be repeated, `long` goes on as a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from tests.simulation.called.peer import CallLost, Peer, Work
from tests.simulation.loop import HostLoop

from dragoman.calling.breaker import CircuitBreaker
from dragoman.calling.errors import ServerUnavailable
from dragoman.core.task import states
from dragoman.extensions.mcp.servers.agent import McpAgent
from dragoman.extensions.mcp.servers.connection import McpConnection
from dragoman.extensions.mcp.servers.registry import McpRegistry
from dragoman.extensions.mcp.servers.tasks_extension import CreateTaskResult, McpTask
from dragoman.extensions.mcp.servers.transport import UNAVAILABLE_CODE
from dragoman.extensions.mcp.servers.turn import McpTurn
from dragoman.extensions.mcp.sources import McpSpec
from dragoman.ids import IDS
from dragoman.ports import OutboundStreams, RemoteAgentRegistry

T = TypeVar("T")

POLL_MS: Final = 300.0
_SCHEMA: Final = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS: Final = (
    types.Tool(name="run", input_schema=_SCHEMA),
    types.Tool(name="look", input_schema=_SCHEMA, annotations=types.ToolAnnotations(read_only_hint=True)),
    types.Tool(name="long", input_schema=_SCHEMA),
)
_STATUS: Final[dict[int, str]] = {
    states.WORKING: "working",
    states.COMPLETED: "completed",
    states.FAILED: "failed",
    states.CANCELED: "cancelled",
}


class ToolServer:
    """The requests that one MCP server answers."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def list_tools(self) -> types.ListToolsResult:
        """Its tools."""
        return types.ListToolsResult(tools=list(TOOLS))

    async def call(self, tool: str, text: str, began: Callable[[Work], None]) -> types.Result:
        """The result of a tool; for `long` its task."""
        work = self.peer.begin(text, tool=tool)
        began(work)
        if tool == "long":
            return CreateTaskResult(task_id=work.id, status="working", poll_interval_ms=POLL_MS)
        assert work.running is not None
        await asyncio.wait([work.running])
        return _result_of(work)

    async def get_task(self, id: str) -> McpTask:
        """The state of a task. Raises MCPError."""
        work = self._find(id)
        task = McpTask(task_id=id, status=cast("Any", _STATUS[work.state]), poll_interval_ms=POLL_MS)
        if work.state == states.COMPLETED:
            task.result = _result_of(work).model_dump(by_alias=True, mode="json", exclude_none=True)
        elif work.state == states.FAILED:
            task.error = {"code": -32603, "message": work.text_sent}
        return task

    async def cancel_task(self, id: str) -> types.EmptyResult:
        """Takes a request to cancel a task. Raises MCPError."""
        self.peer.cancel(self._find(id))
        return types.EmptyResult()

    def _find(self, id: str) -> Work:
        work = self.peer.find(id)
        if work is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no task {id}")
        return work


def _result_of(work: Work) -> types.CallToolResult:
    text = work.output or work.text_sent or work.text
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], is_error=work.state == states.FAILED
    )


class SimulatedSession:
    """The requests of one connection."""

    discover_result = None

    def __init__(self, server: ToolServer, client: HostLoop) -> None:
        self._server = server
        self._client = client

    async def call_tool(self, tool: str, arguments: dict[str, Any], **_: Any) -> types.Result:
        """Calls a tool. A call that is canceled is canceled at the server, if the notification arrives."""
        begun: list[Work] = []
        text = str(arguments.get("text", ""))
        try:
            return await self.request(partial(self._server.call, tool, text, begun.append))
        except asyncio.CancelledError:
            self._notify_canceled(begun)
            raise

    async def send_request(self, request: Any, _: type) -> types.Result:
        """Sends a request of the tasks extension."""
        id = request.params.task_id
        match request.method:
            case "tasks/get":
                return await self.request(partial(self._server.get_task, id))
            case "tasks/cancel":
                return await self.request(partial(self._server.cancel_task, id))
        raise MCPError(types.METHOD_NOT_FOUND, request.method)

    async def list_tools(self) -> types.ListToolsResult:
        """Lists the tools."""
        return await self.request(self._server.list_tools)

    async def request(self, handle: Callable[[], Awaitable[T]]) -> T:
        """Sends a request. Raises MCPError, also without an answer."""
        peer = self._server.peer
        try:
            return await peer.call(self._client, handle)
        except CallLost as lost:
            raise MCPError(UNAVAILABLE_CODE, str(lost), {"arrived": lost.may_have_arrived}) from None

    def _notify_canceled(self, begun: list[Work]) -> None:
        peer = self._server.peer

        def cancel() -> None:
            for work in begun:
                if not work.is_lost:
                    peer.cancel(work)

        def arrive() -> None:
            if not peer.host.killed:
                peer.host.call_soon(cancel)  # a machine that was paused reads the call first

        peer.send(arrive)


class SimulatedConnection(McpConnection):
    """The connection of one machine to one MCP server."""

    def __init__(self, tools: ToolServer, host: HostLoop, server: McpSpec, outbound: OutboundStreams) -> None:
        super().__init__(server, outbound, 0, elicit=_no_questions)
        self._tools = tools
        self._host = host
        self._client: Client | None = None
        self._client_starts = 0

    @property
    def is_open(self) -> bool:
        return self._client is not None and self._client_starts == self._tools.peer.starts

    async def client(self) -> Client:
        if not self.is_open:
            peer = self._tools.peer
            session = SimulatedSession(self._tools, self._host)
            starts = peer.starts
            try:
                await peer.call(self._host, self._tools.list_tools)
            except CallLost as lost:
                text = f"{self.server.location}: {lost}"
                raise ServerUnavailable.for_reason(text, may_have_arrived=False) from None
            capabilities = types.ServerCapabilities(tools=types.ToolsCapability(), extensions={})
            self._client = cast(
                Client,
                SimpleNamespace(
                    session=session,
                    server_capabilities=capabilities,
                    server_info=types.Implementation(name=peer.name, version="1"),
                    instructions=None,
                    protocol_version="2025-11-25",
                    list_tools=lambda cursor: session.list_tools(),
                ),
            )
            self._client_starts = starts
        assert self._client is not None
        return self._client

    def drop(self, client: Client) -> None:
        if self._client is client:
            self._client = None

    async def close(self) -> None:
        self._client = None


async def _no_questions(params: types.ElicitRequestParams) -> types.ErrorData:
    return types.ErrorData(code=types.INTERNAL_ERROR, message="nothing is asked here")


def serve_tools(
    tools: ToolServer, agent: str, host: HostLoop, outbound: OutboundStreams, registry: RemoteAgentRegistry
) -> tuple[McpRegistry, McpAgent]:
    """The agent of an MCP server, for one machine; `McpRegistry.refresh` reads its tools."""
    servers = McpRegistry(outbound, registry, None, max_response_bytes=0, monotonic=host.time, new_id=IDS.hex)
    spec = McpSpec(url=f"https://{tools.peer.name}.example/mcp", id=agent)

    called = McpAgent(
        spec,
        outbound,
        0,
        CircuitBreaker(host.time),
        partial(McpTurn, new_id=IDS.hex, clock=host.time),
        on_availability_change=registry.capacity_changed,
    )
    called.connection = SimulatedConnection(tools, host, spec, outbound)
    servers.servers.append(called)
    return servers, called
