"""The load process, from the outside: started once, on the second core, and given one job after the other."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from dataclasses import asdict
from typing import Any, Final, Self

from bench.job import Job
from bench.servers import LOAD_CORE, pin
from tools.environments import ROOT

WAIT_TIMEOUT: Final = 180.0
"""Seconds that a job may take beyond its own, many times over: some servers are slow."""


class LoadFailed(Exception):
    """Wrong answers, none at all, or a load process that broke off: with what it said."""


class Loader:
    """Leaving it ends the process. One that broke off or hangs is replaced at the next job."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, job: Job) -> dict[str, Any]:
        """What the job found. Raises LoadFailed."""
        process = self._process or self._begin()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(asdict(job)) + "\n")
            process.stdin.flush()
        except OSError:
            self._end()
            raise LoadFailed("the load process is gone") from None
        if not select.select([process.stdout], [], [], WAIT_TIMEOUT + job.seconds * 30)[0]:
            self._end()
            raise LoadFailed("no end to it")
        text = process.stdout.readline()
        if not text:
            self._end()
            raise LoadFailed("the load process broke off")
        answer: dict[str, Any] = json.loads(text)
        if "wrong" in answer:
            raise LoadFailed(answer["wrong"])
        return answer

    def _begin(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "bench.load"]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        pin(process.pid, LOAD_CORE)
        self._process = process
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # it keeps nothing
            process.communicate()
