"""Causes of failures on a real server: operators see and group them, and no other caller receives them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web
from tests.bindings.admin.operators import (
    ALICE,
    BOB,
    OLGA,
    SCOPE,
    TENANT_OPERATOR,
    TENANT_VIEWER,
    VERA,
    Server,
    running_server,
)

from dragoman import AgentError, Turn, agent
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.a2a.v1 import a2a_pb2_grpc as v03_rpc
from dragoman_pb.dragoman.ops.v1 import bulk_pb2 as bulk
from dragoman_pb.dragoman.ops.v1 import failures_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2, steps_pb2
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

SECRET = "sheep-shearing"


async def shear(count: int) -> str:
    raise ValueError(f"{SECRET} of {count} sheep")


@agent(id="work", default=True)
async def work(turn: Turn) -> str:
    if turn.text.startswith("say"):
        raise AgentError("no grass left")
    if turn.text.startswith("fail"):
        await turn.step("shear", shear, len(turn.text))
    return "done"


class Receiver:
    """A webhook: its URL, and what it has got."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[str] = []
        self.got_last = asyncio.Event()

    async def receive(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.text())
        if "FAILED" in self.bodies[-1]:
            self.got_last.set()
        return web.Response()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    created, application = Receiver(), web.Application()
    application.router.add_post("/", created.receive)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    created.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    yield created
    await runner.cleanup()


@pytest.fixture(params=["sqlite", "postgres"])
async def server(request: pytest.FixtureRequest, tmp_path: Path, receiver: Receiver) -> AsyncIterator[Server]:
    in_sqlite = request.param == "sqlite"
    url: str = f"sqlite:///{tmp_path}/tasks.db" if in_sqlite else request.getfixturevalue("postgres_database")
    async with running_server(url, [work], outbound_allow="127.0.0.1") as running:
        yield running


async def failures(
    server: Server, caller: Mapping[str, str] = OLGA, limit: int = 0, **filters: Any
) -> ops.ListFailuresResponse:
    request = ops.ListFailuresRequest(filter=filters, limit=limit)
    response: ops.ListFailuresResponse = await server.ops.ListFailures(request, metadata=tuple(caller.items()))
    return response


async def test_operators_see_why_a_task_failed(server: Server) -> None:
    task = await server.send("fail")
    (listed,) = (await server.list()).tasks
    assert listed.failure_text == f"ValueError: {SECRET} of 4 sheep"
    explained = await server.ops.Explain(ops_pb2.ExplainRequest(task_id=task), metadata=tuple(OLGA.items()))
    (one,) = explained.tasks
    assert (one.failure.type, one.failure.text, one.failure.step) == ("ValueError", f"{SECRET} of 4 sheep", "shear")
    assert (one.failure.attempt, one.cause) == (1, listed.cause)
    assert [(Path(frame.file).name, frame.function) for frame in one.failure.frames] == [
        ("test_failures.py", "work"), ("test_failures.py", "shear"),
    ]  # fmt: skip
    assert one.failure.frames[-1].code == 'raise ValueError(f"{SECRET} of {count} sheep")'
    export = server.ops.ExportTask(ops_pb2.ExportTaskRequest(task_id=task), metadata=tuple(OLGA.items()))
    entries = [entry async for entry in export]
    assert [entry.failure for entry in entries if entry.HasField("failure")] == [one.failure]
    assert entries[-1].end.failures == 1
    assert [found.task.id for found in (await server.list(text=SECRET.upper())).tasks] == [task]


