"""`dragoman worker` as a process of its own, for tests that start, stop and kill it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cli.server import PROCESS_TIMEOUT, Lines, clean_environment

AGENTS: Final = Path(__file__).with_name("agents.py")


@dataclass
class WorkerProcess:
    """A running worker."""

    process: subprocess.Popen[str]
    err: Lines

    @property
    def pid(self) -> int:
        return self.process.pid

    def await_ready(self) -> None:
        """Waits until the server serves its agents, for the first or another time."""
        self.err.until('"serving ')

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        """Its exit code, when it has one."""
        return self.process.wait(PROCESS_TIMEOUT)


@contextmanager
def worker_process(
    *arguments: str, server: str, cwd: Path, app: Path = AGENTS, ready: bool = True
) -> Iterator[WorkerProcess]:
    """A worker for as long as the block runs; it is killed if it is still there then."""
    words = [sys.executable, "-m", "dragoman", "worker", str(app), "--server", server, "--log-format", "json"]
    process = subprocess.Popen(
        [*words, *arguments],
        cwd=cwd,
        env=clean_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    worker = WorkerProcess(process, Lines(process.stderr))
    try:
        if ready:
            worker.await_ready()
        yield worker
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
