"""A server with agents, and a client of its MCP endpoint that shows every message as it came."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from mcp_types import methods
from tests.callers import ByHeader

from dragoman import Turn, agent, types
from dragoman.extensions.mcp import EXTENSION, McpSettings
from dragoman.ports import Agent
from dragoman.settings.settings import Address, Settings
from dragoman.wire.http.sse import SseEvent, SseParser
from dragoman.wiring.app import App, open_app

STATELESS: Final = "2026-07-28"
TASKS: Final[dict[str, Any]] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
PATHS: Final[Any] = [(EXTENSION.http, McpSettings())]
"""The endpoint, for a server of HTTP alone."""
FORMS: Final[dict[str, Any]] = {"elicitation": {"form": {}}}


@dataclass
class McpAnswer:
    """A response: its status, headers, and the JSON-RPC messages in it; those of a stream with their event ids."""

    status: int
    headers: Mapping[str, str]
    messages: list[dict[str, Any]]
    ids: list[str] = field(default_factory=list)
    text: str = ""

    @property
    def is_stream(self) -> bool:
        return self.headers["Content-Type"].startswith("text/event-stream")

    @property
    def last(self) -> dict[str, Any]:
        return self.messages[-1]

    @property
    def result(self) -> dict[str, Any]:
        assert "result" in self.last, self.last
        return dict(self.last["result"])

    @property
    def error(self) -> dict[str, Any]:
        assert "error" in self.last, self.last
        return dict(self.last["error"])

    @property
    def text_content(self) -> str:
        """The texts of the result."""
        return "\n".join(one["text"] for one in self.result["content"] if one["type"] == "text")


class McpCaller:
    """Calls one endpoint in one revision of MCP."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        version: str = STATELESS,
        capabilities: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.session = session
        self.url = url
        self.version = version
        self.capabilities = capabilities or {}
        self.headers = dict(headers or {})
        self._ids = itertools.count(1)

    def envelope(
        self, method: str, params: Mapping[str, Any] | None, meta: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Body and headers of a request."""
        headers = {"Accept": "application/json, text/event-stream", **self.headers}
        params = dict(params or {})
        if self.version == STATELESS:
            meta = {
                "io.modelcontextprotocol/protocolVersion": STATELESS,
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
                **meta,
            }
            headers |= {"MCP-Protocol-Version": STATELESS, "Mcp-Method": method}
            if "name" in params:
                headers["Mcp-Name"] = params["name"]
        elif method != "initialize":
            headers["MCP-Protocol-Version"] = self.version
        if meta:
            params["_meta"] = dict(meta)
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}, headers

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, meta: Mapping[str, Any] | None = None
    ) -> McpAnswer:
        """Sends a request, and reads the whole response."""
        body, headers = self.envelope(method, params, meta or {})
        answer = await self.post(body, headers)
        if answer.messages and "result" in answer.last:
            check_result(method, self.version, answer.result)
        return answer

    async def post(self, body: object, headers: Mapping[str, str]) -> McpAnswer:
        """Sends any body."""
        data = io.BytesIO(json.dumps(body).encode())
        async with self.session.post(
            self.url, data=data, headers={"Content-Type": "application/json", **headers}
        ) as response:
            return await read_answer(response)

    async def call(self, tool: str, /, meta: Mapping[str, Any] | None = None, **arguments: Any) -> McpAnswer:
        """Calls a tool."""
        return await self.request("tools/call", {"name": tool, "arguments": arguments}, meta)

    async def initialize(self, capabilities: Mapping[str, Any] | None = None) -> McpAnswer:
        """Begins a session, in revisions with a handshake; later requests name it."""
        answer = await self.request("initialize", {"protocolVersion": self.version, "capabilities": capabilities or {}})
        self.headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
        return answer

    @asynccontextmanager
    async def stream(
        self, method: str, params: Mapping[str, Any], meta: Mapping[str, Any] | None = None
    ) -> AsyncIterator[AsyncIterator[SseEvent]]:
        """Sends a request, and yields the events of its stream while the block runs."""
        body, headers = self.envelope(method, params, meta or {})
        async with self.session.post(self.url, json=body, headers=headers) as response:
            assert response.headers["Content-Type"].startswith("text/event-stream"), await response.text()
            yield events_of(response)

    async def resume(self, event_id: str) -> McpAnswer:
        """Continues a stream after an event."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": event_id, **self.headers}
        async with self.session.get(self.url, headers=headers) as response:
            return await read_answer(response)


