"""Upgrades and the way back, under load, on either store: an older release, this one, the next one, and this one again.

Whoever calls meanwhile sees what a restart shows: a stream breaks off and is taken up, a new message goes elsewhere or
waits. Nothing that was acknowledged is lost, nothing runs twice.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests import releases
from tests.cluster import Cluster, ServerPart
from tests.eventually import eventually
from tests.load.roaming import AGENTS, RoamingClients
from tests.load.transports import BINDINGS
from tests.postgres import execute, needed
from tests.releases import Release

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.longest

OPTIONS = ("--drain", "60", "--requests-per-second", "0")

ENDED = "SELECT state, attempt, count(*) AS tasks FROM tasks GROUP BY 1, 2"


@asynccontextmanager
async def under_load(servers: list[ServerPart]) -> AsyncIterator[RoamingClients]:
    """Clients over every binding that send and stream until the block ends. None may fail."""
    load = RoamingClients(servers)
    try:
        async with asyncio.TaskGroup() as callers:
            for number, binding in enumerate(BINDINGS):
                callers.create_task(load.sends(number, binding))
                callers.create_task(load.streams(number, binding))
            yield load
            load.over.set()
    finally:
        await load.close()


async def go_on(load: RoamingClients) -> None:
    """Waits until every client has received a result."""
    streams, sends = load.seen["streamed"] + 2 * len(BINDINGS), load.seen["sent"] + len(BINDINGS)
    await eventually(lambda: load.seen["streamed"] >= streams and load.seen["sent"] >= sends, seconds=90)


async def replace(server: ServerPart, release: Release) -> None:
    """Stops a server and starts another release on its addresses."""
    server.send(signal.SIGTERM)
    assert await asyncio.to_thread(server.ends, 90) == 0
    server.environment = release.environment
    await asyncio.to_thread(server.start)


def refuses(server: ServerPart, release: Release, version: int) -> None:
    """Asserts that the release rejects a store of schema `version` with the reason."""
    server.environment = release.environment
    server.start(ready=False)
    assert server.ends(60) == 1
    assert f"the store has schema {version}; this version of Dragoman knows up to " in server.output()


def serves(server: ServerPart, release: Release) -> None:
    """Asserts that the release serves the store."""
    server.environment = release.environment
    server.start()
    server.send(signal.SIGTERM)
    assert server.ends(90) == 0


def no_errors(servers: Sequence[ServerPart]) -> None:
    for server in servers:
        assert [line for line in server.log.read_text().splitlines() if '"level": "ERROR"' in line] == []


@pytest.mark.timeout(600)
async def test_replicas_are_upgraded_and_downgraded_one_by_one(tmp_path: Path) -> None:
    needed()
    old, new, next_one = releases.before(tmp_path / "old"), releases.this(), releases.to_come(tmp_path / "next")
    (tmp_path / "agents.py").write_text(AGENTS)
    with Cluster(tmp_path, app="agents.py", servers=3, serving=OPTIONS) as cluster:
        spare = ServerPart("spare", cluster.options, tmp_path)
        for server in cluster.servers:
            server.environment = old.environment
        await asyncio.to_thread(cluster.start)
        url = cluster.postgres.url()

        async def schema() -> int:
            return int((await execute(url, "SELECT value FROM meta WHERE name = 'schema'"))[0]["value"])

        async with under_load(cluster.servers) as load:
            await go_on(load)
            assert await schema() == old.schema("postgres")
            for server in cluster.servers:  # the first of them migrates the store beneath the others
                await replace(server, new)
                assert await schema() == new.schema("postgres")
                await go_on(load)
            if new.can_be_served_by(old, "postgres"):
                await asyncio.to_thread(serves, spare, old)
            else:
                await asyncio.to_thread(refuses, spare, old, new.schema("postgres"))
            for server in cluster.servers[:2]:
                await replace(server, next_one)
                await go_on(load)
            assert await schema() == next_one.schema("postgres") > new.schema("postgres")
            await replace(cluster.servers[2], new)  # a restart of a server that is not upgraded yet
            await go_on(load)
            for server in cluster.servers[:2]:  # downgrade
                await replace(server, new)
                await go_on(load)
            assert await schema() == next_one.schema("postgres")
        rows = await execute(url, ENDED)
        assert [tuple(row) for row in rows] == [(pb.TASK_STATE_COMPLETED, 1, load.seen["sent"] + load.seen["streamed"])]
        assert load.seen["taken up"] > 0
        assert "of a newer release; this release has schema" in cluster.servers[2].log.read_text()
        no_errors(cluster.servers)


@pytest.mark.timeout(600)
async def test_an_sqlite_store_is_upgraded_and_downgraded(tmp_path: Path) -> None:
    old, new, next_one = releases.before(tmp_path / "old"), releases.this(), releases.to_come(tmp_path / "next")
    (tmp_path / "agents.py").write_text(AGENTS)
    path = tmp_path / "tasks.db"
    server = ServerPart("server", ["agents.py", "--store", f"sqlite:///{path}", *OPTIONS], tmp_path)
    server.environment = old.environment
    try:
        await asyncio.to_thread(server.start)
        async with under_load([server]) as load:
            await go_on(load)
            assert versions(path) == (old.schema("sqlite"), str(old.oldest("sqlite")))
            for release in (new, next_one, new):
                await replace(server, release)
                await go_on(load)
            assert versions(path) == (next_one.schema("sqlite"), str(new.schema("sqlite")))
        server.send(signal.SIGTERM)
        assert await asyncio.to_thread(server.ends, 90) == 0
        if next_one.can_be_served_by(old, "sqlite"):
            await asyncio.to_thread(serves, server, old)
        else:
            await asyncio.to_thread(refuses, server, old, next_one.schema("sqlite"))
    finally:
        server.kill()
    with sqlite3.connect(path) as connection:
        rows = connection.execute(ENDED).fetchall()
    connection.close()
    assert rows == [(pb.TASK_STATE_COMPLETED, 1, load.seen["sent"] + load.seen["streamed"])]
    no_errors([server])


def versions(path: Path) -> tuple[int, str]:
    """The schema of a store, and the oldest schema whose programs may serve it."""
    with sqlite3.connect(path) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (oldest,) = connection.execute("SELECT max(value) FROM meta WHERE name = 'oldest'").fetchone()
    connection.close()
    return version, oldest