async def test_viewers_and_operators_of_other_scopes_see_no_failure(server: Server) -> None:
    task = await server.send("fail")
    (listed,) = (await server.list(VERA)).tasks
    assert (listed.failure_text, listed.cause) == ("", "")
    assert not (await server.list(VERA, text=SECRET)).tasks
    (group,) = (await failures(server)).groups
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await server.list(VERA, cause=group.cause)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    explained = await server.ops.Explain(ops_pb2.ExplainRequest(task_id=task), metadata=tuple(VERA.items()))
    assert SECRET not in str(explained)
    assert not explained.tasks[0].HasField("failure")
    steps = steps_pb2.ListStepsRequest(task_id=task)
    for caller, error in ((VERA, ""), (OLGA, f"ValueError: {SECRET} of 4 sheep")):
        (step,) = (await server.ops.ListSteps(steps, metadata=tuple(caller.items()))).steps
        assert (step.state, step.error) == (steps_pb2.TASK_STEP_STATE_FAILED, error)
    for caller in (VERA, TENANT_VIEWER, ALICE):
        with pytest.raises(grpc.aio.AioRpcError) as denied:
            await failures(server, caller)
        assert denied.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert not (await failures(server, TENANT_OPERATOR)).groups
    await server.send("fail", BOB, f"{SCOPE}/agents/work")
    assert [group.count for group in (await failures(server, TENANT_OPERATOR)).groups] == [1]
    assert [group.count for group in (await failures(server)).groups] == [2]


async def test_equal_failures_are_grouped_and_rerun_together(server: Server) -> None:
    for text in ("fail", "fail twice", "say no", "go"):
        await server.send(text)
    last = await server.send("fail again", BOB)
    response = await failures(server)
    assert [(group.agent, group.failure.type, group.count) for group in response.groups] == [
        ("work", "ValueError", 3), ("work", "AgentError", 1),
    ]  # fmt: skip
    first = response.groups[0]
    assert (first.task_id, first.failure.text, first.count_is_minimum) == (last, f"{SECRET} of 10 sheep", False)
    assert first.first.ToMilliseconds() <= first.last.ToMilliseconds()
    one = await failures(server, limit=1)
    assert (len(one.groups), one.more, response.more) == (1, True, False)
    listed = await server.list(cause=first.cause)
    assert (listed.total, {found.cause for found in listed.tasks}) == (3, {first.cause})
    rerun = bulk.RerunTasksRequest(filter={"cause": first.cause}, limit=2)
    done = await server.ops.RerunTasks(rerun, metadata=tuple(OLGA.items()))
    assert (done.matched, done.changed) == (2, 2)
    rerun.page_token = done.next_page_token
    done = await server.ops.RerunTasks(rerun, metadata=tuple(OLGA.items()))
    assert (done.matched, done.changed, done.next_page_token) == (1, 1, "")
    again, other = (await failures(server)).groups
    assert (again.cause, again.reruns.principal, again.reruns.count) == (first.cause, "olga", 3)
    assert again.reruns.last.ToMilliseconds() >= first.last.ToMilliseconds()
    assert not other.HasField("reruns")
    await server.send("fail", BOB, f"{SCOPE}/agents/work")
    (hidden,) = (await failures(server, TENANT_OPERATOR)).groups
    assert (hidden.cause, hidden.HasField("reruns")) == (first.cause, False)
    for repeat_steps, skipped in ((False, 3), (True, 0)):  # the reruns failed alike, and were not rerun themselves
        rerun = bulk.RerunTasksRequest(filter={"cause": first.cause}, limit=100, repeat_steps=repeat_steps)
        done = await server.ops.RerunTasks(rerun, metadata=tuple(OLGA.items()))
        assert (done.skipped, done.changed >= 3 - skipped) == (skipped, True)
    async with server.http.get("/operations/failures?filter.principal=bob", headers=OLGA) as answer:
        (group,) = (await answer.json())["groups"]
    assert (group["agent"], group["failure"]["type"]) == ("work", "ValueError")


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"own": True}, "filter.own"),
        ({"states": [pb.TASK_STATE_COMPLETED]}, "filter.states"),
        ({"text": "x" * 201}, "text"),
    ],
)
async def test_a_filter_that_cannot_be_grouped_is_rejected(tmp_path: Path, filters: dict[str, Any], field: str) -> None:
    async with running_server(f"sqlite:///{tmp_path}/tasks.db", [work]) as server:
        with pytest.raises(grpc.aio.AioRpcError) as rejected:
            await failures(server, **filters)
        assert rejected.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert field in str(rejected.value.details())