def check_result(method: str, version: str, result: dict[str, Any]) -> None:
    """Checks a result against the types of the official SDK, which knows no task handles."""
    if (method, version) in methods.SERVER_RESULTS and result.get("resultType") != "task":
        methods.validate_server_result(method, version, result)


async def events_of(response: aiohttp.ClientResponse) -> AsyncIterator[SseEvent]:
    """The events of a response as they come."""
    parser = SseParser()
    async for chunk in response.content.iter_any():
        for event in parser.feed(chunk):
            yield event


async def read_answer(response: aiohttp.ClientResponse) -> McpAnswer:
    """Reads a whole response."""
    answer = McpAnswer(response.status, response.headers, [])
    if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
        async for event in events_of(response):
            answer.ids.append(event.id)
            if event.data:
                answer.messages.append(json.loads(event.data))
    else:
        answer.text = await response.text()
        if answer.text and response.content_type == "application/json":
            answer.messages.append(json.loads(answer.text))
    return answer


@agent(description="Returns what it is sent", default=True)
async def echo(turn: Turn) -> object:
    """Returns text as text, and everything else as it came."""
    return turn.text or list(turn.message.parts)


@agent(description="Asks for a size")
async def asker(turn: Turn) -> str:
    """Asks one question, and says what was answered."""
    if turn.question is None:
        turn.ask([types.text("Which size?"), types.data({"choices": ["small", "large"]})])
    return f"chosen: {turn.text}"


@agent(description="Fails")
async def failing(turn: Turn) -> str:
    """Ends as FAILED."""
    raise RuntimeError("out of paper")


@asynccontextmanager
async def serving(*agents: Agent, **settings: Any) -> AsyncIterator[App]:
    """Serves agents from a store in memory. With `api_keys` callers are known by their headers (tests.callers)."""
    local = Address("127.0.0.1", 0)
    options = Settings(**{"store": "memory:", "http": local, "grpc": local, **settings})
    authenticator = ByHeader() if options.access.api_keys else None
    async with open_app(options, agents or (echo, asker, failing), authenticator) as app:
        yield app


@asynccontextmanager
async def calling(
    *agents: Agent,
    version: str = STATELESS,
    capabilities: Mapping[str, Any] | None = None,
    path: str = "/mcp",
    **settings: Any,
) -> AsyncIterator[McpCaller]:
    """Serves agents, and yields a caller of their endpoint."""
    async with serving(*agents, **settings) as app, aiohttp.ClientSession() as session:
        yield McpCaller(session, f"{app.http.url}{path}", version, capabilities)


def progress_of(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The parameters of the progress notifications among messages."""
    return [dict(one["params"]) for one in messages if one.get("method") == "notifications/progress"]


async def question_of(caller: McpCaller, handle: str) -> str:
    """The key of the question of a task, as soon as it asks."""
    while True:
        task = (await caller.request("tasks/get", {"taskId": handle})).result
        if task["status"] == "input_required":
            return str(next(iter(task["inputRequests"])))


async def ended(caller: McpCaller, handle: str) -> dict[str, Any]:
    """A task, as soon as it has ended."""
    while True:
        task = (await caller.request("tasks/get", {"taskId": handle})).result
        if task["status"] in ("completed", "failed", "cancelled"):
            return task
