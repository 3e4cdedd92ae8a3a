"""GetOverview of `dragoman.ops.v1`: what waits and runs now, what was done in each hour, and who sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import pytest
from tests.callers import ByHeader, named

from dragoman import AgentError, Turn, agent
from dragoman.core.daily_usage import HOUR_MS
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as ops_rpc
from dragoman_pb.dragoman.ops.v1 import overview_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

SCOPE: Final = "projects/p/locations/l/collections/c/engines/e/assistants/a"
ALICE, OLGA, VERA = named("alice"), named("olga", "operator"), named("vera", "viewer")
TENANT_VIEWER = named("tina", "viewer", f"scope:{SCOPE}", "scope:other")
AGENT_OPERATOR = named("aron", "operator", "agent:other")


@agent(id="work", default=True)
async def work(turn: Turn) -> str:
    if turn.text == "fail":
        raise AgentError("no sheep left")
    if turn.text == "ask":
        turn.ask("which sheep?")
    if turn.text == "wait":
        turn.status("counting")
        await asyncio.Event().wait()
    return "done"


@agent(id="other")
async def other(turn: Turn) -> str:
    return "done"


class Server:
    """A running server, its stubs, and its HTTP client."""

    def __init__(self, channel: grpc.aio.Channel, http: aiohttp.ClientSession) -> None:
        self._v1: Any = rpc.A2AServiceStub(channel)
        self._ops: Any = ops_rpc.OpsServiceStub(channel)
        self.http = http

    async def send(self, text: str, tenant: str = "") -> None:
        """Sends a message; "wait" returns while the task runs."""
        message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text=text)])
        configuration = pb.SendMessageConfiguration(return_immediately=text == "wait")
        request = pb.SendMessageRequest(tenant=tenant, message=message, configuration=configuration)
        await self._v1.SendMessage(request, metadata=tuple(ALICE.items()))

    async def overview(self, caller: Mapping[str, str] = OLGA, **fields: Any) -> ops.GetOverviewResponse:
        """The overview that a caller sees."""
        request = ops.GetOverviewRequest(**fields)
        response: ops.GetOverviewResponse = await self._ops.GetOverview(request, metadata=tuple(caller.items()))
        return response

    async def until_running(self, count: int) -> ops.GetOverviewResponse:
        """The overview once so many tasks of the agent `work` run."""
        while (found := await self.overview(agent="work")).agents[0].running.count < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return found


@asynccontextmanager
async def running_server(store: str) -> AsyncIterator[Server]:
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=store, api_keys=True, drain=0.1)
    async with (
        open_app(settings, [work, other], ByHeader()) as app,
        aiohttp.ClientSession(f"http://{app.http}") as http,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
    ):
        yield Server(channel, http)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url: str = request.getfixturevalue("postgres_database") if request.param == "postgres" else ""
    return url or f"sqlite:///{tmp_path}/tasks.db"


def done(overview: ops.AgentOverview) -> dict[str, int]:
    """What the agent did in all hours together."""
    names = "begun", "completed", "failed", "canceled", "rejected", "turns"
    return {name: sum(getattr(hour, name) for hour in overview.hours) for name in names}


async def test_each_agent_has_its_open_tasks_and_its_hours(store: str) -> None:
    async with running_server(store) as server:
        assert not (await server.overview()).agents
        for text in ("count", "count", "fail", "ask", "wait"):
            await server.send(text)
        await server.send("count", "other")
        await server.until_running(1)
        response = await server.overview()
        other_agent, working = response.agents
        assert [one.agent for one in response.agents] == ["other", "work"]
        assert (working.queued.count, working.running.count, working.waiting.count) == (0, 1, 1)
        assert not working.running.is_minimum
        assert working.waiting.oldest.ToMilliseconds() <= working.running.oldest.ToMilliseconds()
        assert not working.queued.HasField("oldest")
        assert done(working) == {"begun": 5, "completed": 2, "failed": 1, "canceled": 0, "rejected": 0, "turns": 5}
        assert done(other_agent) == {"begun": 1, "completed": 1, "failed": 0, "canceled": 0, "rejected": 0, "turns": 1}
        first, last = response.first_hour.ToMilliseconds(), working.hours[-1].hour.ToMilliseconds()
        assert first % HOUR_MS == 0
        assert (last - first) // HOUR_MS in (22, 23)  # the clock may have struck since
        turns, queue = working.turns, working.queue
        assert (turns.count, queue.count) == (4, 5)  # one still runs
        assert 0 < turns.p50_seconds <= turns.p95_seconds < 60
        assert turns.mean_seconds == pytest.approx(sum(hour.turn_seconds for hour in working.hours) / 4)
        assert queue.p95_seconds < 60
        assert 0 < working.hours[-1].turn_seconds < 60
        before = done(working)
    async with running_server(store) as server:  # a restart forgets nothing
        (again,) = (await server.overview(hours=48, agent="work")).agents
        assert again.waiting.count == 1
        assert done(again)["completed"] == before["completed"]
        assert done(again)["begun"] == before["begun"]


async def test_operators_and_viewers_see_what_their_grants_allow(store: str) -> None:
    async with running_server(store) as server:
        await server.send("ask")
        await server.send("ask", f"{SCOPE}/agents/work")
        await server.send("count", "other")
        allowed: tuple[tuple[Mapping[str, str], dict[str, Any], dict[str, int]], ...] = (
            (OLGA, {}, {"other": 0, "work": 2}),
            (VERA, {}, {"other": 0, "work": 2}),
            (OLGA, {"scope": SCOPE}, {"work": 1}),
            (OLGA, {"agent": "other"}, {"other": 0}),
            (TENANT_VIEWER, {}, {"work": 1}),
            (AGENT_OPERATOR, {}, {"other": 0}),
        )
        for caller, fields, expected in allowed:
            found = await server.overview(caller, **fields)
            assert {one.agent: one.waiting.count for one in found.agents} == expected, caller
            assert {one.agent: done(one)["begun"] for one in found.agents} == {
                agent: count or 1 for agent, count in expected.items()
            }
        refused: tuple[tuple[Mapping[str, str], dict[str, Any], grpc.StatusCode], ...] = (
            (ALICE, {}, grpc.StatusCode.PERMISSION_DENIED),
            ({}, {}, grpc.StatusCode.UNAUTHENTICATED),
            (TENANT_VIEWER, {"scope": "default"}, grpc.StatusCode.PERMISSION_DENIED),
            (AGENT_OPERATOR, {"agent": "work"}, grpc.StatusCode.PERMISSION_DENIED),
            (OLGA, {"hours": 49}, grpc.StatusCode.INVALID_ARGUMENT),
            (OLGA, {"hours": -1}, grpc.StatusCode.INVALID_ARGUMENT),
        )
        for caller, fields, code in refused:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await server.overview(caller, **fields)
            assert caught.value.code() is code, (caller, fields)
        async with server.http.get("/operations/overview?hours=1&agent=other", headers=VERA) as response:
            body = await response.json()
        assert [one["agent"] for one in body["agents"]] == ["other"]
