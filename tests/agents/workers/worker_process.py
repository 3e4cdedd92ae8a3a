"""Runs `dragoman worker` as a process that tests start, stop and kill."""

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
        """Waits until the server serves its agents, after the first or a later connection."""
        self.err.until('"serving ')

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        """Waits for the exit code."""
        return self.process.wait(PROCESS_TIMEOUT)


@contextmanager
def worker_process(
    *arguments: str, server: str, cwd: Path, app: Path | None = AGENTS, ready: bool = True
) -> Iterator[WorkerProcess]:
    """Runs a worker for the block, and kills it afterwards if it still runs."""
    named = [] if app is None else [str(app)]
    words = [sys.executable, "-m", "dragoman", "worker", *named, "--server", server, "--log-format", "json"]
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
