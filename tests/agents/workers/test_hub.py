"""The operators' view of workers, and the view of other servers on the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

import aiohttp
import pytest
from tests.agents.workers.conftest import Open
from tests.agents.workers.fake_registries import MemoryAgentRegistry, MemoryWorkerRegistry
from tests.agents.workers.fake_worker import connected_worker, registration
from tests.agents.workers.tasks import NOW, status_text
from tests.callers import ByHeader, named

from dragoman.agents.workers.hub import MAX_AGENTS_PER_PRINCIPAL, LocalWorkerHub
from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.client.operations import Operator
from dragoman.core.access.identity import Identity
from dragoman.core.errors import InvalidParams
from dragoman.core.task import states
from dragoman.ports import RegisteredAgent
from dragoman.settings.settings import SettingsError, load_settings
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import workers_pb2 as ops_workers
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long


async def test_operators_see_the_workers_of_each_agent_and_turn(opened: Open) -> None:
    async with (
        opened() as app,
        connected_worker(str(app.grpc)) as fake_worker,
        Client(str(app.grpc), agent="desk") as client,
        Operator(str(app.grpc)) as operator,
    ):
        await fake_worker.register(registration(), registration("other"), credit=3, name="box 1")
        task = (await client.send(message("x"), configuration=NOW)).task.id
        await fake_worker.receive("turn_start")
        answer = await operator.list_workers(ops_workers.ListWorkersRequest())
        assert [(one.agent, one.principal) for one in answer.agents] == [("desk", "anonymous"), ("other", "anonymous")]
        (worker,) = answer.agents[0].workers
        assert (worker.name, worker.free, worker.running, worker.draining) == ("box 1", 2, 1, False)
        (status,) = (await operator.explain(ops.ExplainRequest(task_id=task))).tasks
        assert status.worker == f"box 1 ({worker.peer})"


async def test_an_agent_can_be_forgotten_after_its_workers_disconnected(opened: Open) -> None:
    forget = ops_workers.ForgetAgentRequest(agent="desk")
    async with (
        opened(worker_wait=1000) as app,
        Client(str(app.grpc), agent="desk") as client,
        Operator(str(app.grpc)) as operator,
    ):
        async with connected_worker(str(app.grpc)) as fake_worker:
            await fake_worker.register(registration(), credit=0)
            task = (await client.send(message("x"), configuration=NOW)).task.id
            with pytest.raises(ClientError, match=r'agent: "desk" has connected workers: test .*; stop them'):
                await operator.forget_agent(forget)
            await fake_worker.half_close()
            await fake_worker.status()
        assert (await operator.forget_agent(forget)).ended_tasks == 1
        assert list(app.agents) == ["echo"]
        with pytest.raises(ClientError, match='no agent "desk" here'):
            await client.get(task)
        with pytest.raises(ClientError, match='agent: "desk" is not an agent of any worker'):
            await operator.forget_agent(forget)
        async with connected_worker(str(app.grpc)) as fake_worker:  # its tasks are kept
            await fake_worker.register(registration())
            ended = await client.get(task)
            assert (ended.status.state, status_text(ended)[:9]) == (states.FAILED, "NO_WORKER")


async def test_a_forgotten_id_is_free_for_other_principals(opened: Open) -> None:
    async with opened(ByHeader()) as app:
        async with connected_worker(str(app.grpc), named("alice", "worker")) as fake_worker:
            await fake_worker.register(registration())
            await fake_worker.half_close()
            await fake_worker.status()
        assert await app.sources.worker_hub.forget("desk") == 0
        async with connected_worker(str(app.grpc), named("bob", "worker")) as fake_worker:
            assert (await fake_worker.register(registration())).principal == "bob"


@pytest.mark.parametrize("request_", [{}, {"agent": ""}])
async def test_forget_requires_an_agent(opened: Open, request_: dict[str, str]) -> None:
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
        self.agent_registry = MemoryAgentRegistry()
        self.hub = LocalWorkerHub(registry, self.agent_registry, [], clock=lambda: self.now)
        self._disconnecting = asyncio.Event()
        self._connected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def connect_worker(self, *agents: wk.AgentRegistration, principal: str = "alice") -> None:
        """Connects the worker."""
        self._task = asyncio.create_task(self._connect(agents, principal))
        waiting = asyncio.create_task(self._connected.wait())
        await asyncio.wait((self._task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def disconnect_worker(self) -> None:
        """Disconnects the worker."""
        assert self._task is not None
        self._disconnecting.set()
        await self._task

    async def _connect(self, agents: tuple[wk.AgentRegistration, ...], principal: str) -> None:
        async def frames() -> AsyncIterator[wk.ConnectRequest]:
            yield wk.ConnectRequest(hello=wk.Hello(agents=agents))
            await self._disconnecting.wait()

        async for _ in self.hub.connect(frames(), Identity(principal, frozenset(("worker",))), "there"):
            self._connected.set()


async def test_a_server_knows_agents_whose_workers_are_at_another_server() -> None:
    registry = MemoryWorkerRegistry()
    local, remote = Site(registry), Site(registry)
    await remote.connect_worker(registration(card=pb.AgentCard(name="Front desk")))
    await local.hub.sync_once()
    (agent,) = local.agent_registry.agents
    assert (agent.spec.id, agent.spec.name, agent.capacity) == ("desk", "Front desk", 0)
    assert agent.seconds_absent == 0
    # The other server notes a connected worker regularly; without a recent note, the agent counts as absent.
    for site in (local, remote):
        site.now += 60_000
    assert agent.seconds_absent == 60
    await remote.hub.sync_once()
    await local.hub.sync_once()
    assert agent.seconds_absent == 0
    await remote.disconnect_worker()
    local.now += 14_000
    await local.hub.sync_once()
    assert agent.seconds_absent == 0  # the last note is valid for 15 s
    local.now += 3_000
    await local.hub.sync_once()
    assert agent.seconds_absent == 17


async def test_a_servers_own_note_does_not_count_as_a_worker_at_another_server() -> None:
    local = Site(MemoryWorkerRegistry())
    await local.connect_worker(registration())
    await local.hub.sync_once()
    (agent,) = local.agent_registry.agents
    await local.disconnect_worker()
    local.now += 3_000
    await local.hub.sync_once()
    assert agent.seconds_absent == 3


async def test_an_agent_forgotten_at_one_server_is_removed_at_the_others() -> None:
    registry = MemoryWorkerRegistry()
    local, remote = Site(registry), Site(registry)
    await remote.connect_worker(registration())
    await local.hub.sync_once()
    await remote.disconnect_worker()
    await remote.hub.forget("desk")
    local.now += 60_000
    await local.hub.sync_once()
    assert (remote.agent_registry.unregistered, local.agent_registry.unregistered) == (["desk"], ["desk"])
    assert local.hub.list_agents() == []


async def test_an_invalid_registry_entry_does_not_affect_the_others(caplog: pytest.LogCaptureFixture) -> None:
    registry = MemoryWorkerRegistry()
    remote = Site(registry)
    await remote.connect_worker(registration("a"), registration("b"))
    registry.entries["a"] = type(registry.entries["a"])("a", "alice", b"", 0, 0)
    found = LocalWorkerHub(registry, MemoryAgentRegistry(), await registry.list(), clock=lambda: 0)
    assert [agent.spec.id for agent in found.agents] == ["b"]
    assert "stored registration of agent a is ignored" in caplog.text
    await remote.disconnect_worker()


async def test_an_id_of_the_app_takes_precedence_over_a_stored_registration(opened: Open) -> None:
    async with opened() as app:
        async with connected_worker(str(app.grpc)) as fake_worker:
            await fake_worker.register(registration())
        entry = (await app.sources.worker_hub._worker_registry.list())[0]
        await app.sources.worker_hub._worker_registry.register(
            replace(entry, agent="echo", registration=b"\x0a\x04echo")
        )
    async with opened() as app, Client(str(app.grpc)) as client:
        await app.sources.worker_hub.sync_once()
        assert [one.agent for one in app.sources.worker_hub.list_agents()] == ["desk"]
        assert (await client.send(message("hello"))).task.status.state == states.COMPLETED


# A server without agents of its own ----------------------------------------------------------------------------------


async def test_a_server_can_have_only_agents_of_workers(opened: Open) -> None:
    async with opened(own=False, workers_only=True) as app, Client(str(app.grpc)) as client:
        assert (app.root, dict(app.agents)) == ("", {})
        async with aiohttp.ClientSession(app.public_url) as http:
            for path, status in (
                ("/", 200),
                ("/agents", 200),
                ("/openapi.json", 200),
                ("/readyz", 200),
                ("/.well-known/agent-card.json", 503),
                ("/anyone/.well-known/agent-card.json", 503),
                ("/tasks/any", 503),
            ):
                async with http.get(path) as answer:
                    assert (path, answer.status) == (path, status)
        async with connected_worker(str(app.grpc)) as fake_worker:
            await fake_worker.register(registration(), registration("before-it"))
            assert app.root == "desk"
            sending = asyncio.create_task(client.send(message("x")))
            turn = await fake_worker.receive("turn_start")
            assert turn.agent_id == "desk"
            await fake_worker.end(turn.turn_id)
            assert (await sending).task.status.state == states.COMPLETED
    async with opened(own=False, workers_only=True) as app:
        assert app.root == "desk"
    async with opened(own=False, workers_only=True, root="third") as app:
        assert app.root == "third"
        async with connected_worker(str(app.grpc)) as fake_worker:
            await fake_worker.register(registration("third"))
        assert app.card_url.endswith("/.well-known/agent-card.json")


def test_an_app_and_workers_only_exclude_each_other() -> None:
    with pytest.raises(SettingsError, match=r'APP "agents.py" would not be served; pass either APP or --workers-only'):
        load_settings({"app": "agents.py", "workers_only": True})


async def test_the_agents_that_a_principal_registers_are_limited() -> None:
    """Each is stored, and listed to every caller, until an operator forgets it."""
    registry = MemoryWorkerRegistry()
    for number in range(MAX_AGENTS_PER_PRINCIPAL - 1):
        text = registration(f"a{number}").SerializeToString(deterministic=True)
        await registry.register(RegisteredAgent(f"a{number}", "alice", text, registered_at=number, last_seen=number))
    hub = LocalWorkerHub(registry, MemoryAgentRegistry(), await registry.list(), clock=lambda: 1_000_000)

    async def welcome(principal: str, *agents: str) -> str:
        async def frames() -> AsyncIterator[wk.ConnectRequest]:
            yield wk.ConnectRequest(hello=wk.Hello(agents=map(registration, agents)))
            await asyncio.Event().wait()

        async with aclosing(hub.connect(frames(), Identity(principal, frozenset(("worker",))), "here")) as responses:
            return (await anext(responses)).welcome.principal

    with pytest.raises(InvalidParams, match=r"hello\.agents: 999 agents .* are known; at most 1000 may be"):
        await welcome("alice", "b0", "b1")
    assert await welcome("alice", "a0", "b0") == "alice"
    assert await welcome("alice", "a1", "a2") == "alice"
    assert await welcome("bob", "c0") == "bob"
    with pytest.raises(InvalidParams, match="1000 agents"):
        await welcome("alice", "b1")
