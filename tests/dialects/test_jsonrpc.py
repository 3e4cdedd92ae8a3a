"""JSON-RPC: the envelope, its errors, and the errors of each dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.dialects.dialect_clients import ServerConnections, sse

pytestmark = pytest.mark.long

V1 = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo hi"}]}}
V03 = {"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "echo hi"}]}}
V01 = {"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": "echo hi"}]}}
JSON = {"Content-Type": "application/json"}


async def post(
    connections: ServerConnections, body: Any, path: str = "/", **headers: str
) -> tuple[int, dict[str, Any]]:
    """Returns the HTTP status and the response. Other bodies than text and bytes are sent as JSON."""
    data = body if isinstance(body, str | bytes) else json.dumps(body)
    async with connections.http.post(path, data=data, headers={**JSON, **headers}) as answer:
        return answer.status, await answer.json()


async def tasks(connections: ServerConnections) -> int:
    _, response = await post(connections, {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"})
    return int(response["result"]["totalSize"])


def call(method: str, params: Any = None, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


@pytest.mark.parametrize("id", [1, "1", "", "ü", None, -5, 2**53])
async def test_an_id_is_returned_unchanged(connections: ServerConnections, id: Any) -> None:
    _, response = await post(connections, call("SendMessage", V1, id))
    assert response["id"] == id
    assert type(response["id"]) is type(id)
    assert response["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert set(response) == {"jsonrpc", "id", "result"}


async def test_a_call_without_an_id_gets_a_response_with_a_null_id(connections: ServerConnections) -> None:
    body = call("tasks/send", V01)
    del body["id"]
    assert (await post(connections, body))[1]["id"] is None


ENVELOPES: list[tuple[Any, int, Any]] = [
    ("", -32700, None),
    ("{", -32700, None),
    ("nope", -32700, None),
    (b"\xff{}", -32700, None),
    ('{"jsonrpc": "2.0", "id": NaN, "method": "GetTask"}', -32700, None),
    ('{"jsonrpc": "2.0", "id": "\\ud800", "method": "GetTask"}', -32602, None),
    ("[]", -32600, None),
    ([call("GetTask")], -32600, None),
    ("5", -32600, None),
    ("null", -32600, None),
    ({"id": 1, "method": "GetTask"}, -32600, 1),
    ({"jsonrpc": "1.0", "id": 1, "method": "GetTask"}, -32600, 1),
    ({"jsonrpc": 2.0, "id": 1, "method": "GetTask"}, -32600, 1),
    ({"jsonrpc": "2.0", "id": 1}, -32600, 1),
    ({"jsonrpc": "2.0", "id": 1, "method": 5}, -32600, 1),
    ({"jsonrpc": "2.0", "id": 1, "method": ""}, -32600, 1),
    ({"jsonrpc": "2.0", "id": True, "method": "GetTask"}, -32600, None),
    ({"jsonrpc": "2.0", "id": 1.5, "method": "GetTask"}, -32600, None),
    ({"jsonrpc": "2.0", "id": {}, "method": "GetTask"}, -32600, None),
    ({"jsonrpc": "2.0", "id": "a", "method": "GetTask", "params": [1]}, -32602, "a"),
    ({"jsonrpc": "2.0", "id": "a", "method": "GetTask", "params": "x"}, -32602, "a"),
    (call("Nope"), -32601, 1),
    (call("tasks/nope"), -32601, 1),
    ('{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"a","id":"b"}}', -32602, 1),
    ('{"jsonrpc":"2.0","id":"s","method":"GetTask","params":{"id":"a","historyLength":9007199254740993}}', -32602, "s"),
    ('{"jsonrpc":"2.0","id":1,"method":"GetTask","params":' + '{"a":' * 300 + "1" + "}" * 301, -32602, 1),
    ('{"jsonrpc":"2.0","id":"s","method":"GetTask","params":{"id":"a","historyLength":1e999}}', -32602, "s"),
    ('{"jsonrpc":"2.0","id":"s","method":"GetTask","params":{"id":"\\ud800"}}', -32602, "s"),
    ('{"jsonrpc":"2.0","id":"\\ud800","method":"GetTask","params":{"id":"\\ud800"}}', -32602, None),
    ('{"jsonrpc":"2.0","id":1,"id":2,"method":"GetTask"}', -32602, None),
    ('{"jsonrpc":"2.0","id":9007199254740993,"method":"GetTask"}', -32602, None),
    ('{"jsonrpc":"2.0","id":1,"method":"GetTask","params":' + '{"a":' * 2000 + "1" + "}" * 2001, -32602, None),
]


@pytest.mark.parametrize(("body", "code", "id"), ENVELOPES, ids=lambda value: str(value)[:60])
async def test_an_invalid_envelope_is_rejected_with_its_code(
    connections: ServerConnections, body: Any, code: int, id: Any
) -> None:
    status, response = await post(connections, body)
    assert (status, response["error"]["code"], response["id"]) == (200, code, id)
    assert "Traceback" not in response["error"]["message"]
    assert "result" not in response


@pytest.mark.parametrize("version", ["", "0.1", "0.2", "0.3", "1.0"])
@pytest.mark.parametrize(
    ("body", "literal"),
    [
        ("{", "Invalid JSON payload"),
        ("[]", "Request payload validation error"),
        (call("nope"), "Method not found"),
        (call("tasks/nope"), "Method not found"),
    ],
)
async def test_the_text_of_an_invalid_envelope_is_literal_unless_the_caller_names_1_0(
    connections: ServerConnections, body: Any, literal: str, version: str
) -> None:
    _, response = await post(connections, body, **({"A2A-Version": version} if version else {}))
    error = response["error"]
    assert (error["message"] == literal) is (version != "1.0")
    assert error["message"].startswith(literal)
    if version != "1.0":
        assert localized(error).startswith(f"{literal}: ")


@pytest.mark.parametrize(
    ("method", "right"),
    [("sendMessage", "SendMessage"), ("message/sned", "message/send"), ("GetTasks", "GetTask"), ("nope", "")],
)
async def test_a_misspelled_method_is_refused_with_the_one_that_is_meant(
    connections: ServerConnections, method: str, right: str
) -> None:
    expected = f'Method not found: "{method}"' + (f"; did you mean {right}?" if right else "")
    _, response = await post(connections, call(method), **{"A2A-Version": "1.0"})
    assert response["error"]["message"] == expected
    _, response = await post(connections, call(method))
    assert localized(response["error"]) == expected


AMBIGUOUS_CALL = (
    '{"jsonrpc":"2.0","id":"s","method":"%s","params":{"message":%s,"metadata":{"snowflake":9007199254740993}}}'
)
"""A call with an integer that parsers read differently."""


def details(error: dict[str, Any]) -> list[dict[str, Any]]:
    """The typed objects of an error: `data` in 1.0, and `details` in its object before."""
    data = error["data"]
    return list(data if isinstance(data, list) else data["details"])


def localized(error: dict[str, Any]) -> str:
    """The text that a literal of 0.x replaced."""
    return str(next(detail["message"] for detail in details(error) if detail["@type"].endswith(".LocalizedMessage")))


@pytest.mark.parametrize("length", ["-1", '"x"', "9007199254740993", "1e999", '0,"historyLength":1', '"\\ud800"'])
async def test_every_error_of_a_field_names_it_within_params(connections: ServerConnections, length: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{{"id":"a","historyLength":{length}}}}}'
    _, response = await post(connections, body)
    assert violations(response["error"]) == ["historyLength"]


def violations(error: dict[str, Any]) -> list[str]:
    return [one["field"] for detail in details(error) for one in detail.get("fieldViolations", ())]


@pytest.mark.parametrize(
    ("method", "params", "in_stream"),
    [("message/send", V03, False), ("message/stream", V03, True), ("tasks/sendSubscribe", V01, True)],
)
async def test_ambiguous_json_is_rejected_in_the_format_of_its_dialect(
    connections: ServerConnections, method: str, params: dict[str, Any], in_stream: bool
) -> None:
    body = AMBIGUOUS_CALL % (method, json.dumps(params["message"]))
    async with connections.http.post("/", data=body.encode(), headers={"Content-Type": "application/json"}) as answer:
        text = await answer.text()
        assert (answer.status, answer.content_type == "text/event-stream") == (200, in_stream)
    response = json.loads(text.removeprefix("data: "))
    expected = (-32603, "Internal error") if method == "tasks/sendSubscribe" else (-32602, "Invalid parameters")
    assert (response["id"], response["error"]["code"], response["error"]["message"]) == ("s", *expected)
    assert localized(response["error"]).startswith("metadata.snowflake: ")
    async with connections.http.ws_connect("/ws") as socket:
        await socket.send_str(body)
        assert await socket.receive_json() == response


def v1_params(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"message": {**V1["message"], "parts": list(parts), **fields}}


def v03_params(*parts: Any) -> dict[str, Any]:
    return {"message": {**V03["message"], "parts": list(parts)}}


PARAMS: list[tuple[str, Any, int]] = [
    ("SendMessage", {}, -32602),
    ("SendMessage", {"message": []}, -32602),
    ("SendMessage", {"message": {**V1["message"], "role": "king"}}, -32602),
    ("SendMessage", {"message": {**V1["message"], "messageId": 5}}, -32602),
    ("SendMessage", v1_params(), -32602),
    ("SendMessage", v1_params({}), -32602),
    ("SendMessage", v1_params({"text": "a", "raw": "aGk="}), -32602),
    ("SendMessage", v1_params({"raw": "a*"}), -32602),
    ("SendMessage", v1_params({"text": "x", "mediaType": "application/x-unsupported"}), -32005),
    ("SendMessage", v1_params({"text": "x"}, taskId="none"), -32001),
    ("SendMessage", {**V1, "configuration": {"historyLength": -1}}, -32602),
    ("SendMessage", {**V1, "tenant": "unknown"}, -32602),
    ("SendMessage", {**V1, "configuration": {"taskPushNotificationConfig": {"url": "ftp://x"}}}, -32602),
    ("SendMessage", {**V1, "configuration": {"taskPushNotificationConfig": {}}}, -32602),
    ("GetTask", {}, -32602),
    ("GetTask", {"id": "none"}, -32001),
    ("GetTask", {"id": "none", "historyLength": "many"}, -32602),
    ("CancelTask", {"id": "none"}, -32001),
    ("ListTasks", {"pageSize": 0}, -32602),
    ("ListTasks", {"pageSize": 101}, -32602),
    ("ListTasks", {"pageToken": "x"}, -32602),
    ("ListTasks", {"status": "HAPPY"}, -32602),
    ("ListTasks", {"statusTimestampAfter": "yesterday"}, -32602),
    ("SubscribeToTask", {"id": "none"}, -32001),
    ("CreateTaskPushNotificationConfig", {"taskId": "none", "url": "https://x.example"}, -32001),
    ("CreateTaskPushNotificationConfig", {"url": "https://x.example"}, -32602),
    ("GetTaskPushNotificationConfig", {"taskId": "none"}, -32602),
    ("DeleteTaskPushNotificationConfig", {"taskId": "none"}, -32602),
    ("ListTaskPushNotificationConfigs", {"taskId": 5}, -32602),
    ("GetExtendedAgentCard", None, -32004),
    ("message/send", {}, -32602),
    ("message/send", {"message": {"kind": "message", "parts": []}}, -32602),
    ("message/send", v03_params({"kind": "file", "file": {"bytes": "a", "uri": "b"}}), -32602),
    ("message/send", v03_params({"kind": "data", "data": 5}), -32602),
    ("message/send", v03_params({"kind": "text", "text": []}), -32602),
    ("message/send", {"message": {**V03["message"], "taskId": "none"}}, -32001),
    ("message/send", {**V03, "configuration": {"blocking": "yes"}}, -32602),
    ("tasks/get", {}, -32602),
    ("tasks/get", {"id": "none"}, -32001),
    ("tasks/get", {"id": ["none"]}, -32602),
    ("tasks/cancel", {"id": "none"}, -32001),
    ("tasks/list", {"status": "HAPPY"}, -32602),
    ("tasks/pushNotificationConfig/list", {"id": "none"}, -32001),
    ("tasks/pushNotificationConfig/set", {"taskId": "none", "pushNotificationConfig": []}, -32602),
    ("tasks/pushNotificationConfig/delete", {"id": "none"}, -32602),
    ("agent/getAuthenticatedExtendedCard", None, -32007),
    ("tasks/send", {}, -32602),
    ("tasks/send", {"id": "a"}, -32602),
    ("tasks/send", {"id": "", "message": V01["message"]}, -32602),
    ("tasks/send", {"id": "a" * 600, "message": V01["message"]}, -32602),
    ("tasks/send", {"id": "a", "message": {"role": "user", "parts": [{"type": "poem"}]}}, -32602),
    ("tasks/pushNotification/get", {"id": "none"}, -32001),
    ("tasks/pushNotification/set", {"id": "a", "pushNotificationConfig": {"authentication": {"schemes": 1}}}, -32602),
]  # fmt: skip


@pytest.mark.parametrize(("method", "params", "code"), PARAMS, ids=lambda value: str(value)[:70])
async def test_invalid_params_are_rejected_in_the_dialect_of_the_method(
    connections: ServerConnections, method: str, params: Any, code: int
) -> None:
    status, response = await post(connections, call(method, params))
    error = response["error"]
    assert (status, error["code"], response["id"]) == (200, code, 1)
    assert set(error) <= {"code", "message", "data"}
    if method[0].isupper():
        assert error["data"][0]["@type"].endswith("google.rpc.ErrorInfo")
        assert error["data"][0]["domain"] == "a2a-protocol.org"
    if code == -32001 and "/" in method:
        assert error["message"] == "Task not found"
        assert "data" not in error
    if code == -32602:
        assert (error["message"] == "Invalid parameters") is not method[0].isupper()
        text = error["message"] if method[0].isupper() else localized(error)
        assert ":" in text, "names the field and the rule"
    assert await tasks(connections) == 0


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("message/stream", {}, -32602),
        ("tasks/resubscribe", {"id": "none"}, -32001),
        ("tasks/sendSubscribe", {"id": "x"}, -32603),
    ],
)
async def test_streams_before_1_0_return_errors_in_the_stream(
    connections: ServerConnections, method: str, params: Any, code: int
) -> None:
    async with connections.http.post("/", json=call(method, params)) as answer:
        assert answer.status == 200
        responses = [response async for response in sse(answer)]
    assert [response["error"]["code"] for response in responses] == [code]


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("text/event-stream", "text/event-stream"),
        ("text/event-stream, application/json", "application/json"),
        ("*/*", "application/json"),
    ],
)
@pytest.mark.parametrize("method", ["SubscribeToTask", "SendStreamingMessage", "GetTask"])
async def test_errors_of_1_0_are_in_the_stream_for_callers_that_accept_only_streams(
    connections: ServerConnections, method: str, accept: str, content_type: str
) -> None:
    async with connections.http.post("/", json=call(method, {}), headers={"Accept": accept}) as answer:
        assert answer.status == 200
        assert answer.content_type == (content_type if method != "GetTask" else "application/json")
        text = (await answer.text()).removeprefix("data: ")
    assert json.loads(text)["error"]["code"] == -32602


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/plain"])
async def test_streams_before_1_0_return_errors_as_json_to_callers_that_accept_only_json(
    connections: ServerConnections, accept: str
) -> None:
    body = call("tasks/resubscribe", {"id": "none"})
    async with connections.http.post("/", json=body, headers={"Accept": accept}) as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert (await answer.json())["error"]["code"] == -32001


@pytest.mark.parametrize(
    ("path", "accept", "media_type"),
    [
        ("/tasks/none", "application/a2a+json, application/json", "application/a2a+json"),
        ("/tasks/none", "application/json", "application/json"),
        ("/tasks/none", "*/*", "application/json"),
        ("/v1/tasks/none", "application/a2a+json", "application/json"),
    ],
)
async def test_a_rest_error_has_the_media_type_that_the_caller_accepts(
    connections: ServerConnections, path: str, accept: str, media_type: str
) -> None:
    async with connections.http.get(path, headers={"Accept": accept}) as answer:
        assert (answer.status, answer.content_type) == (404, media_type)


@pytest.mark.parametrize("media_type", ["text/plain", "application/xml", "multipart/form-data"])
async def test_other_content_types_are_rejected(connections: ServerConnections, media_type: str) -> None:
    status, response = await post(connections, call("GetTask"), **{"Content-Type": media_type})
    assert (status, response["error"]["code"], response["id"]) == (200, -32005, None)


@pytest.mark.parametrize("version", ["", "1.0", "1", "1.0.1", "0.3"])
async def test_a_call_is_served_by_its_shape_with_any_supported_version(
    connections: ServerConnections, version: str
) -> None:
    for body in (call("SendMessage", V1), call("message/send", V03), call("tasks/send", {**V01, "id": f"v{version}"})):
        _, response = await post(connections, body, **{"A2A-Version": version})
        assert "result" in response, response


@pytest.mark.parametrize("path", ["/", "/playground", "/playground/", "/tenants/playground"])
async def test_every_path_of_an_agent_accepts_calls(connections: ServerConnections, path: str) -> None:
    assert "result" in (await post(connections, call("SendMessage", V1), path))[1]


async def test_the_path_takes_precedence_over_the_tenant_in_the_params(connections: ServerConnections) -> None:
    _, response = await post(connections, call("SendMessage", {**V1, "tenant": "unknown"}), "/playground")
    assert "result" in response


async def test_an_unknown_path_is_rejected_in_json_rpc(connections: ServerConnections) -> None:
    _, response = await post(connections, call("SendMessage", V1), "/unknown")
    assert response["error"]["code"] == -32602
    assert "playground" in response["error"]["message"]


async def test_a_0_1_task_keeps_the_id_of_its_client(connections: ServerConnections) -> None:
    _, response = await post(connections, call("tasks/send", {**V01, "id": "my task", "sessionId": "my session"}))
    assert (response["result"]["id"], response["result"]["sessionId"]) == ("my task", "my session")
    _, task = await post(connections, call("GetTask", {"id": "my task"}))
    assert task["result"]["contextId"] == "my session"
    assert task["result"]["history"][0]["taskId"] == "my task"
    _, repeated = await post(connections, call("tasks/send", {**V01, "id": "my task", "sessionId": "my session"}))
    assert repeated["result"] == response["result"], "the client lost the answer"


async def test_a_subscription_to_a_finished_task_is_rejected(connections: ServerConnections) -> None:
    _, response = await post(connections, call("SendMessage", V1))
    task = response["result"]["task"]["id"]
    assert (await post(connections, call("SubscribeToTask", {"id": task})))[1]["error"]["code"] == -32004
    async with connections.http.post("/", json=call("tasks/resubscribe", {"id": task})) as answer:
        assert [event["error"]["code"] async for event in sse(answer)] == [-32004]


RUST = {"message": {"messageId": "m", "role": "user", "parts": [{"type": "text", "text": "echo hi"}]}}


async def test_a_list_without_a_version_is_in_the_dialect_of_its_newest_task(connections: ServerConnections) -> None:
    await post(connections, call("message/send", {**V03, "metadata": {}}))
    await post(connections, call("SendMessage", RUST))
    lists = [(await post(connections, call(method, {})))[1]["result"] for method in ("tasks/list", "ListTasks")]
    async with connections.http.get("/tasks") as answer:
        lists.append(await answer.json())
    for found in lists:
        newest = found["tasks"][0]
        assert newest["status"]["state"] == "TASK_STATE_COMPLETED"
        assert newest["history"][0]["parts"] == [{"type": "text", "text": "echo hi"}]
    headers = {"A2A-Version": "1.0"}
    async with connections.http.get("/tasks", headers=headers) as answer:
        assert (await answer.json())["tasks"][0]["history"][0]["parts"] == [{"text": "echo hi"}]


@pytest.mark.parametrize(
    ("method", "params", "final"),
    [("message/stream", V03, True), ("tasks/sendSubscribe", V01, True), ("SendStreamingMessage", V1, None)],
)
async def test_a_stream_marks_its_last_event_in_dialects_with_final(
    connections: ServerConnections, method: str, params: Any, final: bool | None
) -> None:
    async with connections.http.post(
        "/", json=call(method, json.loads(json.dumps(params).replace("echo hi", "ask")))
    ) as answer:
        events = [event["result"] async for event in sse(answer)]
    last = events[-1] if final else events[-1]["statusUpdate"]
    assert last.get("final") is final
    assert all(not event.get("final") for event in events[:-1])


async def test_a_direct_reply_is_a_message_in_dialects_that_have_one(connections: ServerConnections) -> None:
    params_by_method = {"SendMessage": V1, "message/send": V03, "tasks/send": V01}
    results = {}
    for method, params in params_by_method.items():
        body = json.loads(json.dumps(params).replace("echo hi", "reply hello"))
        results[method] = (await post(connections, call(method, body)))[1]["result"]
    assert results["SendMessage"]["message"]["parts"] == [{"text": "hello"}]
    assert results["message/send"]["kind"] == "message"
    assert results["message/send"]["parts"] == [{"kind": "text", "text": "hello"}]
    assert results["tasks/send"]["status"]["message"]["parts"] == [{"type": "text", "text": "hello"}]


async def test_other_origins_are_rejected(connections: ServerConnections) -> None:
    async with connections.http.post("/", json=call("ListTasks"), headers={"Origin": "https://evil.example"}) as answer:
        assert (answer.status, (await answer.json())["jsonrpc"]) == (403, "2.0")
        assert "Access-Control-Allow-Origin" not in answer.headers
    preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    async with connections.http.options("/", headers=preflight) as answer:
        assert answer.status == 403


async def test_a_request_id_is_returned(connections: ServerConnections) -> None:
    for path in ("/", "/healthz"):
        async with connections.http.get(path, headers={"X-Request-ID": "abc-1"}) as answer:
            assert answer.headers["X-Request-ID"] == "abc-1"
    async with connections.http.post(
        "/", json=call("message/stream", V03), headers={"X-Request-ID": "abc-2"}
    ) as answer:
        assert answer.headers["X-Request-ID"] == "abc-2"
        await answer.read()
