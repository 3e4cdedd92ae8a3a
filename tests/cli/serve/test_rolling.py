"""A rolling restart: servers are drained and restarted one after the other, under load.

Who connects for each call sees no error. Who has a stream sees it break off and takes it up at the other server,
exactly; what is shorter than the drain's limit ends as ever, and nothing is run twice.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster import Cluster
from tests.eventually import eventually
from tests.load.roaming import AGENTS, RoamingClients
from tests.load.transports import BINDINGS
from tests.postgres import execute, needed

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    needed()
    (tmp_path / "agents.py").write_text(AGENTS)
    with Cluster(tmp_path, app="agents.py", serving=("--drain", "30", "--requests-per-second", "0")) as cluster:
        cluster.start()
        yield cluster


@pytest.mark.timeout(300)
async def test_callers_notice_only_a_reconnect(cluster: Cluster) -> None:
    load = RoamingClients(cluster.servers)
    try:
        async with asyncio.TaskGroup() as callers:
            for number, binding in enumerate(BINDINGS * 2):
                callers.create_task(load.sends(number, binding))
                callers.create_task(load.streams(number, binding))
            callers.create_task(load.connects(0))
            for server in cluster.servers:
                wanted = load.seen["streamed"] + 8
                await eventually(lambda: load.seen["streamed"] >= wanted)  # noqa: B023  # so that clients are active on both
                server.send(signal.SIGTERM)
                assert await asyncio.to_thread(server.ends) == 0
                await asyncio.to_thread(server.start)
            load.over.set()
    finally:
        await load.close()
    tasks = await execute(cluster.postgres.url(), "SELECT state, attempt, count(*) FROM tasks GROUP BY 1, 2")
    assert [(row["state"], row["attempt"], row["count"]) for row in tasks] == [
        (pb.TASK_STATE_COMPLETED, 1, sum(load.seen[how] for how in ("sent", "streamed", "connected")))
    ]
    assert load.seen["taken up"] > 0
    assert load.seen["connected"] > 0
    for server in cluster.servers:
        assert '"level": "ERROR"' not in server.log.read_text()
