"""Operators rerun ended tasks of all principals, through a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from tests.bindings.admin.operators import (
    BOB,
    OLGA,
    SCOPE,
    TENANT_OPERATOR,
    VERA,
    Server,
    running_server,
)

from dragoman import AgentError, Turn, agent
from dragoman_pb.dragoman.ops.v1 import ops_pb2, steps_pb2
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

LARGE: Final = bytes(range(256)) * 2000
"""More than a row holds: it is offloaded to a blob."""

REPAIRED: Final[set[str]] = set()
"""Texts that no longer fail."""
READ: Final[list[str]] = []
"""The calls of steps."""


@agent(id="work", default=True, input_modes=("text/plain", "application/octet-stream"))
async def work(turn: Turn) -> str:
    if turn.text == "ask":
        turn.ask("which sheep?")

    async def read(name: str) -> str:
        READ.append(name)
        if name == "second" and turn.text not in REPAIRED:
            raise AgentError("quota exceeded")
        return f"{name} page"

    pages = [await turn.step("read", read, "first"), await turn.step("read", read, "second")]
    files = [len(part.raw) for part in turn.message.parts if part.raw]
    return f"{', '.join(pages)} {files} {[one.id for one in turn.references]}"


@pytest.fixture(params=["sqlite", "postgres"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    in_sqlite = request.param == "sqlite"
    url: str = f"sqlite:///{tmp_path}/tasks.db" if in_sqlite else request.getfixturevalue("postgres_database")
    REPAIRED.clear()
    READ.clear()
    async with running_server(url, [work]) as running:
        yield running


def text_of(task: pb.Task) -> str:
    return task.artifacts[0].parts[0].text


async def test_a_rerun_is_a_new_task_that_keeps_the_finished_steps(server: Server) -> None:
    tenant = f"{SCOPE}/agents/work"
    failed = await server.get(await server.send("report", BOB, tenant), BOB, tenant)
    assert failed.status.state == pb.TASK_STATE_FAILED
    REPAIRED.add("report")
    listed = await server.rerun(failed.id)
    assert (listed.scope, listed.agent, listed.principal, listed.summary) == (SCOPE, "work", "bob", "report")
    assert listed.task.id != failed.id
    task = await server.ended(listed.task.id, BOB, tenant)
    assert (task.status.state, task.context_id) == (pb.TASK_STATE_COMPLETED, failed.context_id)
    assert text_of(task) == f"first page, second page [] ['{failed.id}']"
    assert READ == ["first", "second", "second"]
    message, first = task.history[0], failed.history[0]
    assert (message.parts, list(message.reference_task_ids)) == (first.parts, [failed.id])
    assert message.message_id != first.message_id
    assert (await server.get(failed.id, BOB, tenant)).status == failed.status


async def test_steps_are_repeated_on_request_and_for_a_completed_task(server: Server) -> None:
    failed = await server.send("report")
    REPAIRED.add("report")
    repeated = (await server.rerun(failed, repeat_steps=True)).task.id
    assert (await server.ended(repeated)).status.state == pb.TASK_STATE_COMPLETED
    assert READ == ["first", "second"] * 2
    again = (await server.rerun(repeated)).task.id
    assert text_of(await server.ended(again)).startswith("first page, second page")
    assert READ == ["first", "second"] * 3


async def test_steps_of_a_task_with_a_second_message_are_repeated(server: Server) -> None:
    waiting = await server.get(await server.send("ask"))
    await server.send("report", task_id=waiting.id)
    assert READ == ["first", "second"]
    again = (await server.rerun(waiting.id)).task.id
    task = await server.ended(again)
    assert (task.status.state, len(task.history)) == (pb.TASK_STATE_INPUT_REQUIRED, 1)
    steps = await server.ops.ListSteps(steps_pb2.ListStepsRequest(task_id=again), metadata=tuple(OLGA.items()))
    assert not steps.steps


async def test_files_and_metadata_of_the_first_message_come_along(server: Server) -> None:
    files = [pb.Part(raw=LARGE, media_type="application/octet-stream", filename="sheep.bin")]
    failed = await server.send("count", parts=files, metadata={"desk": 7})
    REPAIRED.add("count")
    task = await server.ended((await server.rerun(failed)).task.id)
    assert f"[{len(LARGE)}]" in text_of(task)
    assert task.history[0].parts[1].raw == LARGE
    assert await envelope_metadata(server, task.id) == {"desk": 7}


async def envelope_metadata(server: Server, task: str) -> dict[str, Any]:
    """The metadata of the request that created a task."""
    export = server.ops.ExportTask(ops_pb2.ExportTaskRequest(task_id=task), metadata=tuple(OLGA.items()))
    (first,) = [one.message async for one in export if one.HasField("message") and one.message.number == 1]
    return dict(first.metadata)


async def test_a_repeated_request_gets_the_same_task(server: Server) -> None:
    failed = await server.send("report")
    one, two = [(await server.rerun(failed, request_id="monday")).task.id for _ in range(2)]
    other = (await server.rerun(failed, request_id="tuesday")).task.id
    assert one == two
    assert len({failed, one, other, (await server.rerun(failed)).task.id}) == 4


async def test_only_operators_within_their_grants_rerun_tasks(server: Server) -> None:
    outside = await server.send("report")
    inside = await server.send("report", BOB, f"{SCOPE}/agents/work")
    denied = grpc.StatusCode.PERMISSION_DENIED
    for caller, task, code in (
        (VERA, inside, denied),
        (BOB, inside, denied),
        ({}, inside, grpc.StatusCode.UNAUTHENTICATED),
        (TENANT_OPERATOR, outside, grpc.StatusCode.NOT_FOUND),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.rerun(task, caller)
        assert caught.value.code() is code, caller
    assert (await server.rerun(inside, TENANT_OPERATOR)).scope == SCOPE


async def test_tasks_that_have_not_ended_are_refused(server: Server) -> None:
    waiting = await server.send("ask")
    cases: list[tuple[str, dict[str, Any], grpc.StatusCode, str]] = [
        (waiting, {}, grpc.StatusCode.FAILED_PRECONDITION, "the task is TASK_STATE_INPUT_REQUIRED"),
        ("none", {}, grpc.StatusCode.NOT_FOUND, "not found"),
        ("", {}, grpc.StatusCode.INVALID_ARGUMENT, "taskId: is required"),
        (waiting, {"request_id": "x" * 129}, grpc.StatusCode.INVALID_ARGUMENT, "requestId: must have at most 128"),
    ]
    for task, fields, code, text in cases:
        with pytest.raises(grpc.aio.AioRpcError, match=text) as caught:
            await server.rerun(task, **fields)
        assert caught.value.code() is code
    path = f"/operations/tasks/{waiting}:rerun"
    async with server.http.post(path, json={}, headers=OLGA) as response:
        assert response.status == 400
    await server.cancel(waiting)
    async with server.http.post(path, json={}, headers=OLGA) as response:
        again = (await response.json())["task"]["task"]["id"]
    assert (await server.ended(again)).status.state == pb.TASK_STATE_INPUT_REQUIRED


async def test_the_audit_log_names_the_operator_and_the_new_task(server: Server) -> None:
    failed = await server.send("report", BOB)
    again = (await server.rerun(failed)).task.id
    entries = [one for one in await server.audit() if "Export" not in one["action"]]
    assert [(one["action"], one["outcome"], one["who"]["principal"]) for one in entries] == [
        ("task.created", "ok", "bob"),
        ("operator.RerunTask", "begun", "olga"),
        ("task.created", "ok", "olga"),
        ("operator.RerunTask", "done", "olga"),
    ]
    assert entries[1]["who"]["request.taskId"] == failed
    assert entries[2]["who"]["task"] == entries[3]["who"]["created"] == again
    assert entries[1]["about"]["call"] == entries[3]["about"]["call"] != ""


async def test_quotas_of_the_principal_count(tmp_path: Path) -> None:
    async with running_server(f"sqlite:///{tmp_path}/tasks.db", [work], live_tasks=1) as server:
        failed = await server.send("report")
        waiting = await server.send("ask")
        with pytest.raises(grpc.aio.AioRpcError, match="live_tasks: 1 of your tasks") as caught:
            await server.rerun(failed)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await server.cancel(waiting)
        assert (await server.rerun(failed)).task.id
