"""JSON-RPC over WebSocket: many calls on one connection, and what it refuses."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import aiohttp
import aiohttp.web
import pytest
from tests.dialects.dialect_clients import ServerConnections

WORKING = {"status": "TASK_STATE_WORKING"}


def send(text: str, id: Any, method: str = "SendMessage", **configuration: Any) -> dict[str, Any]:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": method,
        "params": {"message": message, "configuration": configuration},
    }


async def test_calls_on_one_connection_overtake_each_other(connections: ServerConnections) -> None:
    async with connections.http.ws_connect("/ws") as socket:
        await socket.send_json(send("sleep 600", "slow"))
        await socket.send_json(send("stream 3", "stream", "SendStreamingMessage"))
        await socket.send_json(send("echo hi", "fast"))
        valueses: list[dict[str, Any]] = []
        while not {"fast", "complete"} <= {answer["id"] for answer in valueses}:
            valueses.append(answer := await socket.receive_json())
            if answer["result"] == {"status": "stream_complete"}:
                answer["id"] = "complete"
        running: list[Any] = []
        while not running:  # it may not have begun yet
            await socket.send_json({"jsonrpc": "2.0", "id": "list", "method": "ListTasks", "params": WORKING})
            running = (await socket.receive_json())["result"]["tasks"]
        (task,) = running
        await socket.send_json({"jsonrpc": "2.0", "id": "cancel", "method": "CancelTask", "params": {"id": task["id"]}})
        slow = next(answer for answer in [await socket.receive_json() for _ in range(2)] if answer["id"] == "slow")
    assert slow["result"]["task"]["status"]["state"] == "TASK_STATE_CANCELED"
    streamed = [answer["result"] for answer in valueses if answer["id"] == "stream"]
    assert [event["artifactUpdate"]["artifact"]["parts"] for event in streamed if "artifactUpdate" in event] == [
        [{"text": f"chunk-{number} "}] for number in (1, 2, 3)
    ]


async def test_a_stream_can_be_left_open_while_its_task_is_canceled(connections: ServerConnections) -> None:
    async with connections.http.ws_connect("/ws") as socket:
        await socket.send_json(send("sleep 60", 1, "SendStreamingMessage"))
        first = await socket.receive_json()
        task = first["result"]["task"]["id"]
        await socket.send_json({"jsonrpc": "2.0", "id": 2, "method": "CancelTask", "params": {"id": task}})
        ends: set[int] = set()
        while ends != {1, 2}:
            answer = await socket.receive_json()
            if answer["id"] == 2:
                assert answer["result"]["status"]["state"] == "TASK_STATE_CANCELED"
                ends.add(2)
            elif answer["result"] == {"status": "stream_complete"}:
                ends.add(1)


@pytest.mark.parametrize(
    ("frame", "code", "id"),
    [
        ("{", -32700, None),
        ("[]", -32600, None),
        ('{"jsonrpc":"2.0","id":1,"method":"Nope"}', -32601, 1),
        ('{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[1]}', -32602, 1),
        ('{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"a","id":"b"}}', -32602, 1),
        ('{"jsonrpc":"2.0","id":"s","method":"GetTask","params":{"historyLength":9007199254740993}}', -32602, "s"),
        (b"{}", -32005, None),
    ],
)
async def test_a_bad_frame_is_answered_and_the_connection_stays(
    connections: ServerConnections, frame: str | bytes, code: int, id: int | str | None
) -> None:
    async with connections.http.ws_connect("/ws") as socket:
        await (socket.send_bytes(frame) if isinstance(frame, bytes) else socket.send_str(frame))
        value = await socket.receive_json()
        assert (value["error"]["code"], value["id"]) == (code, id)
        await socket.send_json(send("echo hi", 5))
        assert (await socket.receive_json())["id"] == 5


async def test_a_frame_over_the_limit_closes_the_connection(connections: ServerConnections) -> None:
    async with connections.http.ws_connect("/ws") as socket:
        with suppress(ConnectionError):  # it may be gone before all of it is sent
            await socket.send_str("x" * (24 * 1024 * 1024))
        closed = await socket.receive()
    assert closed.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
    assert socket.close_code in (aiohttp.WSCloseCode.MESSAGE_TOO_BIG, aiohttp.WSCloseCode.ABNORMAL_CLOSURE)


async def test_a_connection_that_breaks_ends_nothing_but_itself(connections: ServerConnections) -> None:
    async with connections.http.ws_connect("/ws") as socket:
        await socket.send_json(send("stream 5 50", 1, "SendStreamingMessage"))
        task = (await socket.receive_json())["result"]["task"]["id"]
    async with connections.http.ws_connect("/ws") as socket, asyncio.timeout(60):
        await socket.send_json({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}})
        while (await socket.receive_json())["result"] != {"status": "stream_complete"}:
            pass
        await socket.send_json({"jsonrpc": "2.0", "id": 2, "method": "GetTask", "params": {"id": task}})
        assert (await socket.receive_json())["result"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_the_path_without_an_upgrade_says_what_it_speaks(connections: ServerConnections) -> None:
    async with connections.http.get("/ws") as answer:
        assert answer.status == 400
        assert "WebSocket" in (await answer.json())["error"]["message"]


async def test_a_client_that_hangs_up_during_the_handshake_is_no_error(
    connections: ServerConnections, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def too_late(*_: object) -> None:
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    with monkeypatch.context() as patch:
        patch.setattr(aiohttp.web.WebSocketResponse, "prepare", too_late)
        with pytest.raises(aiohttp.WSServerHandshakeError, match="499"):
            await connections.http.ws_connect("/ws")
    assert [line for line in caplog.records if line.levelname == "ERROR"] == []


async def test_a_client_that_hangs_up_on_the_answer_to_its_ping_is_no_error(
    connections: ServerConnections, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = asyncio.Event()

    async def too_late(*_: object) -> None:
        tried.set()
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(aiohttp.web.WebSocketResponse, "pong", too_late)
    async with connections.http.ws_connect("/ws") as socket:
        await socket.ping()
        await tried.wait()
    async with connections.http.ws_connect(
        "/ws"
    ) as socket:  # the one before has ended by then, and its line is written
        await socket.send_json(send("echo hi", 1))
        assert (await socket.receive_json())["id"] == 1
    assert [line for line in caplog.records if line.levelname == "ERROR"] == []
