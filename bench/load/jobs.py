"""Jobs of the load process, and the parent's side of it: one process on the second core runs one job at a time."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from bench.servers.contestants import LOAD_CORE, pin
from tools.environments import ROOT

JOB_TIMEOUT: Final = 180.0
"""Seconds that a job may take beyond 30 times its own duration: some servers are slow."""


@dataclass(frozen=True, slots=True)
class Job:
    """One load on one server."""

    kind: str
    binding: str
    implementation: str
    target: str
    pid: int
    """The server's process, whose CPU time is read."""
    callers: int = 1
    seconds: float = 1.0
    tools: bool = True
    """Whether wrk and h2load may be used."""
    start_file: str = ""
    """The file whose creation starts the events for many subscribers."""
    state: str = ""
    """The filter of ListTasks."""
    pages: tuple[int, ...] = ()
    """The pages of ListTasks that are timed."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Result of a job. `count`: responses or events. `p50`, `p99`: milliseconds. CPU: seconds."""

    kind: str
    count: int
    seconds: float
    p50: float
    p99: float
    server_cpu: float
    load_cpu: float
    tool: str
    size: float = 0.0
    """Bytes of a response, on average."""
    head_size: int = 0
    """Bytes of the response headers, over gRPC."""
    threads: dict[str, float] = field(default_factory=dict)
    """CPU seconds of each of the server's threads, by number and name."""


class LoadFailed(Exception):
    """Wrong responses, no response, or a crash of the load process, with its message."""


class LoadProcess:
    """The load process. Exiting the context ends it; a crashed or hanging process is replaced at the next job."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, job: Job) -> dict[str, Any]:
        """Runs a job and returns its result. Raises LoadFailed."""
        process = self._process or self._begin()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(asdict(job)) + "\n")
            process.stdin.flush()
        except OSError:
            self._end()
            raise LoadFailed("the load process has ended") from None
        if not select.select([process.stdout], [], [], JOB_TIMEOUT + job.seconds * 30)[0]:
            self._end()
            raise LoadFailed("the job timed out")
        line = process.stdout.readline()
        if not line:
            self._end()
            raise LoadFailed("the load process crashed")
        result: dict[str, Any] = json.loads(line)
        if "wrong" in result:
            raise LoadFailed(result["wrong"])
        return result

    def _begin(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "bench.load.process"]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        pin(process.pid, LOAD_CORE)
        self._process = process
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # it has no state to save
            process.communicate()
