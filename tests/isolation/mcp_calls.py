"""Calls over MCP: every method and tool that takes a name, in both eras of the protocol."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from tests.extensions.mcp.endpoint.mcp_client import FORMS, STATELESS, TASKS, McpCaller
from tests.isolation.calls import AGENT_ID, DEFAULT, Call, http_text
from tests.isolation.names import Names

from dragoman.bindings.method_table import CANCEL_TASK, GET_TASK, A2AOperation
from dragoman.extensions.mcp.endpoint.tool_call import ElicitationId, ResumePoint
from dragoman.extensions.mcp.wire.tools import TASK_TOOLS

HANDSHAKE: Final = "2025-11-25"

NAMELESS: Final = frozenset(
    {
        *("initialize", "ping", "server/discover", "tools/list", "notifications/initialized"),
        # It names a request of the same principal and session, in this process (extensions/mcp/endpoint/services.py).
        "notifications/cancelled",
    }
)
"""Methods whose requests name nothing of a principal."""

_OPERATIONS: Final = {
    "tasks/get": GET_TASK,
    "get_task": GET_TASK,
    "tasks/cancel": CANCEL_TASK,
    "cancel_task": CANCEL_TASK,
}
_ENCODED: Final = re.compile(r"\b(r1|elicit|d1)\.([A-Za-z0-9_-]+)")


@dataclass(frozen=True, eq=False)
class McpCase:
    """One kind of request with names."""

    label: str
    """The method, or the tool."""
    request: Callable[[Names, str], Mapping[str, Any]]
    """Body and headers beyond those of every request, and `verb`. Takes the handle of a task without its id."""
    version: str = STATELESS
    capabilities: Mapping[str, Any] | None = None
    creates: bool = False
    """It begins a task of its caller."""
    listens: bool = False
    """Its response does not end: the first event counts."""

    @property
    def op(self) -> A2AOperation | None:
        """The operation of A2A that it becomes, of those that read or cancel a task."""
        return _OPERATIONS.get(self.label)


def _method(method: str, params: Callable[[str], Mapping[str, Any]]) -> Callable[[Names, str], Mapping[str, Any]]:
    def request(names: Names, agent: str) -> Mapping[str, Any]:
        return {"method": method, "params": params(f"{agent}/{names.task}")}

    return request


def _task_tool(tool: str) -> Callable[[Names, str], Mapping[str, Any]]:
    def arguments(handle: str) -> Mapping[str, Any]:
        answer = {"answer": "hello"} if tool == "answer_task" else {}
        return {"name": tool, "arguments": {"task": handle, **answer}}

    return _method("tools/call", arguments)


def _call(
    meta: Callable[[Names], Mapping[str, str]] = lambda names: {},
    arguments: Callable[[Names], Mapping[str, str]] = lambda names: {},
) -> Callable[[Names, str], Mapping[str, Any]]:
    def request(names: Names, agent: str) -> Mapping[str, Any]:
        params = {"name": "", "arguments": {"message": "hello", **arguments(names)}}
        return {"method": "tools/call", "params": params, "meta": meta(names)}

    return request


def _retry(names: Names, agent: str) -> Mapping[str, Any]:
    state = str(ElicitationId(agent, names.task, "question-1"))
    answers = {"question-1": {"action": "accept", "content": {"answer": "hello"}}}
    params = {"name": "", "arguments": {}, "requestState": state, "inputResponses": answers}
    return {"method": "tools/call", "params": params}


def _resume(names: Names, agent: str) -> Mapping[str, Any]:
    return {"verb": "GET", "headers": {"Last-Event-ID": str(ResumePoint(agent, names.task, names.cursor, 1, 2, ""))}}


def _respond(names: Names, agent: str) -> Mapping[str, Any]:
    id = str(ElicitationId(agent, names.task, "question-1"))
    answer = {"action": "accept", "content": {"answer": "hello"}}
    return {"body": {"jsonrpc": "2.0", "id": id, "result": answer}}


def _listening(handle: str) -> Mapping[str, Any]:
    return {"notifications": {"taskIds": [handle], "toolsListChanged": True}}


_ANSWERS: Final = {"question-1": {"action": "accept", "content": {"answer": "hello"}}}
_WITH_TASKS: Final = {**TASKS, **FORMS}

MCP_CASES: Final = (
    McpCase("tasks/get", _method("tasks/get", lambda handle: {"taskId": handle}), capabilities=_WITH_TASKS),
    McpCase(
        "tasks/update",
        _method("tasks/update", lambda handle: {"taskId": handle, "inputResponses": _ANSWERS}),
        capabilities=_WITH_TASKS,
    ),
    McpCase("tasks/cancel", _method("tasks/cancel", lambda handle: {"taskId": handle}), capabilities=_WITH_TASKS),
    McpCase(
        "subscriptions/listen", _method("subscriptions/listen", _listening), capabilities=_WITH_TASKS, listens=True
    ),
    *(McpCase(tool, _task_tool(tool), version) for tool in TASK_TOOLS for version in (STATELESS, HANDSHAKE)),
    McpCase("requestState", _retry, capabilities=FORMS),
    McpCase("Last-Event-ID", _resume, HANDSHAKE),
    McpCase("response", _respond, HANDSHAKE),
    *(
        case
        for version, capabilities in ((STATELESS, {}), (STATELESS, _WITH_TASKS), (HANDSHAKE, {}))
        for case in (
            McpCase("tools/call", _call(), version, capabilities, creates=True),
            McpCase(
                "tools/call with a key and a cursor",
                _call(lambda names: {"dragoman/idempotencyKey": names.key, "dragoman/cursor": names.cursor}),
                version,
                capabilities,
                creates=True,
            ),
            McpCase(
                "tools/call in a conversation",
                _call(arguments=lambda names: {"contextId": names.context}),
                version,
                capabilities,
                creates=True,
            ),
            McpCase(
                "tools/call in a conversation of _meta",
                _call(lambda names: {"dragoman/contextId": names.context}),
                version,
                capabilities,
                creates=True,
            ),
        )
    ),
)


@asynccontextmanager
async def over_mcp(base: str, who: Mapping[str, str], tenants: tuple[str, ...]) -> AsyncIterator[list[Call]]:
    """All calls over MCP: at the address of all agents, and at that of the one agent."""
    async with aiohttp.ClientSession(base) as session:
        yield [
            _as_call(session, case, who, tenant, path)
            for case in MCP_CASES
            for tenant in tenants
            for path in _paths(tenant, case)
        ]


def _paths(tenant: str, case: McpCase) -> Iterator[str]:
    """Tasks of every scope can be named at the address of all agents; calls there begin those of the default scope."""
    yield f"/{tenant or AGENT_ID}/mcp"
    if not tenant or not (case.creates or case.label == "requestState"):
        yield "/mcp"


def _as_call(session: aiohttp.ClientSession, case: McpCase, who: Mapping[str, str], tenant: str, path: str) -> Call:
    caller = McpCaller(session, path, case.version, case.capabilities, who)

    async def send(names: Names) -> str:
        request = case.request(names, tenant or AGENT_ID)
        body: Mapping[str, Any] | None
        if "method" in request:
            params = dict(request["params"])
            if not params.get("name", "?"):
                params["name"] = AGENT_ID
            body, headers = caller.envelope(request["method"], params, request.get("meta", {}))
            body = {**body, "id": 1}
        else:
            body = request.get("body")
            headers = {**who, "MCP-Protocol-Version": case.version, "Accept": "application/json, text/event-stream"}
        headers |= request.get("headers", {})
        text = await http_text(session, request.get("verb", "POST"), path, body, headers, one_event=case.listens)
        return expanded(text)

    label = f"{case.label} {case.version} {path[:9]} {sorted(case.capabilities or ())}"
    return Call(case, label, tenant if tenant else DEFAULT, int(case.creates), send)


def expanded(text: str) -> str:
    """The text with ids of events, elicitations and sessions replaced by the JSON in them."""

    def json_of(match: re.Match[str]) -> str:
        encoded = match[2]
        return f"{match[1]}." + base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode("latin-1")

    return _ENCODED.sub(json_of, text)
