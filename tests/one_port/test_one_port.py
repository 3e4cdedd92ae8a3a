"""The proxies of deploy/one-port in front of a real server: all bindings work on one port as on two.

The tests of a proxy whose program is not available are skipped with the reason.
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
from tests.eventually import eventually
from tests.one_port.proxies import FILES, Port, configured, proxy

from dragoman.core.task import states
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc
from tools.environments import NotCreated

WAIT_TIMEOUT: Final = 60.0
MEGABYTES: Final = 5
TOKEN: Final = "one-port-0123456789"
HEADERS: Final = {"Authorization": f"Bearer {TOKEN}"}


def credentials(port: Port, token: str = TOKEN) -> grpc.ChannelCredentials:
    encrypted = grpc.ssl_channel_credentials(port.ca.read_bytes())
    if not token:
        return encrypted
    return grpc.composite_channel_credentials(encrypted, grpc.access_token_call_credentials(token))


pytestmark = [pytest.mark.longest, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with serving("--trusted-proxies", "127.0.0.1,::1", "--token", TOKEN, cwd=folder) as server:
        yield server


@pytest.fixture(scope="module", params=["caddy", "nginx", "haproxy", "envoy"])
def port(request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    http = server.http.removeprefix("http://")
    running: AbstractContextManager[Port]
    running = proxy(request.param, tmp_path_factory.mktemp(request.param), grpc=server.grpc, http=http)
    try:
        port = running.__enter__()
    except NotCreated as error:
        pytest.skip(f"{request.param} is not available: {error}")
    try:
        yield port
    finally:
        running.__exit__(None, None, None)


@pytest_asyncio.fixture
async def stub(port: Port) -> AsyncIterator[Any]:
    async with grpc.aio.secure_channel(
        f"localhost:{port.port}",
        credentials(port),
        options=[("grpc.max_receive_message_length", 32 * 1024 * 1024)],
    ) as channel:
        yield rpc.A2AServiceStub(channel)


@pytest_asyncio.fixture
async def web(port: Port) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cafile=str(port.ca))
    sockets: list[socket.socket] = []

    def open_socket(address: Any) -> socket.socket:
        sockets.append(socket.socket(*address[:3]))
        return sockets[-1]

    async with aiohttp.ClientSession(
        f"https://localhost:{port.port}",
        headers=HEADERS,
        connector=aiohttp.TCPConnector(ssl=context, socket_factory=open_socket),
        timeout=aiohttp.ClientTimeout(total=None, sock_read=WAIT_TIMEOUT),
    ) as session:
        yield session
    # Both sides close TLS; a loop that is closed before that leaks the socket.
    await eventually(lambda: not any(each.fileno() >= 0 for each in sockets))


def send_request(text: str, *, return_immediately: bool = False) -> pb.SendMessageRequest:
    request = pb.SendMessageRequest(message={"message_id": "m", "role": "ROLE_USER", "parts": [{"text": text}]})
    request.configuration.return_immediately = return_immediately
    return request


def message_json(text: str) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}}


def call(method: str, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": message_json(text)}


def open_streams(server: Server) -> int:
    """Returns how many streams are open according to the server's metrics."""
    request = urllib.request.Request(f"{server.http}/metrics", headers=HEADERS)
    with urllib.request.urlopen(request, timeout=WAIT_TIMEOUT) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith("dragoman_open_streams{"))


async def wait_for_stream_end(server: Server) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT):
        while await asyncio.to_thread(open_streams, server):  # noqa: ASYNC110 — another process counts them
            await asyncio.sleep(0.05)


