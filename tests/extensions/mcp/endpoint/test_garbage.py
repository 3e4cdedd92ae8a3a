"""Garbage in every place of a request: an error of the caller, and never one of the server."""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.extensions.mcp.endpoint.mcp_client import FORMS, STATELESS, TASKS, McpCaller, calling

from dragoman.extensions.mcp.endpoint.decoder import KNOWN_METHODS
from dragoman.extensions.mcp.endpoint.tool_call import ElicitationId, ResumePoint
from dragoman.extensions.mcp.wire.envelope import new_session
from dragoman.extensions.mcp.wire.tools import TASK_TOOLS

HANDLE = "<handle>"
"""Stands for the handle of a task that waits for an answer."""
TEXTS = st.sampled_from(
    ["", "echo", "asker", "asker/", HANDLE, "2026-07-28", "accept", "none", "\u20ac\U0001f600", "\x00"]
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e9, 1e9) | TEXTS | st.text(max_size=8)
KEYS = st.sampled_from(
    [
        *("name", "arguments", "message", "data", "files", "contextId", "task", "answer", "taskId", "requestState"),
        *("inputResponses", "notifications", "taskIds", "toolsListChanged", "action", "content", "progressToken"),
        *("protocolVersion", "capabilities", "elicitation", "requestId", "dragoman/cursor", "dragoman/contextId"),
        *("dragoman/idempotencyKey", "traceparent", "uri", "mimeType"),
    ]
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)


def encoded(prefix: str) -> st.SearchStrategy[str]:
    """Ids of the form that the server gives out, with anything in them."""
    values = st.lists(VALUES, max_size=6).map(lambda value: base64.urlsafe_b64encode(json.dumps(value).encode()))
    return values.map(lambda data: prefix + data.decode().rstrip("=")) | st.text(max_size=20).map(prefix.__add__)


EVENT_IDS = encoded("r1.") | st.builds(
    lambda *values: str(ResumePoint(*values)), TEXTS, TEXTS, TEXTS, VALUES, VALUES, TEXTS
)
QUESTIONS = encoded("elicit.") | st.builds(lambda *values: str(ElicitationId(*values)), TEXTS, TEXTS, TEXTS)
SESSIONS = encoded("d1.") | st.just(new_session("2025-11-25", FORMS, "nonce"))
PARAMS = st.dictionaries(KEYS, VALUES, max_size=4) | st.fixed_dictionaries(
    {"name": TEXTS | st.sampled_from(sorted(TASK_TOOLS)), "arguments": VALUES},
    optional={"requestState": QUESTIONS | VALUES},
)
METAS = st.dictionaries(KEYS, VALUES, max_size=3)
METHODS = st.sampled_from(sorted(KNOWN_METHODS))


def of_real_task(value: Any, handle: str) -> Any:
    """The value with the handle of an existing task in it, also in ids."""
    text = json.dumps(value).replace(HANDLE, handle)
    return json.loads(text)


def header_text(text: str) -> str:
    """The text as a header can have it."""
    return "".join(character for character in text if " " <= character <= "~")


async def survives(session: aiohttp.ClientSession, url: str, body: Any, headers: Mapping[str, str]) -> None:
    """Sends a request, or GET without a body; a stream is left after its first bytes."""
    verb = "GET" if body is None else "POST"
    async with session.request(verb, url, json=body, headers=headers) as response:
        assert response.status < 500, await response.text()
        if response.content_type == "text/event-stream":
            text = (await response.content.readany()).decode()
        else:
            text = await response.text()
        assert '"code":-32603' not in text, text


@given(st.data())
@settings(
    max_examples=100 if os.environ.get("HYPOTHESIS_PROFILE") else 12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,),  # each example starts a server, so that shrinking takes minutes
)
async def test_garbage_is_an_error_of_its_sender(data: st.DataObject) -> None:
    failures: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: failures.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("dragoman").addHandler(handler)
    try:
        async with calling(capabilities=TASKS, mcp_wait=0.2, keepalive=0.1) as caller:
            handle = (await caller.call("asker", message="x")).result["taskId"]
            for _ in range(12):
                await _send_garbage(data, caller, handle)
    finally:
        logging.getLogger("dragoman").removeHandler(handler)
    assert failures == []


async def _send_garbage(data: st.DataObject, caller: McpCaller, handle: str) -> None:
    version = data.draw(st.sampled_from([STATELESS, "2025-11-25", "2025-03-26"]))
    kind = data.draw(st.sampled_from(["request", "request", "request", "response", "resume"]))
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version}
    if version != STATELESS and data.draw(st.booleans()):
        headers["Mcp-Session-Id"] = header_text(data.draw(SESSIONS))
    if kind == "resume":
        headers["Last-Event-ID"] = header_text(of_real_task(data.draw(EVENT_IDS), handle))
        await survives(caller.session, caller.url, None, headers)
    elif kind == "response":
        body = {"jsonrpc": "2.0", "id": data.draw(QUESTIONS | VALUES), "result": data.draw(VALUES)}
        await survives(caller.session, caller.url, of_real_task(body, handle), headers)
    else:
        params = of_real_task(data.draw(PARAMS), handle)
        sender = McpCaller(caller.session, caller.url, version, data.draw(st.sampled_from([{}, TASKS, FORMS])))
        if not isinstance(params.get("name", ""), str):
            del params["name"]
        body, more = sender.envelope(data.draw(METHODS), params, of_real_task(data.draw(METAS), handle))
        more = {name: header_text(text) for name, text in more.items()}
        await survives(caller.session, caller.url, body, headers | more)


@pytest.mark.parametrize("size", [10, 20_000])
async def test_a_huge_number_of_answers_is_read_and_ignored(size: int) -> None:
    async with calling(capabilities=TASKS) as caller:
        handle = (await caller.call("asker", message="x")).result["taskId"]
        answers = {f"q{number}": {"action": "accept"} for number in range(size)}
        answer = await caller.request("tasks/update", {"taskId": handle, "inputResponses": answers})
        assert answer.result == {"resultType": "complete"}
        deep: Any = "x"
        for _ in range(240):
            deep = [deep]
        nested = await caller.request("tasks/update", {"taskId": handle, "inputResponses": {"q": deep}})
        assert nested.result == {"resultType": "complete"}
