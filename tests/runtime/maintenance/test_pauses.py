"""Paused agents: nothing begins, running turns go on, and every server of the store follows, also after a restart."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import pytest
from tests.callers import ByHeader, named
from tests.cli.server import serving
from tests.eventually import eventually
from tests.runtime.harness import open_harness, state
from tests.runtime.remote_agent import DONE, Far, served

from dragoman import Turn, agent, retry
from dragoman.calling.errors import ClientError
from dragoman.client.calls import Client, message
from dragoman.core.errors import InvalidParams
from dragoman.ids import now_ms
from dragoman.ports import Store
from dragoman.runtime.maintenance.pauses import MAX_PAUSED_AGENTS, AgentPause, AgentPauses
from dragoman.settings.settings import Address, Settings
from dragoman.stores.sqlite import open_store
from dragoman.wiring.app import open_app
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import ops_pb2_grpc as ops_rpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

ALICE, OLGA, VERA = named("alice"), named("olga", "operator"), named("vera", "viewer")
WORK_OPERATOR, OTHER_OPERATOR = named("w", "operator", "agent:work"), named("o", "operator", "agent:other")
SCOPE_OPERATOR = named("s", "operator", "scope:default")


# The copy of a process -----------------------------------------------------------------------------------------------


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store(tmp_path / "pauses.db")
    yield opened
    await opened.close()


async def test_a_pause_is_seen_by_others_until_the_agent_is_resumed(store: Store) -> None:
    resumed: list[str] = []

    def note(agents: Iterable[str]) -> None:
        resumed.extend(agents)

    mine, theirs = AgentPauses(store.key_values, clock=lambda: 5), AgentPauses(store.key_values, note)
    await theirs.refresh()
    assert theirs.by_agent == {}
    assert await mine.pause("work", "olga", "broken") == AgentPause(5, "olga", "broken")
    assert await theirs.pause("other", "vera", "") == AgentPause(theirs.by_agent["other"].since, "vera")
    assert await theirs.pause("work", "vera", "again") == AgentPause(5, "olga", "broken")
    await mine.refresh()
    assert mine.by_agent == theirs.by_agent
    assert mine.by_agent.keys() == {"work", "other"}
    await mine.resume("work")
    await mine.resume("work")
    assert mine.by_agent.keys() == {"other"}
    assert resumed == []
    await theirs.refresh()
    assert (resumed, theirs.by_agent) == (["work"], mine.by_agent)


async def test_concurrent_pauses_are_all_kept(store: Store) -> None:
    processes = [AgentPauses(store.key_values) for _ in range(5)]
    await asyncio.gather(*(one.pause(f"agent-{n}", "olga", "") for n, one in enumerate(processes)))
    await processes[0].refresh()
    assert processes[0].by_agent.keys() == {f"agent-{n}" for n in range(5)}


async def test_the_number_of_paused_agents_is_limited(store: Store) -> None:
    pauses = AgentPauses(store.key_values)
    text = ", ".join(f'"agent-{n}": {{"since": 1, "principal": "olga"}}' for n in range(MAX_PAUSED_AGENTS))
    assert await store.key_values.compare_and_set("agent pauses", f"{{{text}}}", expected="")
    with pytest.raises(InvalidParams, match="agent: 1000 agents are paused"):
        await pauses.pause("one-more", "olga", "")
    assert (await pauses.pause("agent-7", "vera", "")).principal == "olga"


# The scheduler -------------------------------------------------------------------------------------------------------


async def test_nothing_begins_while_running_turns_go_on(tmp_path: Path) -> None:
    gates: dict[str, asyncio.Event] = {}

    async def gated(turn: Turn) -> str:
        gates[turn.text] = asyncio.Event()
        await gates[turn.text].wait()
        return f"done {turn.text}"

    async with open_harness(tmp_path, gated) as here:
        pauses, agent_id = here.runtime.scheduler.pauses, "gated"
        running = await here.start("running")
        await eventually(lambda: "running" in gates)
        await pauses.pause(agent_id, "olga", "the model is down")
        waiting = await here.start("waiting")
        blocking = asyncio.create_task(here.send("blocking"))
        gates["running"].set()
        assert state(await here.ended(running.id)) == "COMPLETED"
        await here.runtime.scheduler.wakeups.poll()
        here.runtime.scheduler.capacity_changed()
        assert state(await here.get(waiting.id)) == "SUBMITTED"
        (explained,) = await here.runtime.explainer.explain(waiting.id)
        assert explained.next.startswith("The agent is paused by olga since ")
        assert explained.next.endswith(
            ': "the model is down". It starts after: dragoman agents resume gated. A cancel ends it.'
        )
        assert not blocking.done()
        assert gates.keys() == {"running"}
        await pauses.resume(agent_id)
        await eventually(lambda: {"waiting", "blocking"} <= gates.keys())
        for gate in gates.values():
            gate.set()
        assert state(await here.ended(waiting.id)) == "COMPLETED"
        assert state(await blocking) == "COMPLETED"


async def test_a_turn_that_sleeps_waits_for_the_end_of_the_pause(tmp_path: Path) -> None:
    turns: list[int] = []
    ahead = timedelta()

    async def sleeper(turn: Turn) -> None:
        turns.append(1)
        await turn.sleep(hours=1)

    store = open_store(tmp_path / "tasks.db", clock=lambda: now_ms() + ahead // timedelta(milliseconds=1))
    async with open_harness(tmp_path, sleeper, store=store) as here:
        scheduler = here.runtime.scheduler
        task = await here.start("x")
        await eventually(lambda: turns)
        await here.idle()
        await scheduler.pauses.pause("sleeper", "olga", "")
        ahead = timedelta(hours=1)
        await scheduler.wakeups.poll()
        await eventually(lambda: scheduler.wakeups.timers == 0)  # its turn is awake, and has not begun
        ahead = timedelta()
        assert len(turns) == 1
        assert state(await here.get(task.id)) == "WORKING"
        await scheduler.pauses.resume("sleeper")
        await eventually(lambda: len(turns) == 2)


async def test_a_remote_agent_is_paused_and_may_be_away_meanwhile(tmp_path: Path) -> None:
    async with served(tmp_path, far := Far(capacity=1)) as here:
        scheduler = here.runtime.scheduler
        await scheduler.pauses.pause("far", "olga", "")
        far.seconds_absent = 1000.0
        first, second = await here.start("first"), await here.start("second")
        scheduler.capacity_changed()
        assert scheduler.queues.absent_too_long == []
        assert await here.runtime.absent_agents.end_abandoned_tasks() == 0
        assert far.turns.empty()
        far.seconds_absent = 0.0
        await scheduler.pauses.resume("far")
        for task in (first, second):
            context, end = await far.turns.get()
            assert context.task_id == task.id
            end.set_result(DONE)
            assert state(await here.ended(task.id)) == "COMPLETED"


# Servers -------------------------------------------------------------------------------------------------------------


@agent(id="work", default=True, on_crash=retry(3))
async def work(turn: Turn) -> str:
    return f"done {turn.text}"


@agent(id="other")
async def other(turn: Turn) -> str:
    return f"done {turn.text}"


class Caller:
    """The stubs of a running server."""

    def __init__(self, channel: grpc.aio.Channel, http: aiohttp.ClientSession) -> None:
        self._v1: Any = rpc.A2AServiceStub(channel)
        self.ops: Any = ops_rpc.OpsServiceStub(channel)
        self.http = http

    async def send(self, text: str, tenant: str = "", *, wait: bool = False) -> pb.Task:
        """Sends a message."""
        sent = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text=text)])
        configuration = pb.SendMessageConfiguration(return_immediately=not wait)
        request = pb.SendMessageRequest(tenant=tenant, message=sent, configuration=configuration)
        task: pb.Task = (await self._v1.SendMessage(request, metadata=tuple(ALICE.items()))).task
        return task

    async def state(self, task: str) -> str:
        """The state of a task."""
        found = await self._v1.GetTask(pb.GetTaskRequest(id=task), metadata=tuple(ALICE.items()))
        return pb.TaskState.Name(found.status.state).removeprefix("TASK_STATE_")

    async def until(self, task: str, expected: str) -> None:
        """Returns when a task has this state."""
        while await self.state(task) != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def pause(self, agent: str = "work", caller: Mapping[str, str] = OLGA, reason: str = "") -> ops.AgentPause:
        """Pauses an agent."""
        request = ops.PauseAgentRequest(agent=agent, reason=reason)
        response: ops.PauseAgentResponse = await self.ops.PauseAgent(request, metadata=tuple(caller.items()))
        return response.pause

    async def resume(self, agent: str = "work", caller: Mapping[str, str] = OLGA) -> None:
        """Resumes an agent."""
        await self.ops.ResumeAgent(ops.ResumeAgentRequest(agent=agent), metadata=tuple(caller.items()))

    async def paused(self) -> list[str]:
        """The paused agents, as this server lists them."""
        response = await self.ops.ListAgents(ops.ListAgentsRequest(), metadata=tuple(VERA.items()))
        return [one.id for one in response.agents if one.HasField("pause")]


@asynccontextmanager
async def running_server(store: str, *agents: Any) -> AsyncIterator[Caller]:
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=store, api_keys=True)
    async with (
        open_app(settings, list(agents) or [work, other], ByHeader()) as app,
        aiohttp.ClientSession(f"http://{app.http}") as http,
        grpc.aio.insecure_channel(str(app.grpc)) as channel,
    ):
        yield Caller(channel, http)


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url: str = request.getfixturevalue("postgres_database") if request.param == "postgres" else ""
    return url or f"sqlite:///{tmp_path}/tasks.db"


async def test_a_pause_outlives_the_server_and_the_absence_of_the_agent(store_url: str) -> None:
    async with running_server(store_url) as server:
        pause = await server.pause(reason="the model is down")
        assert (pause.principal, pause.reason) == ("olga", "the model is down")
        assert await server.pause(caller=WORK_OPERATOR, reason="other") == pause
        task = await server.send("x")
        assert (await server.send("y", "other", wait=True)).status.state == pb.TASK_STATE_COMPLETED
        assert await server.state(task.id) == "SUBMITTED"
        async with server.http.get("/metrics", headers=OLGA) as response:
            assert "dragoman_paused_agents 1.0" in (await response.text()).splitlines()
    async with running_server(store_url, other) as server:  # the agent is not served
        assert await server.paused() == []
    async with running_server(store_url) as server:
        assert await server.paused() == ["work"]
        assert (await server.send("y", "other", wait=True)).status.state == pb.TASK_STATE_COMPLETED
        assert await server.state(task.id) == "SUBMITTED"
        await server.resume()
        await server.resume()
        await server.until(task.id, "COMPLETED")
        assert await server.paused() == []


async def test_all_servers_of_a_store_follow(postgres_database: str) -> None:
    async with running_server(postgres_database) as first, running_server(postgres_database) as second:
        await first.pause()
        while await second.paused() != ["work"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        tasks = [await server.send("x") for server in (first, second, first, second)]
        for server in (first, second):
            assert (await server.send("y", "other", wait=True)).status.state == pb.TASK_STATE_COMPLETED
        assert {await first.state(task.id) for task in tasks} == {"SUBMITTED"}
        await second.resume()
        for task in tasks:
            await first.until(task.id, "COMPLETED")


async def test_who_may_pause(tmp_path: Path) -> None:
    denied, missing = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    async with running_server(f"sqlite:///{tmp_path}/tasks.db") as server:
        refused: tuple[tuple[Mapping[str, str], str, str, grpc.StatusCode], ...] = (
            ({}, "work", "", grpc.StatusCode.UNAUTHENTICATED),
            (ALICE, "work", "", denied),
            (VERA, "work", "", denied),
            (SCOPE_OPERATOR, "work", "", denied),
            (OTHER_OPERATOR, "work", "", denied),
            (OLGA, "nobody", "", missing),
            (OLGA, "", "", invalid),
            (OLGA, "work", "x" * 501, invalid),
        )
        for caller, name, reason, code in refused:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await server.pause(name, caller, reason)
            assert caught.value.code() is code, (caller, name)
        await server.pause("work", WORK_OPERATOR)
        for caller in (VERA, SCOPE_OPERATOR, OTHER_OPERATOR):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await server.resume("work", caller)
            assert caught.value.code() is denied
        assert await server.paused() == ["work"]
        async with server.http.post("/operations/agents/work:resume", json={}, headers=OLGA) as response:
            assert (response.status, await response.json()) == (200, {})
        async with server.http.post("/operations/agents/work:pause", json={"reason": "r"}, headers=OLGA) as response:
            assert (await response.json())["pause"]["reason"] == "r"
        stream = server.ops.ExportAudit(ops.ExportAuditRequest(), metadata=tuple(OLGA.items()))
        lines = [line async for part in stream for line in part.lines]
        calls = Counter((entry["action"], entry["outcome"]) for entry in map(json.loads, lines))
        for name, done, failed in (("Pause", 2, 4), ("Resume", 1, 1)):
            action = f"operator.{name}Agent"
            counts = [calls[action, outcome] for outcome in ("begun", "done", "failed")]
            assert counts == [done + failed, done, failed], name


AGENTS: Final = """
import asyncio
from pathlib import Path
from dragoman import Turn, agent, retry