async def test_callers_without_credentials_are_rejected_on_both_ports(port: Port, web: aiohttp.ClientSession) -> None:
    async with grpc.aio.secure_channel(f"localhost:{port.port}", credentials(port, "")) as channel:
        for call in (
            rpc.A2AServiceStub(channel).GetTask(pb.GetTaskRequest(id="none")),
            ops_pb2_grpc.OpsServiceStub(channel).CreateKey(ops.CreateKeyRequest(name="x", grants=["operator"])),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    for path in ("/tasks", "/operations/agents"):
        async with web.get(path, headers={"Authorization": ""}) as answer:
            assert answer.status == 401


async def test_grpc_calls_and_large_messages(stub: Any) -> None:
    answer = await stub.SendMessage(send_request("echo hello"))
    assert answer.task.artifacts[0].parts[0].text == "hello"
    text = "x" * (MEGABYTES * 1024 * 1024)
    answer = await stub.SendMessage(send_request(f"echo {text}"))
    assert answer.task.artifacts[0].parts[0].text == text
    for _ in range(100):  # trailers-only responses, which Caddy sometimes splits
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetTask(pb.GetTaskRequest(id="none"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert "grpc-status-details-bin" in dict([*(caught.value.trailing_metadata() or ())])


async def test_a_grpc_stream_is_not_buffered_and_ends_with_a_cancel(stub: Any, server: Server) -> None:
    """The stream would take minutes, so chunks before the cancel show that nothing is buffered."""
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
    await wait_for_stream_end(server)


async def test_deadlines_and_disconnects_of_grpc_clients_reach_the_server(stub: Any, server: Server) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in stub.SendStreamingMessage(send_request("stream 300 1000"), timeout=2):
            pass
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    stream = stub.SendStreamingMessage(send_request("stream 300 1000"))
    task = (await anext(aiter(stream))).task.id
    stream.cancel()
    await wait_for_stream_end(server)
    # The run belongs to the task, not to the call.
    assert (await stub.GetTask(pb.GetTaskRequest(id=task))).status.state == states.WORKING
    await stub.CancelTask(pb.CancelTaskRequest(id=task))


async def test_bidirectional_streams(port: Port) -> None:
    """Workers need a response to each frame while the request stream is open."""
    async with grpc.aio.secure_channel(f"localhost:{port.port}", credentials(port)) as channel:
        stream = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        async with asyncio.timeout(WAIT_TIMEOUT):
            for _ in range(3):
                await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
                answer = await stream.read()
                assert "lf.a2a.v1.A2AService" in {s.name for s in answer.list_services_response.service}
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF


async def test_rest_calls_and_unbuffered_server_sent_events(web: aiohttp.ClientSession, server: Server) -> None:
    async with web.post("/message:send", json=message_json("echo hello")) as answer:
        assert (await answer.json())["task"]["artifacts"][0]["parts"][0]["text"] == "hello"
    task, chunks, state = "", 0, ""
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        web.post("/message:stream", json=message_json("stream 300 1000")) as answer,
    ):
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
    await wait_for_stream_end(server)


async def test_disconnects_of_sse_clients_reach_the_server(web: aiohttp.ClientSession, server: Server) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT):
        answer = await web.post("/message:stream", json=message_json("stream 300 1000"))
        task = json.loads((await answer.content.readline()).partition(b"data: ")[2] or b"null")
        while not task:
            task = json.loads((await answer.content.readline()).partition(b"data: ")[2] or b"null")
        answer.close()
    await wait_for_stream_end(server)
    async with web.post(f"/tasks/{task['task']['id']}:cancel", json={}) as canceled:
        assert canceled.status == 200


async def test_jsonrpc_large_bodies_and_streams(web: aiohttp.ClientSession) -> None:
    text = "x" * (MEGABYTES * 1024 * 1024)
    body = io.BytesIO(json.dumps(call("SendMessage", f"echo {text}")).encode())
    async with web.post("/", data=body, headers={"Content-Type": "application/json"}) as answer:
        response = await answer.json()
    assert response["result"]["task"]["artifacts"][0]["parts"][0]["text"] == text
    async with web.post("/", json=call("SendStreamingMessage", "stream 3 10")) as answer:
        assert answer.content_type == "text/event-stream"
        assert (await answer.read()).count(b"chunk-") == 3


async def test_calls_over_a_websocket(web: aiohttp.ClientSession, server: Server) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT), web.ws_connect("/ws") as socket:
        await socket.send_json(call("SendMessage", "echo hello"))
        response = await socket.receive_json()
        assert response["result"]["task"]["artifacts"][0]["parts"][0]["text"] == "hello"
        await socket.send_json(call("SendStreamingMessage", "stream 300 1000"))
        task = (await socket.receive_json())["result"]["task"]["id"]
        while "artifactUpdate" not in (await socket.receive_json())["result"]:
            pass
        await socket.send_json({"jsonrpc": "2.0", "id": 2, "method": "CancelTask", "params": {"id": task}})
        received = ""
        while "TASK_STATE_CANCELED" not in received:
            received += json.dumps(await socket.receive_json())
    await wait_for_stream_end(server)


async def test_only_pages_of_the_proxy_origin_may_call(web: aiohttp.ClientSession, port: Port) -> None:
    """Also without Sec-Fetch-Site: the proxy forwards enough of the address to compare with Origin."""
    own, other = f"https://localhost:{port.port}", "https://other.example"
    for origin, status in ((own, 200), (other, 403)):
        for path, body in (("/message:send", message_json("echo hello")), ("/", call("SendMessage", "echo hello"))):
            async with web.post(path, json=body, headers={"Origin": origin}) as answer:
                assert answer.status == status
    async with web.ws_connect("/ws", headers={"Origin": own}) as socket:
        await socket.send_json(call("SendMessage", "echo hello"))
        assert (await socket.receive_json())["id"] == 1
    with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        await web.ws_connect("/ws", headers={"Origin": other})


async def test_the_card_has_the_address_of_the_proxy(web: aiohttp.ClientSession, port: Port) -> None:
    async with web.get("/.well-known/agent-card.json") as answer:
        card = await answer.json()
    assert f"https://localhost:{port.port}" in {entry["url"].rstrip("/") for entry in card["supportedInterfaces"]}


def test_every_address_in_the_files_is_replaced(tmp_path: Path) -> None:
    """Otherwise a proxy of a test could call a real server."""
    assert {path.name for path in FILES.iterdir()} == {"Caddyfile", "nginx.conf", "haproxy.cfg", "envoy.yaml"}
    for name in ("caddy", "nginx", "haproxy", "envoy"):
        text = configured(name, tmp_path, port=1, grpc="127.0.0.9:2", http="127.0.0.9:3").read_text("utf-8")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        for old in ("443", "50051", "8080", "/etc/"):
            assert not any(old in line for line in lines), (name, old)
