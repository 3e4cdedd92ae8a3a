"""Requests and streams of operator calls over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest
from tests.bindings.admin.operators import OLGA, VERA, running_server
from tests.bindings.admin.test_task_lists import work

from dragoman_pb.dragoman.ops.v1 import bulk_pb2 as bulk
from dragoman_pb.dragoman.ops.v1 import tasks_pb2 as tasks


async def test_a_list_is_watched_over_http_with_entries_for_its_begin_and_end(tmp_path: Path) -> None:
    async with running_server(f"sqlite:///{tmp_path}/t.db", [work]) as server:
        waiting = await server.send("ask me")
        path = "/operations/tasks:watch?filter.states=TASK_STATE_INPUT_REQUIRED&filter.text=ask"
        async with server.http.get(path) as response:
            assert response.status == 401
        async with server.http.head(path, headers=VERA) as response:
            assert response.status == 405
        async with server.http.get(f"{path}&filter.pageToken=x", headers=VERA) as response:
            assert response.status == 400
        async with server.http.get(path, headers=VERA) as response:
            assert (response.status, response.content_type) == (200, "text/event-stream")
            for expected in ([waiting], []):
                data = await response.content.readuntil(b"\n\n")
                listed = json.loads(data.removeprefix(b"data: ")).get("list", {})
                assert [one["task"]["id"] for one in listed.get("tasks", [])] == expected
                if expected:
                    await server.cancel(waiting)
        while True:  # the end of the stream is recorded after its reader has gone
            calls = [one for one in await server.audit() if one["action"] == "operator.WatchTasks"]
            if calls[-1]["outcome"] == "canceled":
                break
        assert [one["outcome"] for one in calls] == ["begun", "failed", "begun", "canceled"]
        failed, watched = calls[1], calls[2:]
        assert failed["about"]["error"] == "InvalidParams"
        assert [one["who"]["principal"] for one in watched] == ["vera"] * 2
        assert watched[0]["who"]["request.filter.text"] == "ask"
        assert watched[1]["about"] == {"call": watched[0]["about"]["call"], "responses": "2"}


@pytest.mark.parametrize(
    ("call", "request_body", "field"),
    [
        ("erase", {"filter": {"scope": "default", "causes": "x"}}, "filter.causes"),
        ("rerun", {"filter": {"agent": "work", "changedAfter": "2026-11-20T10:00:00Z"}}, "filter.changedAfter"),
        ("cancel", {"filter": {"agent": "work"}, "dryrun": True}, "dryrun"),
    ],
)
async def test_no_task_is_changed_by_a_request_with_an_unknown_field(
    tmp_path: Path, call: str, request_body: dict[str, object], field: str
) -> None:
    async with running_server(f"sqlite:///{tmp_path}/t.db", [work]) as server:
        task = await server.send("ask me")
        async with server.http.post(f"/operations/tasks:{call}", json=request_body, headers=OLGA) as response:
            assert response.status == 400
            assert (await response.json())["error"]["message"].startswith(f"{field}: is not a field of ")
        async with server.http.get("/operations/tasks", headers=OLGA) as response:
            listed = [one["task"] for one in (await response.json())["tasks"]]
            assert [(one["id"], one["status"]["state"]) for one in listed] == [(task, "TASK_STATE_INPUT_REQUIRED")]


@pytest.mark.parametrize(
    ("query", "right"),
    [("filter.causes=x", "filter.cause"), ("cause=x", "filter.cause"), ("filter.Agent=x", "filter.agent")],
)
async def test_a_misspelled_part_of_a_filter_is_refused_with_the_one_that_is_meant(
    tmp_path: Path, query: str, right: str
) -> None:
    async with (
        running_server(f"sqlite:///{tmp_path}/t.db", [work]) as server,
        server.http.get(f"/operations/failures?{query}", headers=OLGA) as response,
    ):
        assert response.status == 400
        assert f"did you mean {right}?" in (await response.json())["error"]["message"]


async def test_no_task_is_erased_by_a_filter_of_a_newer_client(tmp_path: Path) -> None:
    async with running_server(f"sqlite:///{tmp_path}/t.db", [work]) as server:
        await server.send("ask me")
        request = bulk.EraseTasksRequest()
        request.filter.MergeFromString(tasks.ListTasksRequest(agent="work").SerializeToString() + b"\x9a\x06\x01x")
        with pytest.raises(grpc.aio.AioRpcError, match="filter: has fields that this server does not know"):
            await server.ops.EraseTasks(request, metadata=tuple(OLGA.items()))