async def test_an_erased_failure_is_in_no_file(tmp_path: Path) -> None:
    async with running_server(f"sqlite:///{tmp_path}/tasks.db", [work]) as server:
        await server.send("fail")
        await server.list(text="shearing")  # the lists have it
        erase = bulk.EraseTasksRequest(filter={"principal": "alice"})
        await server.ops.EraseTasks(erase, metadata=tuple(OLGA.items()))
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


def whole(message: Any) -> str:
    """A message with the fields that its class does not know."""
    return f"{message}{message.SerializeToString().decode('latin-1')}"


async def test_no_caller_gets_the_text_of_an_exception(server: Server, receiver: Receiver) -> None:
    """Over every binding and version, in events, lists and webhooks."""
    seen: list[str] = []
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "fail"}]}
    old = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "fail"}]}
    push = {"taskPushNotificationConfig": {"url": receiver.url}}
    v1, v03 = {**ALICE, "A2A-Version": "1.0"}, {**ALICE, "A2A-Version": "0.3"}

    async def post(path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
        async with server.http.post(path, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            seen.append(await response.text())
        return seen[-1]

    def call(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    sent = json.loads(await post("/message:send", {"message": message, "configuration": push}, v1))
    task = sent["task"]["id"]
    await post("/message:stream", {"message": message}, v1)
    await post("/v1/message:send", {"message": {**message, "content": message["parts"]}}, v03)
    for method, params, headers in (
        ("SendMessage", {"message": message}, v1), ("SendStreamingMessage", {"message": message}, v1),
        ("GetTask", {"id": task}, v1), ("ListTasks", {}, v1),
        ("message/send", {"message": old}, v03), ("message/stream", {"message": old}, v03),
        ("tasks/get", {"id": task}, v03),
        ("tasks/send", {"id": "own", "message": {"role": "user", "parts": [{"type": "text", "text": "fail"}]}}, ALICE),
        ("tasks/get", {"id": "own"}, ALICE),
    ):  # fmt: skip
        await post("/", call(method, params), headers)
    for path in (
        f"/tasks/{task}",
        "/tasks",
        f"/v1/tasks/{task}",
        "/operations/tasks",
        f"/operations/tasks?taskId={task}",
    ):
        async with server.http.get(path, headers=v03 if path.startswith("/v1") else v1) as response:
            assert response.status == 200, path
            seen.append(await response.text())
    async with server.http.get(f"/operations/tasks?text={SECRET}", headers=v1) as response:
        assert response.status == 400  # not an oracle either
    async with server.http.ws_connect("/ws", headers=v1) as socket:
        await socket.send_json(call("GetTask", {"id": task}))
        seen.append(await socket.receive_str())
    tool = {"name": "work", "arguments": {"message": "fail"}}
    accepts = {**ALICE, "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    await post("/mcp", call("tools/call", tool), accepts)
    async with grpc.aio.insecure_channel(str(server.app.grpc)) as channel:
        new: Any = rpc.A2AServiceStub(channel)
        request = pb.SendMessageRequest(
            message=pb.Message(message_id="n", role=pb.ROLE_USER, parts=[pb.Part(text="fail")])
        )
        metadata = tuple(ALICE.items())
        seen += [whole(event) async for event in new.SendStreamingMessage(request, metadata=metadata)]
        seen.append(whole(await new.GetTask(pb.GetTaskRequest(id=task), metadata=metadata)))
        seen.append(whole(await new.ListTasks(pb.ListTasksRequest(), metadata=metadata)))
        earlier: Any = v03_rpc.A2AServiceStub(channel)
        seen.append(whole(await earlier.GetTask(v03_pb.GetTaskRequest(name=f"tasks/{task}"), metadata=metadata)))
    async with asyncio.timeout(30):
        await receiver.got_last.wait()
    assert sum("FAILED" in one or "failed" in one for one in (*seen, *receiver.bodies)) >= len(seen) - 2
    for text in (*seen, *receiver.bodies):
        assert SECRET not in text
        assert "ValueError" not in text
        assert "test_failures.py" not in text
    assert SECRET in str(await failures(server))
