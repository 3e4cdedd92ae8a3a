"""`dragoman serve --bus nats://...` as processes: two servers on one PostgreSQL and one NATS, both of which may die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run
from tests.cli.server import Server, serving
from tests.nats import PASSWORD, WHO, NatsServer
from tests.postgres import Server as Postgres
from tests.postgres import execute
from typer.testing import CliRunner

from dragoman.cli import cli

pytestmark = pytest.mark.longest

AGENTS = """
import asyncio
from dragoman import Turn, agent, retry

@agent(default=True)
async def echo(turn: Turn) -> str:
    return turn.text

@agent
async def endless(turn: Turn):
    yield "begun"
    await asyncio.sleep(3600)

@agent(on_crash=retry(2))
async def slow(turn: Turn):
    yield f"attempt {turn.attempt}"
    if turn.attempt == 1:
        await asyncio.sleep(3600)
"""


@pytest.fixture
def url(postgres_database: str) -> str:
    return postgres_database


def ready(server: Server) -> dict[str, Any]:
    with urllib.request.urlopen(f"{server.http}/readyz") as answer:
        status: dict[str, Any] = json.load(answer)
        return status


def task_of(text: str) -> str:
    return str(json.loads(text)["task"]["id"])


def begun(url: str, agent: str) -> None:
    """Waits until a task of an agent has produced output."""
    while not asyncio.run(execute(url, "SELECT 1 FROM tasks WHERE last_sequence > 2 AND agent = $1", agent)):
        pass


def test_two_servers_act_as_one_without_nats_and_after_one_dies(
    tmp_path: Path, dragoman: Run, url: str, own_nats: NatsServer
) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    with ExitStack() as stack:
        options = ("agents.py", "--store", url, "--bus", own_nats.url(WHO))
        one, other = (stack.enter_context(serving(*options, cwd=tmp_path)) for _ in range(2))
        assert ready(one) == ready(other) == {"status": "ok"}

        # Sent to one, read and canceled on the other.
        running = task_of(dragoman("send", "x", "--agent", "endless", "--no-wait", "--json", "--server", one.grpc).out)
        begun(url, "endless")
        canceled = dragoman("cancel", running, "--agent", "endless", "--json", "--server", other.grpc)
        assert json.loads(canceled.out)["status"]["state"] == "TASK_STATE_CANCELED"

        # Without NATS the same works with delay.
        own_nats.stop()
        for server in (one, other):
            assert own_nats.url() in server.err.until("is not reachable")
            assert ready(server) == {"status": "degraded", "reason": "bus: not reachable"}
        done = task_of(dragoman("send", "hello", "--json", "--server", one.grpc).out)
        assert json.loads(dragoman("get", done, "--json", "--server", other.grpc).out)["artifacts"]
        resumed = task_of(dragoman("send", "x", "--agent", "slow", "--no-wait", "--json", "--server", one.grpc).out)
        begun(url, "slow")
        own_nats.start()
        for server in (one, other):
            server.err.until("reconnected to the bus")
            assert ready(server) == {"status": "ok"}

        # One dies: its session expires after ten seconds; then the other repeats the turn.
        one.signal(signal.SIGKILL)
        assert one.ends() == -signal.SIGKILL
        assert "attempt 2" in dragoman("watch", resumed, "--agent", "slow", "--server", other.grpc).out
        other.signal(signal.SIGTERM)
        assert other.ends() == 0
        assert PASSWORD not in "\n".join((one.err.rest(), other.err.rest(), *other.out.seen))


def test_a_server_starts_without_its_nats(tmp_path: Path, dragoman: Run, url: str, own_nats: NatsServer) -> None:
    own_nats.stop()
    with serving("--store", url, "--bus", own_nats.url(WHO), cwd=tmp_path) as server:
        assert ready(server)["status"] == "degraded"
        assert dragoman("send", "hello", "--server", server.grpc).code == 0
        own_nats.start()
        server.err.until("reconnected to the bus")
        assert ready(server) == {"status": "ok"}


def test_two_stores_on_one_prefix_do_not_mix(
    tmp_path: Path, postgres: Postgres, url: str, own_nats: NatsServer
) -> None:
    with ExitStack() as stack:
        bus = ("--bus", own_nats.url(WHO))
        one = stack.enter_context(serving("--store", url, *bus, cwd=tmp_path))
        asyncio.run(execute(postgres.url(), f'CREATE DATABASE "other_{os.getpid()}"'))
        stack.callback(
            lambda: asyncio.run(execute(postgres.url(), f'DROP DATABASE "other_{os.getpid()}" WITH (FORCE)'))
        )
        other = stack.enter_context(
            serving("--store", postgres.url(f"other_{os.getpid()}"), *bus, cwd=tmp_path, ready=False)
        )
        for server in (one, other):
            assert "--bus-prefix" in server.err.until("a server of another store")
        assert ready(one) == {"status": "degraded", "reason": "bus: servers of another store use the same prefix"}


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--bus", "nats://me:secret-of-mine@host"), "an SQLite store has one server"),
        (("--store", "postgresql://x/y", "--bus-prefix", "a b"), "--bus-prefix"),
        (("--store", "postgresql://x/y", "--bus-prefix", "a."), "--bus-prefix"),
    ],
)
def test_an_invalid_bus_is_rejected_without_showing_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], rule: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["serve", *words])
    assert result.exit_code == 2
    assert rule in result.output
    assert "secret-of-mine" not in result.output


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (
            ("--bus", "http://me:secret-of-mine@host"),
            "--bus: no extension has buses with such an address; known schemes: nats:// (NATS, needs dragoman[nats])",
        ),
        (("--bus", "nats://host", "--bus-credentials", "nowhere.creds"), "nowhere.creds cannot be read"),
        (("--bus", "tls://host", "--bus-ca", "agents.py"), "agents.py holds no certificates"),
    ],
)
def test_an_invalid_bus_address_is_rejected_without_showing_the_password(
    tmp_path: Path, url: str, words: tuple[str, ...], rule: str
) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    with serving("--store", url, *words, cwd=tmp_path, ready=False) as server:
        assert server.ends() == 2
        text = server.err.rest()
    assert rule in text
    assert "secret-of-mine" not in text
