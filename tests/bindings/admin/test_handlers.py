"""Operator calls over HTTP: the responses of gRPC, for operators only, and not for pages of other origins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import orjson
import pytest
from google.protobuf import text_format
from pydantic import SecretStr

from dragoman import Turn, agent
from dragoman.bindings.admin.endpoints import OPS_PROTOJSON
from dragoman.settings.settings import Address, Settings
from dragoman.wire.dialects import json_proto
from dragoman.wire.json import protojson
from dragoman.wiring.app import App, open_app
from dragoman_pb.dragoman.ops.v1 import events_pb2, push_pb2
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as rpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@agent(id="teller", default=True)
async def stream_agent(turn: Turn) -> AsyncIterator[object]:
    yield "one "
    yield "two"
    yield b"three"


@asynccontextmanager
async def serve(
    tmp_path: Path, token: str = "", cors: tuple[str, ...] = ()
) -> AsyncIterator[tuple[App, aiohttp.ClientSession]]:
    anywhere = Address("127.0.0.1", 0)
    store = f"sqlite:///{tmp_path}/t.db"
    settings = Settings(http=anywhere, grpc=anywhere, store=store, token=SecretStr(token), cors=cors)
    async with open_app(settings, [stream_agent]) as app, aiohttp.ClientSession(f"http://{app.http}") as http:
        yield app, http


async def run_task(http: aiohttp.ClientSession, headers: dict[str, str] | None = None) -> str:
    """Runs a task to its end and returns its id."""
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}}
    async with http.post("/message:send", json=body, headers=headers) as response:
        return str((await response.json())["task"]["id"])


async def get_json(http: aiohttp.ClientSession, path: str, **more: Any) -> tuple[int, Any]:
    async with http.get(path, **more) as response:
        return response.status, await response.json()


async def test_http_responses_equal_those_of_grpc(tmp_path: Path) -> None:
    async with serve(tmp_path) as (app, http), grpc.aio.insecure_channel(str(app.grpc)) as channel:
        task, stub = await run_task(http), rpc.OpsServiceStub(channel)
        for path, expected in (
            ("/operations/agents", await stub.ListAgents(ops.ListAgentsRequest())),
            (f"/operations/tasks/{task}:explain", await stub.Explain(ops.ExplainRequest(task_id=task))),
            ("/operations/pushes", await stub.ListPushConfigs(push_pb2.ListPushConfigsRequest())),
            (
                f"/operations/tasks/{task}/events?after=1&limit=2",
                await stub.ListEvents(events_pb2.ListEventsRequest(task_id=task, after=1, limit=2)),
            ),
        ):
            status, body = await get_json(http, path)
            assert status == 200
            if isinstance(expected, ops.ListAgentsResponse):
                expected.agents[0].card_url = body["agents"][0]["cardUrl"]
            assert protojson.compile(type(expected), OPS_PROTOJSON).decode(body) == expected


async def test_events_are_encoded_in_every_dialect(tmp_path: Path) -> None:
    async with serve(tmp_path) as (_, http):
        task = await run_task(http)
        status, log = await get_json(http, f"/operations/tasks/{task}/events", params={"limit": 100})
        assert "history" not in log
        _, page = await get_json(http, f"/operations/tasks/{task}/events?limit=1&includeHistory=true")
        assert [message["role"] for message in page["history"]][:1] == ["ROLE_USER"]
        assert (status, log["oldest"], log["last"]) == (200, 1, len(log["events"]))
        async with http.get(f"/tasks/{task}:subscribe", headers={"Last-Event-ID": "0"}) as stream:
            lines = (await stream.text()).splitlines()
        streamed = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        older = {}
        for version in ("0.3", "0.1"):
            body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/resubscribe", "params": {"id": task}}
            async with http.post("/", json=body, headers={"Last-Event-ID": "0", "A2A-Version": version}) as stream:
                lines = (await stream.text()).splitlines()
            responses = [orjson.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
            older[version] = [one["result"] for one in responses]
        # Also one at a time: the name of an artifact in 0.1 depends on the artifacts before it.
        single_events = []
        for after in range(log["last"]):
            _, page = await get_json(http, f"/operations/tasks/{task}/events", params={"after": after, "limit": 1})
            single_events += page["events"]
    events = log["events"]
    assert [event["v1Json"] for event in events] == streamed
    assert [orjson.loads(event["v03Json"]) for event in events] == older["0.3"]
    for event in events:
        stored = text_format.Parse(event["text"], pb.StreamResponse())
        assert stored == protojson.compile(pb.StreamResponse, json_proto.PROTOJSON_V1).decode(
            orjson.loads(event["v1Json"])
        )
        assert ("time" in event) == bool(stored.task.id or stored.status_update.task_id)
    assert [orjson.loads(text) for event in events for text in event["v01Json"]] == older["0.1"]
    assert [update["artifact"]["index"] for update in older["0.1"] if "artifact" in update] == [0, 0, 1]
    assert single_events == events


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("/operations/tasks/none/events", 404, None),
        ("/operations/tasks/none:explain", 404, None),
        ("/operations/tasks/none/pushes", 404, None),
        ("/operations/tasks/x/events?limit=101", 400, "limit"),
        ("/operations/tasks/x/events?after=-1", 400, "after"),
        ("/operations/pushes?limit=1001", 400, "limit"),
        ("/operations/nothing", 404, None),
    ],
)
async def test_errors_name_the_invalid_field(tmp_path: Path, path: str, status: int, field: str | None) -> None:
    async with serve(tmp_path) as (_, http):
        response_status, body = await get_json(http, path)
    assert response_status == status
    violations = [one for detail in body["error"]["details"] for one in detail.get("fieldViolations", [])]
    assert [one["field"] for one in violations] == ([field] if field else [])


async def test_redelivery_needs_a_task_with_webhooks(tmp_path: Path) -> None:
    async with serve(tmp_path) as (_, http):
        path = f"/operations/tasks/{await run_task(http)}:redeliver"
        for body, status in (({}, 404), ({"from": 0}, 400), ({"from": 99}, 400), ({"from": "x"}, 400)):
            async with http.post(path, json=body) as response:
                assert response.status == status, await response.text()
        async with http.get(path) as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://other.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "rebound.example"}, 403),
        ({"Host": "rebound.example", "Origin": "http://rebound.example"}, 403),
        ({"Host": "[nonsense"}, 400),
        ({"Host": "192.168.1.7"}, 403),
        ({"Host": "tasks.internal"}, 403),
        ({"Origin": "http://[nonsense"}, 403),
        ({"X-Forwarded-For": "10.0.0.1"}, 401),
    ],
)
async def test_without_authentication_only_local_same_origin_requests_are_allowed(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async with serve(tmp_path) as (app, http):
        for own in ({}, {"Origin": f"http://{app.http}"}, {"Host": f"localhost:{app.http.port}"}):
            assert (await get_json(http, "/operations/agents", headers=own))[0] == 200
        response_status, body = await get_json(http, "/operations/agents", headers=headers)
    reason = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}[status]
    assert (response_status, body["error"]["status"]) == (status, reason)


async def test_cors_origins_are_not_operators(tmp_path: Path) -> None:
    async with serve(tmp_path, cors=("https://app.example",)) as (_, http):
        for path, status in (("/tasks", 200), ("/operations/agents", 401), ("/metrics", 401)):
            assert (await get_json(http, path, headers={"Origin": "https://app.example"}))[0] == status, path


@pytest.mark.parametrize(("header", "status"), [(None, 401), ("Bearer wrong", 401), ("Bearer secret", 200)])
async def test_with_authentication_operators_may_call_from_any_machine(
    tmp_path: Path, header: str | None, status: int
) -> None:
    headers = {"Host": "console.example", **({"Authorization": header} if header else {})}
    async with serve(tmp_path, "secret") as (_, http):
        task = await run_task(http, {"Authorization": "Bearer secret"})
        for path in ("/operations/agents", f"/operations/tasks/{task}:explain", f"/operations/tasks/{task}/events"):
            assert (await get_json(http, path, headers=headers))[0] == status
