"""JSON-RPC over WebSocket: concurrent calls on one connection, invalid frames, disconnects."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import aiohttp
import aiohttp.web
import pytest
from tests.dialects.dialect_clients import ServerConnections

pytestmark = pytest.mark.long

WORKING = {"status": "TASK_STATE_WORKING"}


def send(text: str, id: Any, method: str = "SendMessage", **configuration: Any) -> dict[str, Any]:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": method,
        "params": {"message": message, "configuration": configuration},
    }


async def test_calls_on_one_connection_are_concurrent(connections: ServerConnections) -> None:
    async with connections.http.ws_connect("/ws") as socket:
        await socket.send_json(send("sleep 600", "slow"))
        await socket.send_json(send("stream 3", "stream", "SendStreamingMessage"))
        await socket.send_json(send("echo hi", "fast"))
        responses: list[dict[str, Any]] = []
        while not {"fast", "complete"} <= {response["id"] for response in responses}:
            responses.append(response := await socket.receive_json())
            if response["result"] == {"status": "stream_complete"}:
                response["id"] = "complete"
        running: list[Any] = []
        while not running:  # it may not have started yet
            await socket.send_json({"jsonrpc": "2.0", "id": "list", "method": "ListTasks", "params": WORKING})
            running = (await socket.receive_json())["result"]["tasks"]
        (task,) = running
        await socket.send_json({"jsonrpc": "2.0", "id": "cancel", "method": "CancelTask", "params": {"id": task["id"]}})
        slow = next(
            response for response in [await socket.receive_json() for _ in range(2)] if response["id"] == "slow"
        )
    assert slow["result"]["task"]["status"]["state"] == "TASK_STATE_CANCELED"
    streamed = [response["result"] for response in responses if response["id"] == "stream"]
    assert [event["artifactUpdate"]["artifact"]["parts"] for event in streamed if "artifactUpdate" in event] == [
        [{"text": f"chunk-{number} "}] for number in (1, 2, 3)
    ]


async def test_a_task_is_canceled_while_its_stream_is_open(connections: ServerConnections) -> None:
    async with connections.http.ws_connect("/ws") as socket:
        await socket.send_json(send("sleep 60", 1, "SendStreamingMessage"))
        first = await socket.receive_json()
        task = first["result"]["task"]["id"]
        await socket.send_json({"jsonrpc": "2.0", "id": 2, "method": "CancelTask", "params": {"id": task}})
        ends: set[int] = set()
        while ends != {1, 2}:
            response = await socket.receive_json()
            if response["id"] == 2:
                assert response["result"]["status"]["state"] == "TASK_STATE_CANCELED"
                ends.add(2)
            elif response["result"] == {"status": "stream_complete"}:
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
async def test_an_invalid_frame_gets_an_error_and_the_connection_stays_open(
    connections: ServerConnections, frame: str | bytes, code: int, id: int | str | None
) -> None:
    async with connections.http.ws_connect("/ws") as socket:
        await (socket.send_bytes(frame) if isinstance(frame, bytes) else socket.send_str(frame))
        response = await socket.receive_json()
        assert (response["error"]["code"], response["id"]) == (code, id)
        await socket.send_json(send("echo hi", 5))
        assert (await socket.receive_json())["id"] == 5


async def test_a_frame_over_the_limit_closes_the_connection(connections: ServerConnections) -> None:
    async with connections.http.ws_connect("/ws") as socket:
        with suppress(ConnectionError):  # the server may close before everything is sent
            await socket.send_str("x" * (24 * 1024 * 1024))
        closed = await socket.receive()
    assert closed.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
    assert socket.close_code in (aiohttp.WSCloseCode.MESSAGE_TOO_BIG, aiohttp.WSCloseCode.ABNORMAL_CLOSURE)


async def test_a_closed_connection_does_not_end_its_task(connections: ServerConnections) -> None:
    async with connections.http.ws_connect("/ws") as socket:
        await socket.send_json(send("stream 5 50", 1, "SendStreamingMessage"))
        task = (await socket.receive_json())["result"]["task"]["id"]
    async with connections.http.ws_connect("/ws") as socket, asyncio.timeout(60):
        await socket.send_json({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}})
        while (await socket.receive_json())["result"] != {"status": "stream_complete"}:
            pass
        await socket.send_json({"jsonrpc": "2.0", "id": 2, "method": "GetTask", "params": {"id": task}})
        assert (await socket.receive_json())["result"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_without_an_upgrade_the_error_names_websocket(connections: ServerConnections) -> None:
    async with connections.http.get("/ws") as response:
        assert response.status == 400
        assert "WebSocket" in (await response.json())["error"]["message"]


async def test_a_disconnect_during_the_handshake_is_not_logged_as_an_error(
    connections: ServerConnections, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_to_write(*_: object) -> None:
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    with monkeypatch.context() as patch:
        patch.setattr(aiohttp.web.WebSocketResponse, "prepare", fail_to_write)
        with pytest.raises(aiohttp.WSServerHandshakeError, match="499"):
            await connections.http.ws_connect("/ws")
    assert [line for line in caplog.records if line.levelname == "ERROR"] == []


async def test_a_disconnect_during_a_pong_is_not_logged_as_an_error(
    connections: ServerConnections, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempted = asyncio.Event()

    async def fail_to_write(*_: object) -> None:
        attempted.set()
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(aiohttp.web.WebSocketResponse, "pong", fail_to_write)
    async with connections.http.ws_connect("/ws") as socket:
        await socket.ping()
        await attempted.wait()
    # After this call the first connection has ended, and its log line is written.
    async with connections.http.ws_connect("/ws") as socket:
        await socket.send_json(send("echo hi", 1))
        assert (await socket.receive_json())["id"] == 1
    assert [line for line in caplog.records if line.levelname == "ERROR"] == []
