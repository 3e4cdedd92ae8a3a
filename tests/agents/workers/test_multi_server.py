"""The bus tells other servers immediately about new workers and upstream agents; polling of the store is off here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.agents.upstream.agent_server import agent_server, card
from tests.agents.workers.conftest import echo
from tests.agents.workers.fake_worker import connected_worker, registration
from tests.eventually import eventually
from tests.nats import WHO, NatsServer

from dragoman.agents.upstream import registry
from dragoman.agents.workers import hub
from dragoman.client.operations import Operator
from dragoman.settings.settings import Settings
from dragoman.wiring.app import App, open_app
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("patient_bus")]


@pytest.fixture(autouse=True)
def _no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "WORKER_SYNC_INTERVAL", 3600.0)
    monkeypatch.setattr(registry, "UPSTREAM_SYNC_INTERVAL", 3600.0)


@asynccontextmanager
async def open_two_servers(url: str, nats: NatsServer) -> AsyncIterator[tuple[App, App]]:
    """Two servers on one store and one bus."""
    settings: dict[str, Any] = {"store": url, "bus": nats.url(WHO), "http": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    async with AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(open_app(Settings(**settings), [echo])) for _ in range(2)]
        yield first, second


async def test_an_agent_of_a_worker_is_known_to_all_servers_immediately(postgres_url: str, nats: NatsServer) -> None:
    async with open_two_servers(postgres_url, nats) as (one, other):
        async with connected_worker(str(one.grpc)) as fake_worker:
            await fake_worker.register(registration("desk"))
            await eventually(lambda: "desk" in other.agents)
            assert other.runtime.scheduler.queues.seconds_absent("desk") == 0
        # Until then, the first server prefers the description of its own worker.
        await eventually(lambda: not one.sources.worker_hub.list_agents()[0].workers)
        # The worker reconnects to the other server with another card.
        async with connected_worker(str(other.grpc)) as fake_worker:
            await fake_worker.register(
                registration("desk", card=pb.AgentCard(name="Desk", description="With drawers now"))
            )
            await eventually(lambda: one.agents["desk"].description == "With drawers now")


async def test_an_added_upstream_agent_is_served_by_all_servers_immediately(
    postgres_url: str, nats: NatsServer
) -> None:
    async with open_two_servers(postgres_url, nats) as (one, other), agent_server() as remote:
        url = remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc")))
        async with Operator(str(one.grpc)) as operator:
            added = (await operator.add_upstream(ops.AddUpstreamRequest(url=url))).upstream.agent
            await eventually(lambda: added in other.agents)
        async with Operator(str(other.grpc)) as operator:
            await operator.remove_upstream(ops.RemoveUpstreamRequest(agent=added))
            await eventually(lambda: added not in one.agents)
