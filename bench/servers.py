"""Starting the servers under load, each in a process of its own, pinned to the first core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).resolve().parent.parent
SERVER_CORE: Final = 0
LOAD_CORE: Final = 1
PATIENCE: Final = 30.0
"""Seconds a server may take to say where it listens."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where to aim: HOST:PORT by transport. `agents` says that ours answers, not fixed bytes."""

    name: str
    targets: dict[str, str]
    agents: bool


def pin(pid: int, core: int) -> None:
    """Binds a process that has just begun to one core, where there are several and the system can."""
    if hasattr(os, "sched_setaffinity") and core in os.sched_getaffinity(0):
        os.sched_setaffinity(pid, {core})


@contextmanager
def bare(transport: str) -> Iterator[Server]:
    """The transport with an empty handler."""
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder, "port")
        command = [sys.executable, "-m", f"bench.bare_{transport}", str(port_file)]
        with _process(command) as process:
            port = _wait(lambda: port_file.read_text() if port_file.exists() else "", process)
            yield Server(f"bare {transport}, uvloop", {transport: f"127.0.0.1:{port}"}, agents=False)


@contextmanager
def dragoman(synchronous: str = "full") -> Iterator[Server]:
    """Our server with a fresh SQLite store."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "dragoman", "serve", "bench/agents.py", "--log-format", "json"),
            *("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--store", f"sqlite:///{folder}/bench.db"),
        ]
        log = Path(folder, "log")
        with log.open("wb") as sink, _process(command, sink, {"DRAGOMAN_SQLITE_SYNCHRONOUS": synchronous}) as process:
            said = json.loads(_wait(lambda: _serving(log), process))
            targets = {"grpc": said["grpc"], "http": said["http"].removeprefix("http://")}
            yield Server(f"dragoman, SQLite {synchronous.upper()}", targets, agents=True)


def _serving(log: Path) -> str:
    return next((line for line in log.read_text("utf-8").splitlines() if '"serving"' in line), "")


@contextmanager
def _process(
    command: list[str], sink: IO[bytes] | None = None, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, cwd=ROOT, stdout=sink, stderr=sink, env={**os.environ, **(environment or {})})
    pin(process.pid, SERVER_CORE)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(15)


def _wait(look: Callable[[], str], process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + PATIENCE
    while not (seen := look()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} did not start")
        time.sleep(0.02)
    return seen
