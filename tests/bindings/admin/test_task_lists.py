"""Operators and viewers list and cancel the tasks of all principals, through a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
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
from dragoman.bindings.admin.fields import allowed_names
from dragoman.core.access.identity import Identity
from dragoman.core.errors import PermissionDenied
from dragoman_pb.dragoman.ops.v1 import ops_pb2
from dragoman_pb.dragoman.ops.v1 import tasks_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long


@agent(id="work", default=True)
async def work(turn: Turn) -> str:
    if turn.text.startswith("fail"):
        raise AgentError("no sheep left")
    if turn.text.startswith("ask"):
        turn.ask("which sheep?")
    if turn.text.startswith("wait"):
        turn.status("counting")
        await asyncio.Event().wait()
    turn.metadata["ticket"] = turn.text
    turn.usage(tokens=7, cost=0.5)
    return "done"


@pytest.fixture(params=["sqlite", "postgres"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    in_sqlite = request.param == "sqlite"
    url: str = f"sqlite:///{tmp_path}/tasks.db" if in_sqlite else request.getfixturevalue("postgres_database")
    async with running_server(url, [work]) as running:
        yield running


def ids(response: ops.ListTasksResponse) -> list[str]:
    return [one.task.id for one in response.tasks]


async def test_operators_and_viewers_see_the_tasks_of_all_principals(server: Server) -> None:
    done = await server.send("count the sheep")
    failed = await server.send("fail, please", BOB)
    waiting = await server.send("ask me", BOB, f"{SCOPE}/agents/work")
    for caller in (OLGA, VERA):
        listed = await server.list(caller)
        assert ids(listed) == [waiting, failed, done]
        assert (listed.total, list(listed.scopes), listed.next_page_token) == (3, ["default", SCOPE], "")
    question, error, result = listed.tasks
    assert (question.scope, question.agent, question.principal) == (SCOPE, "work", "bob")
    assert (question.summary, question.status_text) == ("ask me", "which sheep?")
    assert (error.principal, error.summary) == ("bob", "fail, please")
    assert "no sheep left" in error.status_text
    assert (result.summary, result.status_text, result.tokens, result.cost) == ("count the sheep", "", 7, 0.5)
    assert result.created.ToMilliseconds() <= result.task.status.timestamp.ToMilliseconds()
    assert not result.task.history
    assert not result.task.artifacts


async def test_each_watch_counts_as_a_stream_of_its_caller(tmp_path: Path) -> None:
    """It searches every second, and does not end."""
    async with running_server(f"sqlite:///{tmp_path}/tasks.db", [work], open_streams=1) as server, asyncio.timeout(60):
        for caller in (OLGA, ALICE):
            first = server.ops.WatchTasks(ops.WatchTasksRequest(), metadata=tuple(caller.items()))
            await first.read()
            second = server.ops.WatchTasks(ops.WatchTasksRequest(), metadata=tuple(caller.items()))
            assert await second.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            async with server.http.get("/operations/tasks:watch", headers=caller) as response:
                assert response.status == 429
                assert "open_streams: 1 of your streams" in await response.text()
            first.cancel()


async def test_the_calls_of_operators_count_against_their_rate(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    async with running_server(url, [work], requests_per_second=1) as server, asyncio.timeout(60):
        for caller in (OLGA, VERA, ALICE):
            calls = [server.list(caller) for _ in range(100)]  # far more than a slow machine allows meanwhile
            found = await asyncio.gather(*calls, return_exceptions=True)
            errors = [one for one in found if isinstance(one, grpc.aio.AioRpcError)]
            assert {error.code() for error in errors} == {grpc.StatusCode.RESOURCE_EXHAUSTED}


async def test_filters_select_among_all_tasks(server: Server) -> None:
    done = await server.send("count the sheep")
    failed = await server.send("fail, please", BOB)
    waiting = await server.send("ask me", BOB, f"{SCOPE}/agents/work")
    for filters, expected in (
        ({"principal": "bob"}, [waiting, failed]),
        ({"scope": SCOPE}, [waiting]),
        ({"agent": "none"}, []),
        ({"states": [pb.TASK_STATE_FAILED, pb.TASK_STATE_COMPLETED]}, [failed, done]),
        ({"state": pb.TASK_STATE_FAILED, "text": "NO SHEEP"}, [failed]),
        ({"text": "sheep"}, [waiting, failed, done]),
        ({"metadata": ["ticket=count the sheep"]}, [done]),
        ({"task_id": done}, [done]),
        ({"task_id": done, "principal": "bob"}, []),
        ({"order": ops.TASK_ORDER_CREATED}, [waiting, failed, done]),
    ):
        assert ids(await server.list(**filters)) == expected, filters
    first = await server.list(limit=2)
    assert ids(first) == [waiting, failed]
    assert ids(await server.list(limit=2, page_token=first.next_page_token)) == [done]


async def test_states_are_counted_on_the_first_page(server: Server) -> None:
    for text in ("count the sheep", "count the cows", "fail, please"):
        await server.send(text)
    await server.send("ask me", BOB, f"{SCOPE}/agents/work")
    first = await server.list(limit=1, states=[pb.TASK_STATE_COMPLETED], count_states=True)
    assert first.total == 2
    assert [one.state for one in first.state_counts] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not any(one.is_minimum for one in first.state_counts)
    assert numbers(first) == {"COMPLETED": 2, "FAILED": 1, "INPUT_REQUIRED": 1}
    token = first.next_page_token
    second = await server.list(states=[pb.TASK_STATE_COMPLETED], count_states=True, page_token=token)
    assert numbers(second) == {}
    assert numbers(await server.list()) == {}
    assert numbers(await server.list(principal="bob", count_states=True)) == {"INPUT_REQUIRED": 1}
    for caller in (TENANT_OPERATOR, TENANT_VIEWER):
        assert numbers(await server.list(caller, count_states=True)) == {"INPUT_REQUIRED": 1}
    async with server.http.get("/operations/tasks?countStates=true&text=cows", headers=VERA) as response:
        counts = (await response.json())["stateCounts"]
    assert [one for one in counts if "count" in one] == [{"state": "TASK_STATE_COMPLETED", "count": "1"}]


def numbers(response: ops.ListTasksResponse) -> dict[str, int]:
    """The states that have tasks, and how many."""
    names = {one.state: pb.TaskState.Name(one.state).removeprefix("TASK_STATE_") for one in response.state_counts}
    return {names[one.state]: one.count for one in response.state_counts if one.count}


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ({"metadata": ["ticket"]}, "metadata: must have the form KEY=VALUE"),
        ({"cause": "4f1c"}, "cause: must be the 16 digits that name a group of failures"),
        ({"metadata": ["a=b"] * 9}, "metadata: must have at most 8"),
        ({"text": "x" * 201}, "text: must have at most 200"),
        ({"states": [99]}, "state: must be one of"),
        ({"page_token": "abc"}, "pageToken: is not a token"),
        ({"own": True, "principal": "bob"}, "principal: is for operators"),
        ({"own": True, "count_states": True}, "countStates: is for operators"),
    ],
)
async def test_invalid_filters_are_rejected(tmp_path: Path, filters: dict[str, Any], text: str) -> None:
    async with running_server(f"sqlite:///{tmp_path}/tasks.db", [work]) as server:
        with pytest.raises(grpc.aio.AioRpcError, match=text) as caught:
            await server.list(**filters)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_callers_without_the_grant_may_not_search(tmp_path: Path) -> None:
    async with running_server(f"sqlite:///{tmp_path}/tasks.db", [work]) as server:
        await server.send("count", BOB)
        for filters in (
            {"principal": "bob"},
            {"text": "count"},
            {"count_states": True},
            {"changed_before": {"seconds": 4_000_000_000}},
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="is for operators and viewers"):
                await server.list(ALICE, **filters)
        assert ids(await server.list(ALICE)) == []


async def test_operators_of_a_scope_reach_its_tasks_only(server: Server) -> None:
    outside = await server.send("ask me")
    inside = await server.send("ask me", BOB, f"{SCOPE}/agents/work")
    for caller in (TENANT_OPERATOR, TENANT_VIEWER):
        listed = await server.list(caller)
        assert (ids(listed), listed.total, list(listed.scopes)) == ([inside], 1, [SCOPE])
        assert ids(await server.list(caller, task_id=outside)) == []
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.list(caller, scope="default")
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        metadata = tuple(caller.items())
        assert len((await server.ops.Explain(ops_pb2.ExplainRequest(task_id=inside), metadata=metadata)).tasks) == 1
        for call, request, code in (
            (server.ops.Explain, ops_pb2.ExplainRequest(task_id=outside), grpc.StatusCode.NOT_FOUND),
            (server.ops.Explain, ops_pb2.ExplainRequest(task_id=outside, scope="default"), _DENIED),
            (server.ops.ListKeys, ops_pb2.ListKeysRequest(), _DENIED),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(request, metadata=metadata)
            assert caught.value.code() is code, request
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.cancel(outside, TENANT_OPERATOR)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    purge = ops_pb2.PurgeRequest(selection=ops_pb2.Selection(task_id=outside))
    receipt = (await server.ops.Purge(purge, metadata=tuple(TENANT_OPERATOR.items()))).receipt
    assert receipt.tasks == 0
    assert (await server.cancel(inside, TENANT_OPERATOR)).task.status.state == pb.TASK_STATE_CANCELED
    assert (await server.get(outside)).status.state == pb.TASK_STATE_INPUT_REQUIRED


_DENIED: Final = grpc.StatusCode.PERMISSION_DENIED


async def test_an_operator_cancels_the_task_of_another_principal(server: Server) -> None:
    waiting, running, done = await server.send("ask me"), await server.send("wait"), await server.send("count")
    for caller, code in ((VERA, _DENIED), (BOB, _DENIED), ({}, grpc.StatusCode.UNAUTHENTICATED)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.cancel(waiting, caller)
        assert caught.value.code() is code
    listed = await server.cancel(waiting)
    assert (listed.scope, listed.agent, listed.principal, listed.summary) == ("default", "work", "alice", "ask me")
    assert (listed.task.id, listed.task.status.state) == (waiting, pb.TASK_STATE_CANCELED)
    async with server.http.post(f"/operations/tasks/{running}:cancel", json={}, headers=OLGA) as response:
        assert (await response.json())["task"]["task"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert (await server.get(running)).status.state == pb.TASK_STATE_CANCELED
    for task, names, expected in (
        (done, {}, grpc.StatusCode.FAILED_PRECONDITION),
        ("none", {}, grpc.StatusCode.NOT_FOUND),
        (done, {"principal": "bob"}, grpc.StatusCode.NOT_FOUND),
        ("", {}, grpc.StatusCode.INVALID_ARGUMENT),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.cancel(task, OLGA, **names)
        assert caught.value.code() is expected, task


async def test_searches_and_cancels_are_in_the_audit_log(server: Server) -> None:
    task = await server.send("ask me")
    await server.list(OLGA, text="ask")
    await server.list(OLGA, own=True)
    await server.list(ALICE)
    await server.cancel(task)
    entries = [one for one in await server.audit() if one["action"].startswith("operator.")]
    assert [
        (one["action"], one["outcome"], one["who"]["principal"]) for one in entries if "Export" not in one["action"]
    ] == [
        ("operator.ListTasks", "ok", "olga"),
        ("operator.CancelTask", "begun", "olga"),
        ("operator.CancelTask", "done", "olga"),
    ]
    assert entries[0]["who"]["request.text"] == "ask"
    assert entries[1]["who"]["request.taskId"] == task


def test_grants_limit_what_a_request_covers() -> None:
    assert allowed_names(Identity("a", frozenset(("operator",))), "scope:", frozenset()) == frozenset()
    limited = Identity("a", frozenset(("operator", "scope:s", "scope:t")))
    assert allowed_names(limited, "scope:", frozenset()) == {"s", "t"}
    assert allowed_names(limited, "scope:", frozenset({"s"})) == {"s"}
    with pytest.raises(PermissionDenied, match='do not include "scope:u"'):
        allowed_names(limited, "scope:", frozenset({"s", "u"}))


async def test_a_watched_list_follows_every_change_within_the_grants(server: Server) -> None:
    first = await server.send("ask me")
    watches = {
        name: server.ops.WatchTasks(ops.WatchTasksRequest(), metadata=tuple(caller.items()))
        for name, caller in (("viewer", VERA), ("tenant", TENANT_VIEWER), ("owner", ALICE), ("other", BOB))
    }
    lists = {name: ids((await watch.read()).list) for name, watch in watches.items()}
    assert lists == {"viewer": [first], "tenant": [], "owner": [first], "other": []}
    there = await server.send("fail", BOB, f"{SCOPE}/agents/work")
    for name, expected in (("viewer", [there, first]), ("tenant", [there]), ("other", [there])):
        assert ids((await watches[name].read()).list) == expected, name
    await server.cancel(first)
    for name in ("viewer", "owner"):
        listed = (await watches[name].read()).list
        assert {one.task.id: one.task.status.state for one in listed.tasks}[first] == pb.TASK_STATE_CANCELED, name
    for watch in watches.values():
        watch.cancel()


async def test_callers_watch_their_own_tasks_only(server: Server) -> None:
    request = ops.WatchTasksRequest(filter=ops.ListTasksRequest(text="sheep"))
    with pytest.raises(grpc.aio.AioRpcError, match="is for operators and viewers"):
        await server.ops.WatchTasks(request, metadata=tuple(ALICE.items())).read()
    await server.send("ask me")
    watch = server.ops.WatchTasks(ops.WatchTasksRequest(), metadata=tuple(ALICE.items()))
    assert len((await watch.read()).list.tasks) == 1
    watch.cancel()
    assert not [one for one in await server.audit() if one["action"] == "operator.WatchTasks"]
