"""Servers in roles, and several behind one port, as processes on one PostgreSQL and one NATS; any of them may die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.cli.server import PROCESS_TIMEOUT, clean_environment
from tests.cluster import Cluster, ServerPart
from tests.eventually import eventually_blocking
from tests.postgres import needed

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]  # a dozen processes start, one after the other

AGENTS = """
import asyncio, os
from dragoman import Turn, agent, retry

@agent(default=True)
async def echo(turn: Turn) -> str:
    return turn.text

@agent
async def who(turn: Turn) -> str:
    return str(os.getpid())

@agent(on_crash=retry(2))
async def slow(turn: Turn):
    yield f"attempt {turn.attempt}"
    if turn.attempt == 1:
        await asyncio.sleep(3600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    needed()
    (tmp_path / "agents.py").write_text(AGENTS)
    return tmp_path


def dragoman(*words: str) -> str:
    """Runs a command that must succeed, and returns its output."""
    done = subprocess.run(
        [sys.executable, "-m", "dragoman", *words],
        env=clean_environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines(server: ServerPart, message: str) -> list[dict[str, Any]]:
    """The log records with this message since the last start."""
    response = (json.loads(line) for line in server.output().splitlines(keepends=True) if line.endswith("\n"))
    return [line for line in response if message in line["message"]]


def test_servers_accept_tasks_and_workers_run_them(folder: Path) -> None:
    with Cluster(folder, app="agents.py", servers=1, serving=("--role", "server")) as cluster:
        (server,) = cluster.servers
        workers = [cluster.add_server(f"runner-{number}", "--role", "worker") for number in range(2)]
        cluster.start()
        assert dragoman("send", "hello", "--server", server.grpc) == "hello\n"

        # A worker serves only health checks.
        assert workers[0].readyz() == {"status": "ok"}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{workers[0].http}/.well-known/agent-card.json")
        assert "cannot connect" in unreachable(workers[0])

        # The process that runs the turn dies and the other worker repeats it; the server never runs it.
        task = json.loads(dragoman("send", "x", "--agent", "slow", "--no-wait", "--json", "--server", server.grpc))[
            "task"
        ]
        eventually_blocking(
            lambda: "attempt 1" in dragoman("get", task["id"], "--agent", "slow", "--server", server.grpc)
        )
        workers[0].kill()
        workers[1].kill()
        workers[1].start()
        assert "attempt 2" in dragoman("watch", task["id"], "--agent", "slow", "--server", server.grpc)

        # Without a worker a task waits, and the first worker runs it.
        workers[1].send(signal.SIGTERM)
        assert workers[1].ends() == 0
        late = json.loads(dragoman("send", "late", "--no-wait", "--json", "--server", server.grpc))["task"]["id"]
        assert "It waits for a process that runs its agent" in dragoman("explain", late, "--server", server.grpc)
        workers[0].start()
        assert "late" in dragoman("watch", late, "--server", server.grpc)


def unreachable(server: ServerPart) -> str:
    """Returns the response to a GET request."""
    done = subprocess.run(
        [sys.executable, "-m", "dragoman", "send", "hello", "--server", server.grpc],
        env=clean_environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    return done.stderr


def ran(server: ServerPart) -> set[int]:
    """The processes that ran some turns, each sent over a separate connection."""
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "who?"}]}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    request = urllib.request.Request(
        f"{server.http}/who/message:send", json.dumps({"message": message}).encode(), headers
    )
    found = set()
    for _ in range(16):
        with urllib.request.urlopen(request, timeout=PROCESS_TIMEOUT) as answer:
            found.add(int(json.load(answer)["task"]["artifacts"][0]["parts"][0]["text"]))
    return found


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_several_processes_act_as_one_server(folder: Path) -> None:
    with Cluster(folder, app="agents.py", servers=1, serving=("--processes", "2")) as cluster:
        (server,) = cluster.servers
        cluster.start()
        (value,) = eventually_blocking(lambda: lines(server, "serving"))
        first, second = value["processes"]
        assert (value["pid"], value["grpc"]) == (server.pid, server.grpc)
        assert ran(server) == {first, second}

        # One dies, the other serves alone until it is restarted.
        os.kill(first, signal.SIGKILL)
        (ended,) = eventually_blocking(lambda: lines(server, f"server 1 (pid {first}) was killed by SIGKILL"))
        assert ended["level"] == "ERROR"
        now = eventually_blocking(lambda: found if len(found := ran(server)) == 2 else set())
        assert second in now
        assert first not in now

        # One signal drains all.
        server.send(signal.SIGTERM)
        assert server.ends() == 0
        assert not any(map(is_there, now))
        assert [len(lines(server, "serving")), len(lines(server, "stopped"))] == [1, 2]

        # If only the supervisor is killed, no server remains.
        server.start()
        (value,) = eventually_blocking(lambda: lines(server, "serving"))
        server.kill()
        eventually_blocking(lambda: not any(map(is_there, value["processes"])))
