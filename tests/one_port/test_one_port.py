"""Behind one port, everything is as it is at two: deploy/one-port, each file in front of a real server.

Programs that the machine does not have are Debian's, unpacked (programs.py); where there is none to be had, the tests
of it are skipped and say why.
"""

from __future__ import annotations

import asyncio
import io
import json
import socket
import ssl
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import pytest
import pytest_asyncio
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]
from tests.cli.server import Server, serving
from tests.one_port.proxies import FILES, Port, configured, proxy

from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc
from tools.environments import NotCreated

WAIT_TIMEOUT: Final = 60.0
MEGABYTES: Final = 5

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with serving("--trusted-proxies", "127.0.0.1,::1", cwd=folder) as server:
        yield server


@pytest.fixture(scope="module", params=["caddy", "nginx", "haproxy", "envoy"])
def port(request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    http = server.http.removeprefix("http://")
    started: AbstractContextManager[Port]
    started = proxy(request.param, tmp_path_factory.mktemp(request.param), grpc=server.grpc, http=http)
    try:
        port = started.__enter__()
    except NotCreated as error:
        pytest.skip(f"{request.param} cannot be had: {error}")
    try:
        yield port
    finally:
        started.__exit__(None, None, None)


@pytest_asyncio.fixture
async def stub(port: Port) -> AsyncIterator[Any]:
    async with grpc.aio.secure_channel(
        f"localhost:{port.port}",
        grpc.ssl_channel_credentials(port.ca.read_bytes()),
        options=[("grpc.max_receive_message_length", 32 * 1024 * 1024)],
    ) as channel:
        yield rpc.A2AServiceStub(channel)


@pytest_asyncio.fixture
async def web(port: Port) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cafile=str(port.ca))
    opened: list[socket.socket] = []

    def opening(where: Any) -> socket.socket:
        opened.append(socket.socket(*where[:3]))
        return opened[-1]

    async with aiohttp.ClientSession(
        f"https://localhost:{port.port}",
        connector=aiohttp.TCPConnector(ssl=context, socket_factory=opening),
        timeout=aiohttp.ClientTimeout(total=None, sock_read=WAIT_TIMEOUT),
    ) as session:
        yield session
    # The end of TLS is said by both sides; a loop that is closed before leaves a socket behind.
    async with asyncio.timeout(WAIT_TIMEOUT):
        while any(one.fileno() >= 0 for one in opened):  # noqa: ASYNC110 — nobody says when
            await asyncio.sleep(0.01)


def send_request(text: str, *, at_once: bool = False) -> pb.SendMessageRequest:
    request = pb.SendMessageRequest(message={"message_id": "m", "role": "ROLE_USER", "parts": [{"text": text}]})
    request.configuration.return_immediately = at_once
    return request


def in_json(text: str) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}}


def call(method: str, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": in_json(text)}


def open_streams(server: Server) -> int:
    """Those that the server has, by its own account."""
    with urllib.request.urlopen(f"{server.http}/metrics", timeout=WAIT_TIMEOUT) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith("dragoman_open_streams{"))


async def no_stream_is_left(server: Server) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT):
        while await asyncio.to_thread(open_streams, server):  # noqa: ASYNC110 — another process counts them
            await asyncio.sleep(0.05)


