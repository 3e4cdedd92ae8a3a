"""The operators' view of workers, and the view of other servers on the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest
from tests.agents.workers.conftest import Open
from tests.agents.workers.fake_registries import MemoryAgentRegistry, MemoryWorkerRegistry
from tests.agents.workers.fake_worker import connected_worker, registration
from tests.agents.workers.tasks import NOW, status_text
from tests.callers import ByHeader, named

from dragoman.agents.workers.hub import LocalWorkerHub
from dragoman.client import Client, ClientError, message
from dragoman.client.operations import Operator
from dragoman.core.access.identity import Identity
from dragoman.core.task import states
from dragoman.settings.settings import SettingsError, load_settings
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import workers_pb2 as ops_workers
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def test_operators_see_who_has_which_agent_and_which_turn(opened: Open) -> None:
    async with (
        opened() as app,
        connected_worker(str(app.grpc)) as line,
        Client(str(app.grpc), agent="desk") as client,
        Operator(str(app.grpc)) as operator,
    ):
        await line.register(registration(), registration("other"), credit=3, name="box 1")
        task = (await client.send(message("x"), configuration=NOW)).task.id
        await line.receive("turn_start")
        answer = await operator.list_workers(ops_workers.ListWorkersRequest())
        assert [(one.agent, one.principal) for one in answer.agents] == [("desk", "anonymous"), ("other", "anonymous")]
        (worker,) = answer.agents[0].workers
        assert (worker.name, worker.free, worker.running, worker.draining) == ("box 1", 2, 1, False)
        (status,) = (await operator.explain(ops.ExplainRequest(task_id=task))).tasks
        assert status.worker == f"box 1 ({worker.peer})"


async def test_an_agent_is_forgotten_when_its_workers_are_gone(opened: Open) -> None:
    forget = ops_workers.ForgetAgentRequest(agent="desk")
    async with (
        opened(worker_wait=1000) as app,
        Client(str(app.grpc), agent="desk") as client,
        Operator(str(app.grpc)) as operator,
    ):
        async with connected_worker(str(app.grpc)) as line:
            await line.register(registration(), credit=0)
            task = (await client.send(message("x"), configuration=NOW)).task.id
            with pytest.raises(ClientError, match=r'agent: "desk" has connected workers: by hand .*; stop them'):
                await operator.forget_agent(forget)
            await line.half_close()
            await line.status()
        assert (await operator.forget_agent(forget)).ended_tasks == 1
        assert list(app.agents) == ["echo"]
        with pytest.raises(ClientError, match='no agent "desk" here'):
            await client.get(task)
        with pytest.raises(ClientError, match='agent: "desk" is not an agent of any worker'):
            await operator.forget_agent(forget)
        async with connected_worker(str(app.grpc)) as line:  # its tasks were not forgotten
            await line.register(registration())
            ended = await client.get(task)
            assert (ended.status.state, status_text(ended)[:9]) == (states.FAILED, "NO_WORKER")


async def test_a_name_that_was_forgotten_is_anybodys(opened: Open) -> None:
    async with opened(ByHeader()) as app:
        async with connected_worker(str(app.grpc), named("alice", "worker")) as line:
            await line.register(registration())
            await line.half_close()
            await line.status()
        assert await app.worker_hub.forget("desk") == 0
        async with connected_worker(str(app.grpc), named("bob", "worker")) as line:
            assert (await line.register(registration())).principal == "bob"


@pytest.mark.parametrize("request_", [{}, {"agent": ""}])
async def test_which_agent_to_forget_has_to_be_said(opened: Open, request_: dict[str, str]) -> None:
    async with opened() as app, Operator(str(app.grpc)) as operator:
        with pytest.raises(ClientError, match="agent: is required"):
            await operator.forget_agent(ops_workers.ForgetAgentRequest(**request_))


async def test_only_operators_see_workers(opened: Open) -> None:
    async with opened(ByHeader()) as app, Operator(str(app.grpc)) as operator:
        with pytest.raises(ClientError, match="operations are for operators"):
            await operator.list_workers(ops_workers.ListWorkersRequest())


# Two servers on one store --------------------------------------------------------------------------------------------


class Site:
    """One of several servers on a store: its hub, and a worker that connects on demand."""

    def __init__(self, registry: MemoryWorkerRegistry) -> None:
        self.now = 1_000_000
        self.listed = MemoryAgentRegistry()
        self.hub = LocalWorkerHub(registry, [], clock=lambda: self.now)
        self.hub.attach_registry(self.listed)
        self._leaving = asyncio.Event()
        self._there = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def arrive(self, *agents: wk.AgentRegistration, principal: str = "alice") -> None:
        """Connects the worker."""
        self._task = asyncio.create_task(self._connect(agents, principal))
        waiting = asyncio.create_task(self._there.wait())
        await asyncio.wait((self._task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def depart(self) -> None:
        """Disconnects the worker."""
        assert self._task is not None
        self._leaving.set()
        await self._task

    async def _connect(self, agents: tuple[wk.AgentRegistration, ...], principal: str) -> None:
        async def frames() -> AsyncIterator[wk.ConnectRequest]:
            yield wk.ConnectRequest(hello=wk.Hello(agents=agents))
            await self._leaving.wait()

        async for _ in self.hub.connect(frames(), Identity(principal, frozenset(("worker",))), "there"):
            self._there.set()


async def test_a_server_learns_of_agents_whose_workers_are_at_another_one() -> None:
    registry = MemoryWorkerRegistry()
    here, there = Site(registry), Site(registry)
    await there.arrive(registration(card=pb.AgentCard(name="Front desk")))
    await here.hub.sync_once()
    (agent,) = here.listed.agents
    assert (agent.spec.id, agent.spec.name, agent.capacity) == ("desk", "Front desk", 0)
    assert agent.seconds_absent == 0
    # For as long as a worker is there, it is noted; then the time runs.
    for site in (here, there):
        site.now += 60_000
    assert agent.seconds_absent == 60
    await there.hub.sync_once()
    await here.hub.sync_once()
    assert agent.seconds_absent == 0
    await there.depart()
    here.now += 14_000
    await here.hub.sync_once()
    assert agent.seconds_absent == 0  # it may be there still: nobody says so often
    here.now += 3_000
    await here.hub.sync_once()
    assert agent.seconds_absent == 17


async def test_what_a_server_noted_itself_does_not_make_it_think_that_others_have_a_worker() -> None:
    here = Site(MemoryWorkerRegistry())
    await here.arrive(registration())
    await here.hub.sync_once()
    (agent,) = here.listed.agents
    await here.depart()
    here.now += 3_000
    await here.hub.sync_once()
    assert agent.seconds_absent == 3


async def test_an_agent_that_is_forgotten_at_one_server_goes_at_the_others() -> None:
    registry = MemoryWorkerRegistry()
    here, there = Site(registry), Site(registry)
    await there.arrive(registration())
    await here.hub.sync_once()
    await there.depart()
    await there.hub.forget("desk")
    here.now += 60_000
    await here.hub.sync_once()
    assert (there.listed.unregistered, here.listed.unregistered) == (["desk"], ["desk"])
    assert here.hub.list_agents() == []


async def test_a_registry_that_cannot_be_read_keeps_the_others(caplog: pytest.LogCaptureFixture) -> None:
    registry = MemoryWorkerRegistry()
    there = Site(registry)
    await there.arrive(registration("a"), registration("b"))
    registry.entries["a"] = type(registry.entries["a"])("a", "alice", b"", 0, 0)
    found = LocalWorkerHub(registry, await registry.list(), clock=lambda: 0)
    assert [agent.spec.id for agent in found.agents] == ["b"]
    assert "stored registration of agent a is ignored" in caplog.text
    await there.depart()


async def test_an_id_that_the_app_has_now_is_the_apps(opened: Open) -> None:
    async with opened() as app:
        async with connected_worker(str(app.grpc)) as line:
            await line.register(registration())
        entry = (await app.worker_hub._worker_registry.list())[0]
        await app.worker_hub._worker_registry.register(replace(entry, agent="echo", registration=b"\x0a\x04echo"))
    async with opened() as app, Client(str(app.grpc)) as client:
        await app.worker_hub.sync_once()
        assert [one.agent for one in app.worker_hub.list_agents()] == ["desk"]
        assert (await client.send(message("still here"))).task.status.state == states.COMPLETED


# A server without agents of its own ----------------------------------------------------------------------------------


async def test_a_server_may_have_only_agents_of_workers(opened: Open) -> None:
    async with opened(own=False, workers_only=True) as app, Client(str(app.grpc)) as client:
        assert (app.root, dict(app.agents)) == ("", {})
        async with aiohttp.ClientSession(app.public_url) as http:
            for path, status in (
                ("/", 200),
                ("/agents", 200),
                ("/openapi.json", 200),
                ("/readyz", 200),
                ("/.well-known/agent-card.json", 404),
            ):
                async with http.get(path) as answer:
                    assert (path, answer.status) == (path, status)
        with pytest.raises(ClientError, match=r'no agent "" here; use one of \(none yet: no worker has connected\)'):
            await client.send(message("x"))
        async with connected_worker(str(app.grpc)) as line:
            await line.register(registration(), registration("before-it"))
            assert app.root == "desk"
            sending = asyncio.create_task(client.send(message("x")))
            turn = await line.receive("turn_start")
            assert turn.agent_id == "desk"
            await line.end(turn.turn_id)
            assert (await sending).task.status.state == states.COMPLETED
    async with opened(own=False, workers_only=True) as app:
        assert app.root == "desk"
    async with opened(own=False, workers_only=True, root="third") as app:
        assert app.root == "third"
        async with connected_worker(str(app.grpc)) as line:
            await line.register(registration("third"))
        assert app.card_url.endswith("/.well-known/agent-card.json")


def test_an_app_and_no_agents_but_those_of_workers_are_not_said_together() -> None:
    with pytest.raises(SettingsError, match=r'APP "agents.py" would not be served; pass either APP or --workers-only'):
        load_settings({"app": "agents.py", "workers_only": True})
