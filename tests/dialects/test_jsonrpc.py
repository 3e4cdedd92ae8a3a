"""JSON-RPC itself: the envelope, its errors, and what each generation is told of a failure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.dialects.dialect_clients import ServerConnections, sse

V1 = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo hi"}]}}
V03 = {"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "echo hi"}]}}
V01 = {"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": "echo hi"}]}}
JSON = {"Content-Type": "application/json"}


async def post(
    connections: ServerConnections, body: Any, path: str = "/", **headers: str
) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the answer. A body that is no text is sent as JSON."""
    data = body if isinstance(body, str | bytes) else json.dumps(body)
    async with connections.http.post(path, data=data, headers={**JSON, **headers}) as answer:
        return answer.status, await answer.json()


async def tasks(connections: ServerConnections) -> int:
    _, values = await post(connections, {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"})
    return int(values["result"]["totalSize"])


def call(method: str, params: Any = None, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


@pytest.mark.parametrize("id", [1, "1", "", "ü", None, -5, 2**53])
async def test_an_id_comes_back_as_it_was_sent(connections: ServerConnections, id: Any) -> None:
    _, values = await post(connections, call("SendMessage", V1, id))
    assert values["id"] == id
    assert type(values["id"]) is type(id)
    assert values["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert set(values) == {"jsonrpc", "id", "result"}


async def test_a_call_without_an_id_is_answered_all_the_same(connections: ServerConnections) -> None:
    body = call("tasks/send", V01)
    del body["id"]
    assert (await post(connections, body))[1]["id"] is None


ENVELOPES: list[tuple[Any, int, Any]] = [
    ("", -32700, None),
    ("{", -32700, None),
    ("nope", -32700, None),
    (b"\xff{}", -32700, None),
    ('{"jsonrpc": "2.0", "id": NaN, "method": "GetTask"}', -32700, None),
    ('{"jsonrpc": "2.0", "id": "\\ud800", "method": "GetTask"}', -32700, None),
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
    ('{"jsonrpc":"2.0","id":1,"id":2,"method":"GetTask"}', -32602, None),
    ('{"jsonrpc":"2.0","id":9007199254740993,"method":"GetTask"}', -32602, None),
    ('{"jsonrpc":"2.0","id":1,"method":"GetTask","params":' + '{"a":' * 2000 + "1" + "}" * 2001, -32602, None),
]


@pytest.mark.parametrize(("body", "code", "id"), ENVELOPES, ids=lambda value: str(value)[:60])
async def test_a_wrong_envelope_is_refused_with_the_number_for_it(
    connections: ServerConnections, body: Any, code: int, id: Any
) -> None:
    status, values = await post(connections, body)
    assert (status, values["error"]["code"], values["id"]) == (200, code, id)
    assert "Traceback" not in values["error"]["message"]
    assert "result" not in values


SNOWFLAKE = '{"jsonrpc":"2.0","id":"s","method":"%s","params":{"message":%s,"metadata":{"snowflake":9007199254740993}}}'
"""A call with an integer that not all readers read alike."""


@pytest.mark.parametrize(
    ("method", "sent", "in_stream"),
    [("message/send", V03, False), ("message/stream", V03, True), ("tasks/sendSubscribe", V01, True)],
)
async def test_what_is_ambiguous_is_refused_as_everything_else_in_its_dialect_and_form(
    connections: ServerConnections, method: str, sent: dict[str, Any], in_stream: bool
) -> None:
    body = SNOWFLAKE % (method, json.dumps(sent["message"]))
    async with connections.http.post("/", data=body.encode(), headers={"Content-Type": "application/json"}) as answer:
        text = await answer.text()
        assert (answer.status, answer.content_type == "text/event-stream") == (200, in_stream)
    value = json.loads(text.removeprefix("data: "))
    assert (value["id"], value["error"]["code"]) == ("s", -32602)
    assert "params.metadata.snowflake" in value["error"]["message"]
    async with connections.http.ws_connect("/ws") as socket:
        await socket.send_str(body)
        assert await socket.receive_json() == value


def part(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"message": {**V1["message"], "parts": list(parts), **fields}}


def old(*parts: Any) -> dict[str, Any]:
    return {"message": {**V03["message"], "parts": list(parts)}}


PARAMS: list[tuple[str, Any, int]] = [
    ("SendMessage", {}, -32602),
    ("SendMessage", {"message": []}, -32602),
    ("SendMessage", {"message": {**V1["message"], "role": "king"}}, -32602),
    ("SendMessage", {"message": {**V1["message"], "messageId": 5}}, -32602),
    ("SendMessage", part(), -32602),
    ("SendMessage", part({}), -32602),
    ("SendMessage", part({"text": "a", "raw": "aGk="}), -32602),
    ("SendMessage", part({"raw": "a*"}), -32602),
    ("SendMessage", part({"text": "x", "mediaType": "application/x-unsupported"}), -32005),
    ("SendMessage", part({"text": "x"}, taskId="none"), -32001),
    ("SendMessage", {**V1, "configuration": {"historyLength": -1}}, -32602),
    ("SendMessage", {**V1, "tenant": "nobody"}, -32602),
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
    ("message/send", old({"kind": "file", "file": {"bytes": "a", "uri": "b"}}), -32602),
    ("message/send", old({"kind": "data", "data": 5}), -32602),
    ("message/send", old({"kind": "text", "text": []}), -32602),
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
async def test_wrong_params_are_refused_in_the_method_s_own_dialect(
    connections: ServerConnections, method: str, params: Any, code: int
) -> None:
    status, values = await post(connections, call(method, params))
    error = values["error"]
    assert (status, error["code"], values["id"]) == (200, code, 1)
    assert set(error) <= {"code", "message", "data"}
    if method[0].isupper():
        assert error["data"][0]["@type"].endswith("google.rpc.ErrorInfo")
        assert error["data"][0]["domain"] == "a2a-protocol.org"
    if code == -32001 and "/" in method:
        assert error["message"] == "Task not found"
        assert "data" not in error
    if code == -32602:
        assert ":" in error["message"], "names the field and the rule"
    assert await tasks(connections) == 0


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("message/stream", {}, -32602),
        ("tasks/resubscribe", {"id": "none"}, -32001),
        ("tasks/sendSubscribe", {"id": "x"}, -32602),
    ],
)
async def test_streams_before_1_0_tell_their_errors_in_the_stream(
    connections: ServerConnections, method: str, params: Any, code: int
) -> None:
    async with connections.http.post("/", json=call(method, params)) as answer:
        assert answer.status == 200
        valueses = [event async for event in sse(answer)]
    assert [event["error"]["code"] for event in valueses] == [code]


@pytest.mark.parametrize("media_type", ["text/plain", "application/xml", "multipart/form-data"])
async def test_another_media_type_is_refused_as_such(connections: ServerConnections, media_type: str) -> None:
    status, values = await post(connections, call("GetTask"), **{"Content-Type": media_type})
    assert (status, values["error"]["code"], values["id"]) == (200, -32005, None)


@pytest.mark.parametrize("version", ["99.0", "2.0", "x"])
async def test_an_unknown_version_is_refused_and_known_ones_are_named(
    connections: ServerConnections, version: str
) -> None:
    _, values = await post(connections, call("SendMessage", V1), **{"A2A-Version": version})
    assert values["error"]["code"] == -32009
    assert values["error"]["data"][0]["metadata"]["supported"] == "1.0, 0.3, 0.2, 0.1"
    assert await tasks(connections) == 0


@pytest.mark.parametrize("version", ["", "1.0", "1", "1.0.1", "0.3"])
async def test_a_call_is_served_by_its_shape_whatever_known_version_it_names(
    connections: ServerConnections, version: str
) -> None:
    for body in (call("SendMessage", V1), call("message/send", V03), call("tasks/send", {**V01, "id": f"v{version}"})):
        _, values = await post(connections, body, **{"A2A-Version": version})
        assert "result" in values, values


@pytest.mark.parametrize("path", ["/", "/playground", "/playground/", "/tenants/playground"])
async def test_every_address_of_an_agent_takes_calls(connections: ServerConnections, path: str) -> None:
    assert "result" in (await post(connections, call("SendMessage", V1), path))[1]


async def test_an_address_goes_before_the_tenant_of_the_params(connections: ServerConnections) -> None:
    _, values = await post(connections, call("SendMessage", {**V1, "tenant": "nobody"}), "/playground")
    assert "result" in values


async def test_an_unknown_path_is_rejected_in_json_rpc(connections: ServerConnections) -> None:
    _, values = await post(connections, call("SendMessage", V1), "/nobody")
    assert values["error"]["code"] == -32602
    assert "playground" in values["error"]["message"]


async def test_a_task_of_0_1_keeps_the_id_of_its_client(connections: ServerConnections) -> None:
    _, values = await post(connections, call("tasks/send", {**V01, "id": "my task", "sessionId": "my session"}))
    assert (values["result"]["id"], values["result"]["sessionId"]) == ("my task", "my session")
    _, seen = await post(connections, call("GetTask", {"id": "my task"}))
    assert seen["result"]["contextId"] == "my session"
    assert seen["result"]["history"][0]["taskId"] == "my task"
    _, again = await post(connections, call("tasks/send", {**V01, "id": "my task"}))
    assert again["error"]["code"] == -32602, "a finished task takes no more messages"


async def test_a_finished_task_is_refused_to_who_subscribes(connections: ServerConnections) -> None:
    _, values = await post(connections, call("SendMessage", V1))
    task = values["result"]["task"]["id"]
    assert (await post(connections, call("SubscribeToTask", {"id": task})))[1]["error"]["code"] == -32004
    async with connections.http.post("/", json=call("tasks/resubscribe", {"id": task})) as answer:
        assert [event["error"]["code"] async for event in sse(answer)] == [-32004]


@pytest.mark.parametrize(
    ("method", "params", "final"),
    [("message/stream", V03, True), ("tasks/sendSubscribe", V01, True), ("SendStreamingMessage", V1, None)],
)
async def test_a_stream_marks_its_end_where_the_dialect_has_a_word_for_it(
    connections: ServerConnections, method: str, params: Any, final: bool | None
) -> None:
    async with connections.http.post(
        "/", json=call(method, json.loads(json.dumps(params).replace("echo hi", "ask")))
    ) as answer:
        events = [event["result"] async for event in sse(answer)]
    last = events[-1] if final else events[-1]["statusUpdate"]
    assert last.get("final") is final
    assert all(not event.get("final") for event in events[:-1])


async def test_a_direct_reply_is_a_message_where_there_is_one(connections: ServerConnections) -> None:
    say = {"SendMessage": V1, "message/send": V03, "tasks/send": V01}
    values = {}
    for method, params in say.items():
        body = json.loads(json.dumps(params).replace("echo hi", "reply hello"))
        values[method] = (await post(connections, call(method, body)))[1]["result"]
    assert values["SendMessage"]["message"]["parts"] == [{"text": "hello"}]
    assert values["message/send"]["kind"] == "message"
    assert values["message/send"]["parts"] == [{"kind": "text", "text": "hello"}]
    assert values["tasks/send"]["status"]["message"]["parts"] == [{"type": "text", "text": "hello"}]


async def test_a_browser_s_origin_gets_nothing_unless_it_is_named(connections: ServerConnections) -> None:
    async with connections.http.post("/", json=call("ListTasks"), headers={"Origin": "https://evil.example"}) as answer:
        assert (answer.status, (await answer.json())["jsonrpc"]) == (403, "2.0")
        assert "Access-Control-Allow-Origin" not in answer.headers
    preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    async with connections.http.options("/", headers=preflight) as answer:
        assert answer.status == 403


async def test_a_request_s_id_comes_back(connections: ServerConnections) -> None:
    for path in ("/", "/healthz"):
        async with connections.http.get(path, headers={"X-Request-ID": "abc-1"}) as answer:
            assert answer.headers["X-Request-ID"] == "abc-1"
    async with connections.http.post(
        "/", json=call("message/stream", V03), headers={"X-Request-ID": "abc-2"}
    ) as answer:
        assert answer.headers["X-Request-ID"] == "abc-2"
        await answer.read()