async def test_grpc_calls_and_large_messages(stub: Any) -> None:
    answer = await stub.SendMessage(send_request("echo hello"))
    assert answer.task.artifacts[0].parts[0].text == "hello"
    text = "x" * (MEGABYTES * 1024 * 1024)
    answer = await stub.SendMessage(send_request(f"echo {text}"))
    assert answer.task.artifacts[0].parts[0].text == text
    for _ in range(100):  # an answer that is nothing but an error: Caddy may cut it in two, now and then
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetTask(pb.GetTaskRequest(id="none"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert "grpc-status-details-bin" in dict(caught.value.trailing_metadata() or ())


async def test_a_grpc_stream_comes_as_it_is_told_and_a_cancel_ends_it(stub: Any, server: Server) -> None:
    """The stream would go on for minutes: what is here before the cancel was not held back."""
    chunks, task, state = 0, "", 0
    async with asyncio.timeout(WAIT_TIMEOUT):
        async for event in stub.SendStreamingMessage(send_request("stream 300 1000")):
            task = task or event.task.id
            chunks += event.HasField("artifact_update")
            if chunks == 1 and event.HasField("artifact_update"):
                await stub.CancelTask(pb.CancelTaskRequest(id=task))
            if event.HasField("status_update"):
                state = event.status_update.status.state
    assert (chunks > 0, state) == (True, states.CANCELED)
    await no_stream_is_left(server)


async def test_a_deadline_and_a_client_that_goes_reach_the_server(stub: Any, server: Server) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in stub.SendStreamingMessage(send_request("stream 300 1000"), timeout=2):
            pass
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    stream = stub.SendStreamingMessage(send_request("stream 300 1000"))
    task = (await anext(aiter(stream))).task.id
    stream.cancel()
    await no_stream_is_left(server)
    # what runs is the task's, and not the call's
    assert (await stub.GetTask(pb.GetTaskRequest(id=task))).status.state == states.WORKING
    await stub.CancelTask(pb.CancelTaskRequest(id=task))


async def test_both_directions_at_once(port: Port) -> None:
    """What workers need: an answer to each frame while the stream of frames goes on."""
    async with grpc.aio.secure_channel(
        f"localhost:{port.port}", grpc.ssl_channel_credentials(port.ca.read_bytes())
    ) as channel:
        line = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        async with asyncio.timeout(WAIT_TIMEOUT):
            for _ in range(3):
                await line.write(reflection_pb2.ServerReflectionRequest(list_services=""))
                answer = await line.read()
                assert "lf.a2a.v1.A2AService" in {s.name for s in answer.list_services_response.service}
            await line.done_writing()
            assert await line.read() is grpc.aio.EOF


async def test_rest_and_events_that_come_as_they_are_told(web: aiohttp.ClientSession, server: Server) -> None:
    async with web.post("/message:send", json=in_json("echo hello")) as answer:
        assert (await answer.json())["task"]["artifacts"][0]["parts"][0]["text"] == "hello"
    task, chunks, state = "", 0, ""
    async with asyncio.timeout(WAIT_TIMEOUT), web.post("/message:stream", json=in_json("stream 300 1000")) as answer:
        assert answer.content_type == "text/event-stream"
        async for line in answer.content:
            if not line.startswith(b"data: "):
                continue
            event = json.loads(line[6:])
            task = task or event["task"]["id"]
            chunks += "artifactUpdate" in event
            if chunks == 1 and "artifactUpdate" in event:
                async with web.post(f"/tasks/{task}:cancel", json={}) as canceled:
                    assert canceled.status == 200
            state = event.get("statusUpdate", {}).get("status", {}).get("state", state)
    assert (chunks > 0, state) == (True, "TASK_STATE_CANCELED")
    await no_stream_is_left(server)


async def test_a_reader_of_events_that_goes_is_gone_at_the_server(web: aiohttp.ClientSession, server: Server) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT):
        answer = await web.post("/message:stream", json=in_json("stream 300 1000"))
        task = json.loads((await answer.content.readline()).partition(b"data: ")[2] or b"null")
        while not task:
            task = json.loads((await answer.content.readline()).partition(b"data: ")[2] or b"null")
        answer.close()
    await no_stream_is_left(server)
    async with web.post(f"/tasks/{task['task']['id']}:cancel", json={}) as canceled:
        assert canceled.status == 200


async def test_jsonrpc_large_bodies_and_streams(web: aiohttp.ClientSession) -> None:
    text = "x" * (MEGABYTES * 1024 * 1024)
    body = io.BytesIO(json.dumps(call("SendMessage", f"echo {text}")).encode())
    async with web.post("/", data=body, headers={"Content-Type": "application/json"}) as answer:
        value = await answer.json()
    assert value["result"]["task"]["artifacts"][0]["parts"][0]["text"] == text
    async with web.post("/", json=call("SendStreamingMessage", "stream 3 10")) as answer:
        assert answer.content_type == "text/event-stream"
        assert (await answer.read()).count(b"chunk-") == 3


async def test_calls_over_a_websocket(web: aiohttp.ClientSession, server: Server) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT), web.ws_connect("/ws") as line:
        await line.send_json(call("SendMessage", "echo hello"))
        value = await line.receive_json()
        assert value["result"]["task"]["artifacts"][0]["parts"][0]["text"] == "hello"
        await line.send_json(call("SendStreamingMessage", "stream 300 1000"))
        task = (await line.receive_json())["result"]["task"]["id"]
        while "artifactUpdate" not in (await line.receive_json())["result"]:
            pass
        await line.send_json({"jsonrpc": "2.0", "id": 2, "method": "CancelTask", "params": {"id": task}})
        seen = ""
        while "TASK_STATE_CANCELED" not in seen:
            seen += json.dumps(await line.receive_json())
    await no_stream_is_left(server)


async def test_a_page_of_the_one_port_may_call_and_no_other(web: aiohttp.ClientSession, port: Port) -> None:
    """Also a browser that sends no Sec-Fetch-Site: the proxy leaves enough of the address to compare."""
    own, other = f"https://localhost:{port.port}", "https://elsewhere.example"
    for origin, status in ((own, 200), (other, 403)):
        for path, body in (("/message:send", in_json("echo hello")), ("/", call("SendMessage", "echo hello"))):
            async with web.post(path, json=body, headers={"Origin": origin}) as answer:
                assert answer.status == status
    async with web.ws_connect("/ws", headers={"Origin": own}) as line:
        await line.send_json(call("SendMessage", "echo hello"))
        assert (await line.receive_json())["id"] == 1
    with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        await web.ws_connect("/ws", headers={"Origin": other})


async def test_the_card_says_the_address_of_the_one_port(web: aiohttp.ClientSession, port: Port) -> None:
    async with web.get("/.well-known/agent-card.json") as answer:
        card = await answer.json()
    assert f"https://localhost:{port.port}" in {entry["url"].rstrip("/") for entry in card["supportedInterfaces"]}


def test_no_file_is_left_out(tmp_path: Path) -> None:
    """Each address that a file names was replaced: no proxy of a test knocks at somebody's server."""
    assert {path.name for path in FILES.iterdir()} == {"Caddyfile", "nginx.conf", "haproxy.cfg", "envoy.yaml"}
    for name in ("caddy", "nginx", "haproxy", "envoy"):
        text = configured(name, tmp_path, port=1, grpc="127.0.0.9:2", http="127.0.0.9:3").read_text("utf-8")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        for old in ("443", "50051", "8080", "/etc/"):
            assert not any(old in line for line in lines), (name, old)
