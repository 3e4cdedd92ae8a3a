"""ListTasks of `dragoman.ops.v1`: a caller's own tasks with all agents and in all scopes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import pytest
from tests.callers import ByHeader, named

from dragoman import Turn, agent
from dragoman.core.task.cursors import TaskPage, TaskQuery
from dragoman.settings.settings import Address, Settings
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.wiring.app import open_app
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as ops_rpc
from dragoman_pb.dragoman.ops.v1 import tasks_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

SCOPE: Final = "projects/p/locations/l/collections/c/engines/e/assistants/a"
OTHER: Final = SCOPE.replace("projects/p", "projects/q")
ALICE, MALLORY, OLGA = named("alice"), named("mallory"), named("olga", "operator")


@agent(id="echo", default=True)
async def echo(turn: Turn) -> str:
    return turn.text


@agent(id="ask")
async def ask(turn: Turn) -> None:
    turn.ask("what?")


class Server:
    """A running server and its stubs."""

    def __init__(self, channel: grpc.aio.Channel, http: aiohttp.ClientSession) -> None:
        self._v1: Any = rpc.A2AServiceStub(channel)
        self._ops: Any = ops_rpc.OpsServiceStub(channel)
        self.http = http

    async def send(self, tenant: str, caller: Mapping[str, str] = ALICE) -> str:
        """Runs a task and returns its id."""
        message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hi")], context_id="c")
        request = pb.SendMessageRequest(tenant=tenant, message=message)
        return str((await self._v1.SendMessage(request, metadata=tuple(caller.items()))).task.id)

    async def list(self, caller: Mapping[str, str] = ALICE, **filters: Any) -> ops.ListTasksResponse:
        """The tasks of a caller."""
        response: ops.ListTasksResponse = await self._ops.ListTasks(
            ops.ListTasksRequest(**filters), metadata=tuple(caller.items())
        )
        return response


def ids(response: ops.ListTasksResponse) -> list[str]:
    return [one.task.id for one in response.tasks]


@asynccontextmanager
async def running_server(folder: Path, *, keys: bool = True, **more: Any) -> AsyncIterator[Server]:
    anywhere = Address("127.0.0.1", 0)
    store = f"sqlite:///{folder}/tasks.db"
    settings = Settings(http=anywhere, grpc=anywhere, store=store, api_keys=keys, **more)
    async with (
        open_app(settings, [echo, ask], ByHeader() if keys else None) as app,
        aiohttp.ClientSession(f"http://{app.http}") as http,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
    ):
        yield Server(channel, http)


async def test_tasks_of_every_scope_and_agent_are_listed_newest_first(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        sent = [await server.send(tenant) for tenant in ("", f"{SCOPE}/agents/echo", "ask", f"{OTHER}/agents/ask")]
        listed = await server.list()
        assert ids(listed) == sent[::-1]
        assert [(one.scope, one.agent) for one in listed.tasks] == [
            (OTHER, "ask"),
            ("default", "ask"),
            (SCOPE, "echo"),
            ("default", "echo"),
        ]
        assert (listed.total, list(listed.scopes)) == (4, ["default", SCOPE, OTHER])
        assert [one.summary for one in listed.tasks] == ["hi"] * 4
        assert (await server.list(task_id=sent[0])).tasks[0].summary == "hi"
        assert not listed.tasks[-1].task.artifacts
        assert not listed.tasks[-1].task.history


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"scope": SCOPE}, [1]),
        ({"scope": "default"}, [2, 0]),
        ({"scope": "projects/none"}, []),
        ({"agent": "ask"}, [3, 2]),
        ({"agent": "ask", "scope": OTHER}, [3]),
        ({"state": pb.TASK_STATE_INPUT_REQUIRED}, [3, 2]),
        ({"state": pb.TASK_STATE_FAILED}, []),
        ({"context_id": "c"}, [3, 2, 1, 0]),
        ({"context_id": "d"}, []),
    ],
)
async def test_filters(tmp_path: Path, filters: dict[str, Any], expected: list[int]) -> None:
    async with running_server(tmp_path) as server:
        sent = [await server.send(tenant) for tenant in ("", f"{SCOPE}/agents/echo", "ask", f"{OTHER}/agents/ask")]
        listed = await server.list(**filters)
        assert ids(listed) == [sent[place] for place in expected]
        assert listed.total == len(expected)
        assert list(listed.scopes) == ["default", SCOPE, OTHER]


async def test_a_task_is_found_by_its_id_in_whatever_scope_it_is(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        await server.send("")
        task = await server.send(f"{SCOPE}/agents/ask")
        (found,) = (await server.list(task_id=task)).tasks
        assert (found.scope, found.agent, found.task.id) == (SCOPE, "ask", task)
        for filters in ({"scope": "default"}, {"agent": "echo"}, {"context_id": "d"}, {"state": 3}):
            assert ids(await server.list(task_id=task, **filters)) == []
        assert ids(await server.list(MALLORY, task_id=task)) == []


async def test_the_limit_counts_all_scopes_together(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        sent = [await server.send(tenant) for tenant in ("", f"{SCOPE}/agents/echo") * 3]
        listed = await server.list(limit=4)
        assert (ids(listed), listed.total) == (sent[:1:-1], 6)
        for limit in (-1, 1001):
            with pytest.raises(grpc.aio.AioRpcError, match="limit: must be 1 to 1000"):
                await server.list(limit=limit)
        with pytest.raises(grpc.aio.AioRpcError, match="state: must be one of"):
            await server.list(state=99)


async def test_a_full_list_reads_no_scope_whose_tasks_are_all_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    page = SqliteStore.page

    async def counted(self: SqliteStore, query: TaskQuery) -> TaskPage:
        read.append(query.owner.scope)
        return await page(self, query)

    monkeypatch.setattr(SqliteStore, "page", counted)
    async with running_server(tmp_path) as server:
        sent = [await server.send(tenant) for tenant in (f"{OTHER}/agents/echo", f"{SCOPE}/agents/echo", "", "")]
        listed = await server.list(limit=2)
        assert (ids(listed), listed.total, read) == (sent[:1:-1], 4, ["default"])
        assert (await server.list(limit=2, state=pb.TASK_STATE_COMPLETED)).total == 4


async def test_callers_see_their_own_tasks_only(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        await server.send(f"{SCOPE}/agents/echo")
        for stranger, filters in ((MALLORY, {}), (MALLORY, {"own": True}), (OLGA, {"own": True})):
            listed = await server.list(stranger, **filters)
            assert (ids(listed), listed.total, list(listed.scopes)) == ([], 0, [])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.list({})
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_credentials_that_reach_one_scope_or_agent_list_that_alone(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        sent = [await server.send(tenant) for tenant in ("", f"{SCOPE}/agents/echo", "ask")]
        listed = await server.list(named("alice", f"scope:{SCOPE}"))
        assert (ids(listed), list(listed.scopes)) == (sent[1:2], [SCOPE])
        assert ids(await server.list(named("alice", "agent:ask"))) == sent[2:]


async def test_scopes_of_shared_tasks_are_known_to_those_whose_grants_name_them(tmp_path: Path) -> None:
    async with running_server(tmp_path, isolation="scope") as server:
        sent = [await server.send(tenant) for tenant in ("", f"{SCOPE}/agents/echo")]
        assert ids(await server.list(MALLORY)) == sent[:1]
        assert ids(await server.list(named("mallory", f"scope:{SCOPE}"))) == sent[1:]
        assert ids(await server.list(OLGA, own=True)) == sent[::-1]


async def test_without_authentication_every_caller_is_the_same(tmp_path: Path) -> None:
    async with running_server(tmp_path, keys=False) as server:
        sent = [await server.send(tenant, {}) for tenant in ("", f"{SCOPE}/agents/echo")]
        assert ids(await server.list({})) == sent[::-1]
        async with server.http.get("/operations/tasks", params={"scope": SCOPE}) as response:
            body = await response.json()
        assert [(one["scope"], one["agent"], one["task"]["id"]) for one in body["tasks"]] == [(SCOPE, "echo", sent[1])]
        assert (body["total"], body["scopes"]) == ("1", ["default", SCOPE])
        async with server.http.get("/operations/tasks", headers={"X-Forwarded-For": "198.51.100.7"}) as response:
            assert response.status == 401


async def test_explain_has_the_filters_of_the_list(tmp_path: Path) -> None:
    async with running_server(tmp_path, keys=False) as server:
        task = await server.send(f"{SCOPE}/agents/echo", {})
        for filters, found in (
            ({}, True),
            ({"scope": SCOPE, "agent": "echo", "principal": "anonymous"}, True),
            ({"scope": "default"}, False),
            ({"agent": "ask"}, False),
            ({"principal": "alice"}, False),
        ):
            async with server.http.get(f"/operations/tasks/{task}:explain", params=filters) as response:
                assert response.status == (200 if found else 404), filters
