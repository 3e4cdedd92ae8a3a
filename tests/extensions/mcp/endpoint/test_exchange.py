"""Requests to the MCP endpoint and their responses, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest
from tests.bindings.fake_service import FakeService, over_http
from tests.callers import named
from tests.extensions.mcp.endpoint.mcp_client import (
    FORMS,
    PATHS,
    STATELESS,
    TASKS,
    McpCaller,
    calling,
    question_of,
    serving,
)

from dragoman.core.errors import Unavailable
from dragoman.core.limits.message_limits import MAX_VALUES
from dragoman.extensions.mcp.wire.envelope import VERSION_HEADER
from dragoman.runtime.access import Call
from dragoman.runtime.feeds import EventStream
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

HANDSHAKE = "2025-11-25"


async def test_a_server_describes_itself_without_a_handshake() -> None:
    async with calling() as caller:
        result = (await caller.request("server/discover")).result
    assert result["supportedVersions"] == [STATELESS, "2025-11-25", "2025-06-18", "2025-03-26"]
    assert result["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 60_000, "public")
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "dragoman"


async def test_a_handshake_agrees_on_the_requested_revision_and_begins_a_session() -> None:
    async with calling(version="2025-06-18") as caller:
        answer = await caller.initialize()
        assert answer.result["protocolVersion"] == "2025-06-18"
        assert answer.result["serverInfo"]["name"] == "dragoman"
        ready = await caller.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, caller.headers)
        assert (ready.status, ready.text) == (202, "")
        assert "resultType" not in (await caller.request("ping")).result


async def test_an_unknown_revision_is_answered_with_the_latest_that_has_a_handshake() -> None:
    async with calling(version="2024-11-05") as caller:
        assert (await caller.initialize()).result["protocolVersion"] == HANDSHAKE


async def test_a_caller_without_a_session_is_served() -> None:
    async with calling(version=HANDSHAKE) as caller:
        assert (await caller.call("echo", message="hi")).text_content == "hi"


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
async def test_a_call_returns_the_result_of_its_task(version: str) -> None:
    async with calling(version=version) as caller:
        answer = await caller.call("echo", message="hello")
        task = await caller.call("get_task", task=answer.result["_meta"]["dragoman/task"])
    assert (answer.status, answer.text_content, answer.result["isError"]) == (200, "hello", False)
    # A stream gives clients of the older revisions an event to resume from, should the server be killed.
    assert answer.is_stream == (version == HANDSHAKE)
    assert task.text_content == "hello"
    assert answer.result["_meta"]["dragoman/task"].startswith("echo/")


async def test_a_failure_of_the_agent_is_a_result_with_its_text() -> None:
    async with calling() as caller:
        answer = await caller.call("failing", message="hello")
    assert answer.status == 200
    assert answer.result["isError"] is True
    assert "out of paper" in answer.text_content


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"massage": "hi"}, "massage: is no argument of echo; use message, data, contextId"),
        ({}, "message: is required; pass message or data"),
        ({"message": 7}, "message: must be a string"),
        ({"contextId": "c" * 5000, "message": "hi"}, "contextId: must be at most"),
    ],
)
async def test_invalid_arguments_are_a_result_that_names_the_argument(arguments: dict[str, Any], text: str) -> None:
    async with calling() as caller:
        answer = await caller.call("echo", **arguments)
    assert answer.result["isError"] is True
    assert answer.text_content.startswith(text)


@pytest.mark.parametrize(
    ("method", "params", "status", "code"),
    [
        ("tools/call", {"name": "nope"}, 200, -32602),
        ("tools/call", {"name": 7}, 400, -32020),
        ("tools/call", {"name": "echo", "arguments": []}, 200, -32602),
        ("tasks/get", {"taskId": "echo/none"}, 200, -32602),
        ("tasks/get", {"taskId": "none"}, 200, -32602),
        ("tasks/get", {}, 200, -32602),
        ("tasks/cancel", {"taskId": "anonymous/1"}, 200, -32602),
        ("prompts/list", {}, 404, -32601),
    ],
)
async def test_a_request_that_cannot_be_served_is_an_error_of_json_rpc(
    method: str, params: dict[str, Any], status: int, code: int
) -> None:
    async with calling(capabilities=TASKS) as caller:
        body, headers = caller.envelope(method, params, {})
        headers["Mcp-Name"] = str(params.get("name", params.get("taskId", "")))
        answer = await caller.post(body, {name: value for name, value in headers.items() if value})
    assert (answer.status, answer.error["code"]) == (status, code if params != {"name": 7} else -32020)


async def test_errors_have_status_200_in_revisions_with_a_handshake() -> None:
    async with calling(version=HANDSHAKE) as caller:
        unknown = await caller.request("prompts/list")
        invalid = await caller.call("nope")
    assert (unknown.status, unknown.error["code"]) == (200, -32601)
    assert (invalid.status, invalid.error["code"]) == (200, -32602)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"MCP-Protocol-Version": "2025-11-25"}, -32020),
        ({"MCP-Protocol-Version": None}, -32020),
        ({"Mcp-Method": "tools/list"}, -32020),
        ({"Mcp-Method": None}, -32020),
        ({"Mcp-Name": "other"}, -32020),
        ({"Mcp-Name": None}, -32020),
        ({"Mcp-Name": "=?base64?ZWNobw==?="}, None),
        ({"Mcp-Name": "=?base64?ZWNobx==?="}, -32020),
    ],
)
async def test_headers_have_to_repeat_the_body(change: dict[str, str | None], code: int | None) -> None:
    async with calling() as caller:
        body, headers = caller.envelope("tools/call", {"name": "echo", "arguments": {"message": "hi"}}, {})
        headers.update({name: value for name, value in change.items() if value is not None})
        answer = await caller.post(
            body, {name: value for name, value in headers.items() if change.get(name, "") is not None}
        )
    assert answer.last.get("error", {}).get("code") == code
    assert answer.status == (200 if code is None else 400)


@pytest.mark.parametrize(
    ("meta", "headers"),
    [
        (None, {}),
        ({}, {"MCP-Protocol-Version": STATELESS}),
        ({"io.modelcontextprotocol/protocolVersion": STATELESS}, {"MCP-Protocol-Version": STATELESS}),
        (
            {"io.modelcontextprotocol/protocolVersion": STATELESS, "io.modelcontextprotocol/clientCapabilities": 7},
            {"MCP-Protocol-Version": STATELESS, "Mcp-Method": "server/discover"},
        ),
    ],
)
async def test_a_request_without_a_whole_envelope_is_malformed(
    meta: dict[str, Any] | None, headers: dict[str, str]
) -> None:
    """2026-07-28 basic, "_meta": -32602, and over HTTP the status 400."""
    params = {} if meta is None else {"_meta": meta}
    async with calling() as caller:
        body = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": params}
        answer = await caller.post(body, headers)
    assert (answer.status, answer.error["code"]) == (400, -32602)
    assert answer.error["message"].startswith("_meta.io.modelcontextprotocol/")


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_tasks_need_the_extension(method: str) -> None:
    """SEP-2663, "Protocol Errors"."""
    async with calling() as caller:
        handle = (await caller.call("asker", message="hi")).result["_meta"]["dragoman/task"]
        answer = await caller.request(method, {"taskId": handle, "inputResponses": {}})
    assert (answer.status, answer.error["code"]) == (400, -32021)
    assert answer.error["data"] == {"requiredCapabilities": TASKS}


async def test_an_unknown_revision_is_rejected_with_those_that_are_served() -> None:
    async with calling() as caller:
        answer = await caller.post(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, {"MCP-Protocol-Version": "1900-01-01"}
        )
    assert (answer.status, answer.error["code"]) == (400, -32022)
    assert answer.error["data"]["requested"] == "1900-01-01"
    assert STATELESS in answer.error["data"]["supported"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"response","params":{"id":"x"}}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":7}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":1.5}}}', -32602),
        (b'{"jsonrpc":"2.0","id":"x","result":{}}', -32602),
    ],
)
async def test_a_malformed_message_is_an_error_that_says_why(body: bytes, code: int) -> None:
    async with calling() as caller, aiohttp.ClientSession() as session:
        headers = {"Content-Type": "application/json"}
        async with session.post(caller.url, data=body, headers=headers) as response:
            answer = json.loads(await response.text())
    assert answer["error"]["code"] == code
    assert answer["error"]["message"]


DEEP = "[" * 300 + "]" * 300


@pytest.mark.parametrize(
    ("arguments", "status", "id"),
    [
        ('{"data":9007199254740993}', 200, 77),
        ('{"message":"a","message":"b"}', 200, 77),
        (f'{{"data":{DEEP}}}', 200, 77),
        (f"[{'0,' * MAX_VALUES}0]", 400, None),
        (f'{{"data":{DEEP * 5}}}', 400, None),
    ],
)
async def test_an_error_of_the_body_has_the_id_of_its_call_or_a_status_that_says_so(
    arguments: str, status: int, id: int | None
) -> None:
    body = f'{{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{{"name":"echo","arguments":{arguments}}}}}'
    async with calling(version=HANDSHAKE) as caller:
        headers = {"Content-Type": "application/json", VERSION_HEADER: HANDSHAKE}
        async with caller.session.post(caller.url, data=body, headers=headers) as response:
            answer = await response.json()
    assert (response.status, answer["id"], answer["error"]["code"] in (-32602, -32700)) == (status, id, True)


async def test_an_error_after_the_client_has_left_is_taken() -> None:
    class Failing(FakeService):
        async def send_streaming_message(self, call: Call, request: pb.SendMessageRequest) -> EventStream:
            try:
                self.waiting.set()
                await asyncio.Event().wait()
                yield ()
            except asyncio.CancelledError:
                self.abandoned.set()
                raise Unavailable from None

    service = Failing()
    unhandled: list[Mapping[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    async with over_http(service, extension_paths=PATHS) as session:
        body, headers = McpCaller(session, "/mcp").envelope("tools/call", {"name": "echo", "arguments": {}}, {})
        body["params"]["arguments"] = {"message": "x"}
        request = asyncio.create_task(session.post("/mcp", json=body, headers=headers).__aenter__())
        await service.waiting.wait()
        request.cancel()
        await service.abandoned.wait()
    gc.collect()
    assert unhandled == []


@pytest.mark.parametrize("id", ["x", "elicit.WyJlY2hvIiwidCIsImtleSJd", 7])
async def test_a_response_that_cannot_be_accepted_has_an_error_status(id: object) -> None:
    async with calling(version=HANDSHAKE) as caller:
        answer = await caller.post({"jsonrpc": "2.0", "id": id, "result": {"action": "accept"}}, caller.headers)
        wrong = await caller.post({"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": 7}}, {})
    assert (answer.status, wrong.status) == (400, 400)
    assert answer.error["code"] == -32602


async def test_other_http_methods_are_not_allowed() -> None:
    async with calling() as caller:
        async with caller.session.get(caller.url) as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST")
        # 2025-11-25 Streamable HTTP, "Session Management": a server that does not let clients end sessions.
        async with caller.session.delete(caller.url) as response:
            assert response.status == 405


async def test_the_endpoint_can_be_turned_off() -> None:
    async with calling(mcp_endpoint=False) as caller, caller.session.post(caller.url, json={}) as response:
        assert response.status == 404


async def test_credentials_are_checked_as_for_every_binding() -> None:
    async with serving(api_keys=True) as app, aiohttp.ClientSession() as session:
        url = f"{app.http.url}/mcp"
        anonymous = await McpCaller(session, url).request("tools/list")
        alice = await McpCaller(session, url, headers=named("alice")).call("echo", message="hi")
        limited = McpCaller(session, url, headers=named("bob", "agent:asker"))
        tools = [tool["name"] for tool in (await limited.request("tools/list")).result["tools"]]
        denied = await limited.call("echo", message="hi")
    assert anonymous.status == 401
    assert anonymous.headers["WWW-Authenticate"].startswith("Bearer")
    assert alice.text_content == "hi"
    assert tools == ["asker", "get_task", "answer_task", "cancel_task"]
    assert denied.error["code"] == -32602, "a tool of another agent looks as if it did not exist"


async def test_the_task_of_another_principal_is_not_there() -> None:
    async with serving(api_keys=True) as app, aiohttp.ClientSession() as session:
        url = f"{app.http.url}/mcp"
        alice = McpCaller(session, url, headers=named("alice"), capabilities=TASKS | FORMS)
        mallory = McpCaller(session, url, headers=named("mallory"), capabilities=TASKS | FORMS)
        handle = (await alice.call("asker", message="hi")).result["taskId"]
        key = await question_of(alice, handle)
        answers = {"taskId": handle, "inputResponses": {key: {"action": "accept", "content": {"answer": "large"}}}}
        stranger = [
            await mallory.request(method, params)
            for method, params in (
                ("tasks/get", {"taskId": handle}),
                ("tasks/update", answers),
                ("tasks/cancel", {"taskId": handle}),
            )
        ]
        absent = [
            await mallory.request(method, {**params, "taskId": "asker/01a20ee5-f138-7d0d-907f-a7f54102ec32"})
            for method, params in (("tasks/get", {}), ("tasks/update", answers), ("tasks/cancel", {}))
        ]
        read = await mallory.call("get_task", task=handle)
        state = (await alice.request("tasks/get", {"taskId": handle})).result["status"]
    assert [answer.error for answer in stranger] == [answer.error for answer in absent]
    assert read.result["isError"] is True
    assert state == "input_required", "no answer and no cancel of a stranger has reached it"


async def test_an_address_of_one_agent_has_its_tools_and_tasks_alone() -> None:
    async with calling(path="/echo/mcp", capabilities=TASKS) as caller:
        tools = [tool["name"] for tool in (await caller.request("tools/list")).result["tools"]]
        handle = (await caller.call("echo", message="hi")).result["_meta"]["dragoman/task"]
        short = await caller.request("tasks/get", {"taskId": handle.removeprefix("echo/")})
        caller.url = caller.url.replace("/echo/", "/asker/")
        elsewhere = await caller.request("tasks/get", {"taskId": handle})
        caller.url = caller.url.replace("/asker/", "/anonymous/")
        anonymous = await caller.call("echo", message="hi")
    assert tools == ["echo", "get_task", "answer_task", "cancel_task"]
    assert short.result["taskId"] == handle
    assert elsewhere.error["code"] == -32602
    assert anonymous.error["code"] == -32602


async def test_a_scoped_address_makes_tasks_of_its_scope() -> None:
    scope = "projects/p/locations/l/collections/c/engines/e/assistants/a"
    async with calling(path=f"/{scope}/agents/echo/mcp", capabilities=TASKS) as caller:
        handle = (await caller.call("echo", message="hi")).result["_meta"]["dragoman/task"]
        assert (await caller.request("tasks/get", {"taskId": handle})).result["taskId"] == handle
    assert handle.startswith(f"{scope}/agents/echo/")


@pytest.mark.parametrize(
    ("header", "value", "version", "status"),
    [
        ("Mcp-Session-Id", "d1.bm9uc2Vuc2U", HANDSHAKE, 404),  # so that the client begins a new session
        ("Origin", "https://evil.example", STATELESS, 403),  # a page of another site
        ("Host", "evil.example", STATELESS, 403),  # a name that leads here by DNS rebinding
    ],
)
async def test_a_request_with_a_foreign_header_is_rejected(header: str, value: str, version: str, status: int) -> None:
    async with calling(version=version) as caller:
        caller.headers[header] = value
        assert (await caller.request("tools/list")).status == status


async def test_a_body_above_the_limit_is_rejected_unread() -> None:
    async with calling(message_bytes=1024) as caller:
        answer = await caller.call("echo", message="x" * 2_000_000)
        long = await caller.call("echo", message="x" * 2000)
    assert answer.status == 413
    assert long.error["code"] == -32600


async def test_a_caller_above_its_rate_is_told_when_to_retry() -> None:
    async with calling(requests_per_second=1, api_keys=True) as caller:
        caller.headers |= named("alice")
        answers = [await caller.request("ping") for _ in range(4)]
    rejected = [answer for answer in answers if "error" in answer.last]
    assert rejected
    assert rejected[0].status == 429
    assert rejected[0].error["data"]["reason"] == "RATE_LIMITED"
    assert rejected[0].headers["Retry-After"]
