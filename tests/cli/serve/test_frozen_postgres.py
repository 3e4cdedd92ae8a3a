"""A PostgreSQL that does not respond, under a server process: errors on every binding, readiness, and starts."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from tests.cli.server import Server, start
from tests.postgres import Server as Postgres

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc

pytestmark = pytest.mark.long

AGENTS = """
import asyncio
from pathlib import Path
from dragoman import Turn, agent

@agent(default=True)
async def echo(turn: Turn) -> str:
    return turn.text

@agent
async def slow(turn: Turn):
    for number in range(100):
        yield f"{number} "
        await asyncio.sleep(0.1)

@agent
async def waits(turn: Turn) -> str:
    await turn.flush()
    Path("began").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "done"
"""

ANSWER_TIMEOUT = 60.0
"""Seconds within which every call has to be answered, although the database answers nothing before the thaw: the
deadline of a statement is 5 s."""


@asynccontextmanager
async def served(own_postgres: Postgres, folder: Path, *options: str, ready: bool = True) -> AsyncIterator[Server]:
    (folder / "agents.py").write_text(AGENTS)
    arguments = ("agents.py", "--store", own_postgres.url(), *options)
    server = await asyncio.to_thread(start, *arguments, cwd=folder, ready=ready)
    try:
        yield server
    finally:
        server.process.kill()
        await asyncio.to_thread(server.ends)


async def readiness(http: aiohttp.ClientSession, server: Server) -> tuple[int, dict[str, Any]]:
    async with http.get(f"{server.http}/readyz") as response:
        return response.status, await response.json()


async def until_status(status: int, http: aiohttp.ClientSession, server: Server) -> None:
    """Returns when `/readyz` has this status."""
    async with asyncio.timeout(ANSWER_TIMEOUT):
        while (await readiness(http, server))[0] != status:  # noqa: ASYNC110 - another process's state
            await asyncio.sleep(0.02)


def message(text: str) -> dict[str, Any]:
    return {"message": {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}}


class Calls:
    """The same calls over each binding. Each returns the seconds until retry that the error names."""

    def __init__(self, http: aiohttp.ClientSession, channel: grpc.aio.Channel, server: Server) -> None:
        self._http = http
        self._stub = a2a_pb2_grpc.A2AServiceStub(channel)
        self._url = server.http

    async def rest_send(self) -> float:
        async with self._http.post(f"{self._url}/message:send", json=message("rest")) as response:
            return await self._rest_delay(response)

    async def rest_list(self) -> float:
        async with self._http.get(f"{self._url}/tasks") as response:
            return await self._rest_delay(response)

    async def _rest_delay(self, response: aiohttp.ClientResponse) -> float:
        body = await response.json()
        assert (response.status, body["error"]["status"]) == (503, "UNAVAILABLE"), body
        return float(response.headers["Retry-After"])

    async def jsonrpc_send(self) -> float:
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("rpc")}
        async with self._http.post(f"{self._url}/", json=call, headers={"A2A-Version": "1.0"}) as response:
            self._check_jsonrpc(body := await response.json())
            assert body["error"]["data"][1]["retryDelay"] == "1s"
            return float(response.headers["Retry-After"])

    async def websocket_send(self) -> float:
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("ws")}
        async with self._http.ws_connect(f"{self._url}/ws", headers={"A2A-Version": "1.0"}) as socket:
            await socket.send_json(call)
            self._check_jsonrpc(body := await socket.receive_json())
            return float(body["error"]["data"][1]["retryDelay"].rstrip("s"))

    def _check_jsonrpc(self, body: dict[str, Any]) -> None:
        assert (body["error"]["code"], body["error"]["data"][0]["reason"]) == (-32603, "UNAVAILABLE"), body

    async def grpc_send(self) -> float:
        sent = pb.Message(message_id="g", role=pb.ROLE_USER, parts=[pb.Part(text="grpc")])
        return await self._grpc_delay(self._stub.SendMessage(pb.SendMessageRequest(message=sent), timeout=30))

    async def grpc_list(self) -> float:
        return await self._grpc_delay(self._stub.ListTasks(pb.ListTasksRequest(), timeout=30))

    async def _grpc_delay(self, call: Awaitable[Any]) -> float:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE, caught.value
        metadata = dict([*(caught.value.trailing_metadata() or ())])
        retry = error_details_pb2.RetryInfo()
        for detail in status_pb2.Status.FromString(metadata["grpc-status-details-bin"]).details:
            detail.Unpack(retry)
        return float(retry.retry_delay.ToMilliseconds() / 1000)


async def delays(calls: Iterable[Callable[[], Awaitable[float]]]) -> set[float]:
    """What the errors of these calls say, made at the same time."""
    async with asyncio.timeout(ANSWER_TIMEOUT):
        return set(await asyncio.gather(*(call() for call in calls)))


async def test_a_frozen_database_is_an_error_on_every_binding(own_postgres: Postgres, tmp_path: Path) -> None:
    async with (
        served(own_postgres, tmp_path) as server,
        aiohttp.ClientSession() as http,
        grpc.aio.insecure_channel(server.grpc) as channel,
    ):
        calls = Calls(http, channel, server)
        health = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(service="lf.a2a.v1.A2AService"))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        follow = await http.post(f"{server.http}/slow/message:stream", json=message("follow"))
        assert b"data:" in await follow.content.readline() + await follow.content.readline()

        own_postgres.freeze()
        waiting = asyncio.create_task(until_status(503, http, server))
        every = (
            calls.rest_send,
            calls.rest_list,
            calls.jsonrpc_send,
            calls.websocket_send,
            calls.grpc_send,
            calls.grpc_list,
        )
        assert await delays(every * 2) == {1}
        await waiting
        body = (await readiness(http, server))[1]
        assert body["status"] == "not ready"
        assert body["reason"].startswith("store: the session was not renewed for ")
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await delays(every) == {1}  # on new connections

        own_postgres.thaw()
        await until_status(200, http, server)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        async with http.post(f"{server.http}/message:send", json=message("again")) as response:
            assert (await response.json())["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        # The stream that was open waits for the store, and misses nothing of its turn. That ended with the
        # lease of the process: the database was away for longer.
        text = (await follow.text()).replace("\\n", "")
        numbers = [int(number) for number in re.findall(r'"(\d+) "', text)]
        assert numbers
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert "INTERRUPTED" in text


async def test_a_blocking_send_whose_turn_cannot_be_written_is_answered(own_postgres: Postgres, tmp_path: Path) -> None:
    async with served(own_postgres, tmp_path) as server, aiohttp.ClientSession() as http:
        sending = asyncio.create_task(http.post(f"{server.http}/waits/message:send", json=message("x")))
        while not (tmp_path / "began").exists():
            assert not sending.done()
            await asyncio.sleep(0.02)
        own_postgres.freeze()
        (tmp_path / "go").touch()
        async with asyncio.timeout(ANSWER_TIMEOUT), await sending as response:
            task = (await response.json())["task"]
        assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
        own_postgres.thaw()
        await until_status(200, http, server)
        while task["status"]["state"] != "TASK_STATE_COMPLETED":
            async with http.get(f"{server.http}/waits/tasks/{task['id']}") as response:
                task = await response.json()
        assert [part["text"] for artifact in task["artifacts"] for part in artifact["parts"]] == ["done"]


async def test_a_start_waits_for_the_database(own_postgres: Postgres, tmp_path: Path) -> None:
    own_postgres.stop()
    async with served(own_postgres, tmp_path, ready=False) as server:
        line = json.loads(await asyncio.to_thread(server.err.until, "waits for PostgreSQL"))
        assert f"127.0.0.1:{own_postgres.port}" in line["message"]
        await asyncio.to_thread(own_postgres.start)
        await asyncio.to_thread(server.err.until, "responds; the start continues")
        await asyncio.to_thread(server.await_ready)
        assert sum("waits for PostgreSQL" in seen for seen in server.err.seen) == 1
