"""`dragoman serve --store postgresql://...` as processes: two servers on one store, and one of them is killed."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.server import serving
from tests.postgres import execute, free_port
from typer.testing import CliRunner

from dragoman.cli import cli

pytestmark = pytest.mark.long

AGENTS = """
import asyncio
from dragoman import Turn, agent, retry

@agent(default=True)
async def echo(turn: Turn) -> str:
    return turn.text

@agent(on_crash=retry(2))
async def slow(turn: Turn):
    yield f"attempt {turn.attempt}"
    if turn.attempt == 1:
        await asyncio.sleep(3600)
"""


@pytest.fixture
def url(postgres_database: str) -> str:
    return postgres_database


def test_servers_share_a_store_and_take_over_from_one_that_dies(tmp_path: Path, dragoman: Run, url: str) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    with ExitStack() as stack:
        one, other = (stack.enter_context(serving("agents.py", "--store", url, cwd=tmp_path)) for _ in range(2))
        assert one.startup_info["store"] == url
        sent = dragoman("send", "hello", "--json", "--server", one.grpc)
        task = json.loads(sent.out)["task"]["id"]
        assert json.loads(dragoman("get", task, "--json", "--server", other.grpc).out)["id"] == task
        running = dragoman("send", "x", "--agent", "slow", "--no-wait", "--server", one.grpc).out.split()[0]
        while not asyncio.run(execute(url, "SELECT 1 FROM tasks WHERE state = 2 AND agent = 'slow'")):
            pass
        one.signal(signal.SIGKILL)
        assert one.ends() == -signal.SIGKILL
        # The other server detects that the process has died, and repeats the turn.
        followed = dragoman("watch", running, "--agent", "slow", "--server", other.grpc)
        assert "attempt 2" in followed.out
        done = json.loads(dragoman("get", running, "--agent", "slow", "--json", "--server", other.grpc).out)
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"


def test_an_invalid_database_is_rejected_without_showing_the_password(tmp_path: Path, url: str) -> None:
    missing = url.replace("postgres@", "postgres:secret-of-mine@") + "_missing"
    with serving("--store", missing, cwd=tmp_path, ready=False) as server:
        assert server.ends() == 1
        message = server.err.rest()
    assert message.startswith(f"error: the store {missing.replace(':secret-of-mine', '')} cannot be opened: ")
    assert "there is no database with this name" in message
    assert "secret-of-mine" not in message
    assert len(message.splitlines()) == 1


def test_a_start_waits_for_a_database_that_is_away_and_can_be_stopped(tmp_path: Path) -> None:
    port = free_port()
    url = f"postgresql://me:secret-of-mine@127.0.0.1:{port}/tasks"
    with serving("--store", url, cwd=tmp_path, ready=False, text=True) as server:
        line = server.err.until("the start waits for PostgreSQL")
        assert f"WARNING dragoman.store: the start waits for PostgreSQL at 127.0.0.1:{port}: [Errno 111]" in line
        assert "it cannot be reached; check that it is running there and listening" in line
        server.signal(signal.SIGTERM)
        assert server.ends() == 0
        assert "secret-of-mine" not in "\n".join((*server.err.seen, server.err.rest(), server.out.rest()))


@pytest.mark.parametrize("url", ["postgresql://me:secret-of-mine@host", "postgresql://me:secret-of-mine@/?x=1"])
def test_a_url_without_a_database_is_rejected_without_showing_the_password(url: str) -> None:
    result = CliRunner().invoke(cli, ["serve", "--store", url])
    assert result.exit_code == 2
    assert "is not the URL of a store; use sqlite:///PATH" in result.output
    assert "secret-of-mine" not in result.output


def test_operator_commands_work_beside_the_servers(tmp_path: Path, dragoman: Run, url: str) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    with serving("agents.py", "--store", url, cwd=tmp_path) as server:
        task = json.loads(dragoman("send", "hello", "--json", "--server", server.grpc).out)["task"]["id"]
        exported = dragoman("export", task, "--store", url)
        assert task in exported.out.splitlines()[0]
        purged = dragoman("purge", "--task", task, "--store", url)
        assert "1 task" in purged.out
        for verb in (("backup", str(tmp_path / "copy"), "--store", url), ("restore", str(tmp_path), "--store", url)):
            refused = dragoman(*verb)
            assert refused.code == 1
            assert "pg_dump" in refused.err
        refused = dragoman("backup", str(tmp_path / "copy"), "--server", server.grpc)
        assert refused.code == 3
        assert "pg_dump" in refused.err
