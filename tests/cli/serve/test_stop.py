"""SIGTERM ends a server within its drain and five seconds, whatever its agents do; and what systemd is told."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest
from tests.agents.workers.tasks import NOW
from tests.agents.workers.worker_process import worker_process
from tests.cli.server import Lines, clean_environment, serving
from tests.eventually import eventually

from dragoman.client.calls import Client, message

pytestmark = pytest.mark.long

AGENTS: Final = """
import asyncio, atexit, concurrent.futures, threading, time
from pathlib import Path
from dragoman import Turn, agent

STUBBORN = []

async def ignores_every_cancel():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

@agent(default=True)
async def stubborn(turn: Turn) -> str:
    Path("stubborn").touch()
    await ignores_every_cancel()
    return "no"

@agent
def threaded(turn: Turn) -> str:
    Path("threaded").touch()
    while True:
        time.sleep(0.1)

@agent
async def leaves(turn: Turn) -> str:
    threading.Thread(target=time.sleep, args=(3600,), name="left-behind").start()
    concurrent.futures.ThreadPoolExecutor(1).submit(time.sleep, 3600)
    STUBBORN.append(asyncio.create_task(ignores_every_cancel(), name="left-task"))
    async def unclosable():
        try:
            yield 1
        finally:
            await ignores_every_cancel()
    stream = unclosable()
    STUBBORN.append(stream)
    await anext(stream)
    atexit.register(time.sleep, 3600)
    Path("leaves").touch()
    return "done"

async def sender_has_its_answer(agent):
    while not Path(f"answered {agent}").exists():
        await asyncio.sleep(0.01)

@agent
async def waits(turn: Turn) -> str:
    Path("waits").touch()
    await asyncio.Event().wait()
    return "no"

@agent
async def spins(turn: Turn) -> str:
    await sender_has_its_answer("spins")
    Path("spins").touch()
    while True:
        pass

@agent
async def sleeps(turn: Turn) -> str:
    await sender_has_its_answer("sleeps")
    Path("sleeps").touch()
    time.sleep(3600)
    return "no"
"""

DRAIN: Final = 0.5
"""Then, and `STOP_GRACE` later, the process ends; its agents would go on for an hour."""


async def begin(address: str, folder: Path, *agents: str) -> None:
    for agent in agents:
        async with Client(address, agent=agent) as client:
            await client.send(message("x"), configuration=NOW)
        (folder / f"answered {agent}").touch()
        await eventually((folder / agent).exists)


@pytest.mark.parametrize(
    ("agents", "named"),
    [
        (
            ("stubborn", "threaded", "leaves"),
            ["turn of agent stubborn (task ", "task left-task (agents.py, line ", "thread left-behind ("],
        ),
        (("leaves",), ["thread ThreadPoolExecutor-"]),
        (("sleeps",), ["turn of agent sleeps (task ", "thread MainThread (agents.py, line "]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_signal_ends_the_process_whatever_its_agents_do(
    tmp_path: Path, agents: tuple[str, ...], named: list[str]
) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    with serving("agents.py", "--drain", str(DRAIN), cwd=tmp_path) as server:
        asyncio.run(begin(server.grpc, tmp_path, *agents))
        server.signal(signal.SIGTERM)
        assert server.ends() == 1
        line = next(line for line in server.err.rest().splitlines() if "the stop took too long" in line)
        assert [name for name in named if name not in line] == []


def test_ctrl_c_at_a_terminal_does_not_wait_for_the_default_drain(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    main, terminal = pty.openpty()
    words = [sys.executable, "-m", "dragoman", "serve", "agents.py", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
    process = subprocess.Popen(
        words, cwd=tmp_path, env=clean_environment(), stdin=terminal, stderr=terminal, stdout=subprocess.PIPE, text=True
    )
    os.close(terminal)
    assert process.stdout is not None
    try:
        address = Lines(process.stdout).until("  gRPC").split()[1]
        asyncio.run(begin(address, tmp_path, "waits"))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0  # the default drain is 300 s
    finally:
        process.kill()
        process.wait()
        os.close(main)


def test_a_second_signal_ends_the_process_before_its_drain_is_over(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    with serving("agents.py", "--drain", "3600", cwd=tmp_path) as server:
        asyncio.run(begin(server.grpc, tmp_path, "spins"))
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGINT)
        assert server.ends() == 1


def test_a_signal_ends_a_worker_whatever_its_agents_do(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    app = tmp_path / "agents.py"
    with (
        serving("--workers-only", cwd=tmp_path) as server,
        worker_process("--drain", str(DRAIN), server=server.grpc, cwd=tmp_path, app=app) as worker,
    ):
        asyncio.run(begin(server.grpc, tmp_path, "threaded", "spins"))
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 1
        assert "turn of agent spins (task " in worker.err.rest()


# systemd ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_when_the_server_is_ready_alive_and_stopping(tmp_path: Path, abstract: bool) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    name = f"@dragoman-test-{time.time_ns()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name[1:] if abstract else name)
        systemd.settimeout(60)

        def until(state: bytes) -> list[bytes]:
            received = [systemd.recv(100)]
            while received[-1] != state:
                received.append(systemd.recv(100))
            return received

        environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000000"}  # few enough that they fit into the socket
        with serving("agents.py", "--drain", "0", cwd=tmp_path, environment=environment) as server:
            until(b"READY=1")
            assert [systemd.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            server.signal(signal.SIGTERM)
            assert set(until(b"STOPPING=1")[:-1]) <= {b"WATCHDOG=1"}
            assert server.ends() == 0


def test_the_watchdog_of_systemd_hears_nothing_from_a_blocked_loop(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        with serving("agents.py", cwd=tmp_path, environment=environment) as server:
            asyncio.run(begin(server.grpc, tmp_path, "sleeps"))
            until = time.monotonic() + 30
            while select.select([systemd], [], [], 2.0)[0]:  # what was sent before
                systemd.recv(100)
                assert time.monotonic() < until