@agent(id="work", default=True, on_crash=retry(3))
async def work(turn: Turn) -> str:
    with Path("begun").open("a") as file:
        file.write(f"{turn.text} {turn.attempt}\\n")
    if turn.attempt == 1 and turn.text == "hang":
        await asyncio.Event().wait()
    return "done"

@agent(id="other")
async def other(turn: Turn) -> str:
    return "done"
"""


async def test_after_a_kill_the_repeated_turn_waits_for_the_end_of_the_pause(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    begun, serve = tmp_path / "begun", ("agents.py", "--store", f"sqlite:///{tmp_path}/tasks.db")
    with serving(*serve, cwd=tmp_path) as server:
        async with Client(server.grpc) as client, grpc.aio.insecure_channel(server.grpc) as channel:
            hanging = asyncio.create_task(client.send(message("hang")))
            await eventually(lambda: begun.exists() and begun.read_text() == "hang 1\n")
            stub: Any = ops_rpc.OpsServiceStub(channel)
            await stub.PauseAgent(ops.PauseAgentRequest(agent="work"))
            server.process.kill()
            with pytest.raises(ClientError):
                await hanging
    with serving(*serve, cwd=tmp_path) as server:
        async with Client(server.grpc, agent="other") as client, grpc.aio.insecure_channel(server.grpc) as channel:
            stub = ops_rpc.OpsServiceStub(channel)
            assert (await stub.ListAgents(ops.ListAgentsRequest())).agents[0].HasField("pause")
            await client.send(message("x"))
            assert begun.read_text() == "hang 1\n"
            await stub.ResumeAgent(ops.ResumeAgentRequest(agent="work"))
            await eventually(lambda: begun.read_text() == "hang 1\nhang 2\n")
