"""Operators cancel, rerun and erase many tasks of all principals, through a real server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
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
    VERA,
    Server,
    running_server,
)

from dragoman import AgentError, Turn, agent
from dragoman.bindings.admin.task_changes import MAX_BULK_PAGE, OPEN_STATES
from dragoman.bindings.admin.task_lists import check_states
from dragoman.core.audit import AuditChainVerifier, parse_audit_line
from dragoman.core.errors import InvalidParams
from dragoman.core.task import states
from dragoman.core.task.cursors import TaskSearch
from dragoman_pb.dragoman.ops.v1 import bulk_pb2 as bulk
from dragoman_pb.dragoman.ops.v1 import ops_pb2
from dragoman_pb.dragoman.ops.v1 import tasks_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

FAILED, CANCELED, COMPLETED = pb.TASK_STATE_FAILED, pb.TASK_STATE_CANCELED, pb.TASK_STATE_COMPLETED
MANY: Final = 2000


@agent(id="work", default=True)
async def work(turn: Turn) -> str:
    match turn.text.partition(" ")[0]:
        case "quota" if not turn.references:
            raise AgentError("the quota is used up")
        case "fail":
            raise AgentError("no sheep left")
        case "ask":
            turn.ask("which sheep?")
        case "wait":
            turn.status("counting")
            await asyncio.Event().wait()
    return "done"


@agent(id="firm", cancelable=False)
async def firm(turn: Turn) -> str:
    turn.ask("really?")


@pytest.fixture(params=["sqlite", "postgres"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    in_sqlite = request.param == "sqlite"
    url: str = f"sqlite:///{tmp_path}/tasks.db" if in_sqlite else request.getfixturevalue("postgres_database")
    async with running_server(url, [work, firm]) as running:
        yield running


async def send_all(
    server: Server, texts: Sequence[str], caller: Mapping[str, str] = ALICE, tenant: str = ""
) -> list[str]:
    """Sends messages, 50 at a time, and returns the ids of their tasks."""
    slots = asyncio.Semaphore(50)

    async def send(text: str) -> str:
        async with slots:
            return await server.send(text, caller)

    return await asyncio.gather(*map(send, texts))


async def pages(call: Any, request: Any, caller: Mapping[str, str] = OLGA) -> list[Any]:
    """The responses to a request and to those for the pages after it."""
    responses = []
    while True:
        response = await call(request, metadata=tuple(caller.items()))
        responses.append(response)
        request.page_token = response.next_page_token
        if not request.page_token:
            return responses


async def verified_audit(server: Server, action: str) -> list[dict[str, str]]:
    """Verifies the chain of the audit log. Returns the personal data of the entries with this action."""
    verifier, found = AuditChainVerifier(), list[dict[str, str]]()
    stream = server.ops.ExportAudit(ops_pb2.ExportAuditRequest(), metadata=tuple(OLGA.items()))
    async for response in stream:
        for line in response.lines:
            record = parse_audit_line(line)
            verifier.verify(record)
            if record.entry.action == action:
                found.append(dict(record.entry.who))
    assert verifier.number > 0
    return found


async def all_tasks(server: Server, **filters: Any) -> list[ops.ListedTask]:
    """All tasks that match."""
    found = list[ops.ListedTask]()
    token = ""
    while True:
        listed = await server.list(limit=1000, page_token=token, **filters)
        found += listed.tasks
        token = listed.next_page_token
        if not token:
            return found


async def test_all_tasks_that_failed_for_one_reason_are_rerun_once(server: Server) -> None:
    failed = await send_all(server, [f"quota {number}" for number in range(130)], BOB)
    others = [await server.send("fail", BOB), await server.send("quota", ALICE), await server.send("count", BOB)]
    selected = ops.ListTasksRequest(principal="bob", text="quota", states=[FAILED], changed_since={"seconds": 1})
    dry = await server.ops.RerunTasks(bulk.RerunTasksRequest(filter=selected, dry_run=True), metadata=operator())
    assert (dry.matched, dry.matched_is_minimum, dry.changed, dry.next_page_token) == (130, False, 0, "")
    assert len(await all_tasks(server)) == 133
    request = bulk.RerunTasksRequest(filter=selected, request_id="monday")
    responses = await pages(server.ops.RerunTasks, request)
    assert [(one.matched, one.changed, one.skipped) for one in responses] == [(50, 50, 0), (50, 50, 0), (30, 30, 0)]
    entries = await verified_audit(server, "operator.RerunTask")
    assert sorted(one["request.taskId"] for one in entries) == sorted(failed)
    assert {(one["principal"], one["request.principal"], one["request.requestId"]) for one in entries} == {
        ("olga", "bob", "monday")
    }
    await asyncio.gather(*(server.ended(one["task"], BOB) for one in entries))
    listed = await all_tasks(server)
    assert Counter(one.task.status.state for one in listed) == {FAILED: 132, COMPLETED: 131}
    assert len({one.task.id for one in listed} - {*failed, *others}) == 130
    again = await pages(server.ops.RerunTasks, bulk.RerunTasksRequest(filter=selected, request_id="monday", limit=100))
    assert [(one.changed, one.skipped) for one in again] == [(0, 100), (0, 30)]
    assert len(await all_tasks(server)) == 263


def operator(caller: Mapping[str, str] = OLGA) -> tuple[tuple[str, str], ...]:
    return tuple(caller.items())


async def test_open_tasks_are_canceled_and_others_stay(server: Server) -> None:
    idle, running = await send_all(server, ["ask"] * 3), await send_all(server, ["wait"] * 3)
    done = await server.send("count")
    firm_task = await server.send("ask", ALICE, "firm")
    request = bulk.CancelTasksRequest(filter=ops.ListTasksRequest(principal="alice"))
    (page,) = await pages(server.ops.CancelTasks, request)
    assert (page.matched, page.changed, page.skipped) == (7, 7, 0)
    for task in (*idle, *running):
        assert (await server.get(task)).status.state == CANCELED
    assert (await server.get(done)).status.state == COMPLETED
    assert {one["request.taskId"] for one in await verified_audit(server, "operator.CancelTask")} == {
        *idle, *running, firm_task,
    }  # fmt: skip


async def test_a_task_that_cannot_be_changed_is_listed_and_stops_no_other(tmp_path: Path) -> None:
    @agent(id="stubborn", cancelable=False)
    async def stubborn(turn: Turn) -> None:
        turn.status("counting")
        await release.wait()

    release = asyncio.Event()
    async with running_server(f"sqlite:///{tmp_path}/tasks.db", [work, stubborn]) as server:
        waiting, first = await server.send("wait", ALICE, "stubborn"), await server.send("ask")
        request = bulk.CancelTasksRequest(filter=ops.ListTasksRequest(scope="default"))
        (page,) = await pages(server.ops.CancelTasks, request)
        release.set()
        assert (page.matched, page.changed, page.skipped) == (2, 1, 0)
        (failure,) = page.failures
        assert (failure.task_id, failure.agent, failure.principal, failure.scope) == (
            waiting, "stubborn", "alice", "default",
        )  # fmt: skip
        assert failure.reason == "this agent does not let a running task be canceled"
        assert (await server.get(first)).status.state == CANCELED


async def test_quotas_stop_reruns_and_their_reason_is_listed(tmp_path: Path) -> None:
    async with running_server(f"sqlite:///{tmp_path}/tasks.db", [work], live_tasks=1) as server:
        await send_all(server, ["fail"])
        await server.send("ask")
        request = bulk.RerunTasksRequest(filter=ops.ListTasksRequest(agent="work"))
        (page,) = await pages(server.ops.RerunTasks, request)
        assert (page.matched, page.changed) == (1, 0)
        assert page.failures[0].reason.startswith("live_tasks: 1 of your tasks")


async def test_tasks_of_any_state_are_erased(server: Server) -> None:
    erased = await send_all(server, ["count the cows", "ask for cows", "wait for cows", "fail with cows"])
    kept = await server.send("count the sheep")
    request = bulk.EraseTasksRequest(filter=ops.ListTasksRequest(text="cows"), limit=3)
    assert [one.changed for one in await pages(server.ops.EraseTasks, request)] == [3, 1]
    assert [one.task.id for one in await all_tasks(server)] == [kept]
    entries = await verified_audit(server, "operator.EraseTask")
    assert {one["request.taskId"] for one in entries} == set(erased)
    assert all("request.principal" not in one for one in entries)
    assert len(await verified_audit(server, "tasks.erased")) == 4


async def test_a_completed_task_is_rerun_only_if_its_state_is_named(server: Server) -> None:
    await send_all(server, ["count", "fail"])
    for named, matched in (([], 1), ([COMPLETED], 1), ([COMPLETED, FAILED, CANCELED], 2)):
        request = bulk.RerunTasksRequest(filter=ops.ListTasksRequest(agent="work", states=named), dry_run=True)
        (page,) = await pages(server.ops.RerunTasks, request)
        assert page.matched == matched, named


async def test_only_operators_within_their_grants_change_tasks(server: Server) -> None:
    inside = await server.send("ask", BOB, f"{SCOPE}/agents/work")
    outside = await server.send("ask", BOB)
    denied = grpc.StatusCode.PERMISSION_DENIED
    selected = ops.ListTasksRequest(principal="bob")
    for name, request_type in (
        ("CancelTasks", bulk.CancelTasksRequest),
        ("RerunTasks", bulk.RerunTasksRequest),
        ("EraseTasks", bulk.EraseTasksRequest),
    ):
        for caller, code in ((VERA, denied), (BOB, denied), ({}, grpc.StatusCode.UNAUTHENTICATED)):
            for dry_run in (True, False):
                request = request_type(filter=selected, dry_run=dry_run)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await getattr(server.ops, name)(request, metadata=operator(caller))
                assert caught.value.code() is code, (name, caller)
        request = request_type(filter=ops.ListTasksRequest(scope="default"))
        with pytest.raises(grpc.aio.AioRpcError, match='do not include "scope:default"'):
            await getattr(server.ops, name)(request, metadata=operator(TENANT_OPERATOR))
    dry = bulk.EraseTasksRequest(filter=selected, dry_run=True)
    assert (await server.ops.EraseTasks(dry, metadata=operator(TENANT_OPERATOR))).matched == 1
    assert (await server.ops.EraseTasks(dry, metadata=operator())).matched == 2
    (page,) = await pages(server.ops.CancelTasks, bulk.CancelTasksRequest(filter=selected), TENANT_OPERATOR)
    assert page.changed == 1
    found = {one.task.id: one.task.status.state for one in await all_tasks(server)}
    assert found == {inside: CANCELED, outside: pb.TASK_STATE_INPUT_REQUIRED}


async def test_thousands_of_tasks_are_rerun_in_pages(tmp_path: Path) -> None:
    async with running_server(f"sqlite:///{tmp_path}/tasks.db", [work], requests_per_second=0, live_tasks=0) as server:
        await send_all(server, ["quota"] * MANY, BOB)
        selected = ops.ListTasksRequest(principal="bob", text="quota", states=[FAILED])
        dry = await server.ops.RerunTasks(bulk.RerunTasksRequest(filter=selected, dry_run=True), metadata=operator())
        assert (dry.matched, dry.matched_is_minimum) == (MANY, False)
        request = bulk.RerunTasksRequest(filter=selected, limit=MAX_BULK_PAGE)
        responses = await pages(server.ops.RerunTasks, request)
        assert sum(one.changed for one in responses) == MANY
        assert not [failure for one in responses for failure in one.failures]
        entries = await verified_audit(server, "operator.RerunTask")
        assert len({one["request.taskId"] for one in entries}) == len({one["task"] for one in entries}) == MANY


def test_states_are_those_of_the_action() -> None:
    assert check_states(TaskSearch(), OPEN_STATES, OPEN_STATES).states == OPEN_STATES
    named = TaskSearch(states=frozenset({states.WORKING}))
    assert check_states(named, OPEN_STATES, OPEN_STATES) == named
    with pytest.raises(InvalidParams, match=r"filter.states: TASK_STATE_COMPLETED is not possible here"):
        check_states(TaskSearch(states=frozenset({states.COMPLETED})), OPEN_STATES, OPEN_STATES)


@pytest.mark.parametrize(
    ("action", "body", "text"),
    [
        ("cancel", {}, "filter: is required; select the tasks by at least one of taskId, scope"),
        ("rerun", {"filter": {"limit": 10, "order": "TASK_ORDER_CREATED"}}, "filter: is required"),
        ("erase", {"filter": {}}, "filter: is required"),
        ("erase", {"filter": {"agent": "work", "own": True}}, "filter.own: is not possible"),
        ("erase", {"filter": {"agent": "work", "pageToken": "x"}}, "filter.pageToken: is not possible"),
        ("cancel", {"filter": {"state": "TASK_STATE_FAILED"}}, "filter.states: TASK_STATE_FAILED is not possible"),
        ("rerun", {"filter": {"states": ["TASK_STATE_WORKING"]}}, "filter.states: TASK_STATE_WORKING is not"),
        ("rerun", {"filter": {"states": [99]}}, "filter.states[0]: must be one of"),
        ("rerun", {"filter": {"text": "x"}, "limit": 101}, "limit: must be 1 to 100, or 0 for 50"),
        ("rerun", {"filter": {"text": "x"}, "requestId": "x" * 129}, "requestId: must have at most 128"),
        ("rerun", {"filter": {"text": "x"}, "pageToken": "abc"}, "pageToken: is not a token"),
    ],
)
async def test_invalid_requests_name_the_field(tmp_path: Path, action: str, body: dict[str, Any], text: str) -> None:
    async with (
        running_server(f"sqlite:///{tmp_path}/t.db", [work]) as server,
        server.http.post(f"/operations/tasks:{action}", json=body, headers=OLGA) as response,
    ):
        assert response.status == 400
        assert text in (await response.json())["error"]["message"]


async def test_a_page_continues_only_the_search_of_its_token(tmp_path: Path) -> None:
    async with running_server(f"sqlite:///{tmp_path}/t.db", [work]) as server:
        for _ in range(3):
            await server.send("ask")
        path, body = "/operations/tasks:cancel", {"filter": {"agent": "work"}, "limit": 2}
        async with server.http.post(path, json=body | {"dryRun": True}, headers=OLGA) as response:
            assert await response.json() == {"matched": "3"}
        async with server.http.post(path, json=body, headers=OLGA) as response:
            first = await response.json()
        assert (first["matched"], first["changed"]) == ("2", "2")
        following = body | {"pageToken": first["nextPageToken"]}
        other = following | {"filter": {"agent": "firm"}}
        async with server.http.post(path, json=other, headers=OLGA) as response:
            assert "belongs to a query with other filters" in (await response.json())["error"]["message"]
        async with server.http.post(path, json=following, headers=OLGA) as response:
            assert await response.json() == {"matched": "1", "changed": "1"}
