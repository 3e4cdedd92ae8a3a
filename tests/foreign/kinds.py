"""A server with an agent of every kind, for the checks of MCP clients.

The function is the playground (mcp_agents.py); the worker, the executor and the upstream agent have its commands as
well. Replicas have the function and the upstream agent only: an executor needs one process.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
START_LIMIT: Final = 60

Serve = Callable[..., AbstractContextManager[dict[str, str]]]
"""Starts a server with the arguments, by default the playground; yields its addresses."""


@contextmanager
def every_kind(serve: Serve, executor_python: Path | None) -> Iterator[dict[str, str]]:
    """Yields the addresses of the server. `executor_python`: of an environment with a2a-sdk 1.x; None for replicas."""
    with serve("dragoman.playground") as upstream:
        options = ["--upstream", f"upstream={upstream['http']}/playground"]
        if executor_python is not None:
            options += ["--executor", f"words={HERE / 'words.py'}:Words", "--executor-python", str(executor_python)]
        with serve(str(HERE / "mcp_agents.py"), *options) as addresses:
            if executor_python is None:
                yield addresses
                return
            with _worker(addresses):
                yield addresses


@contextmanager
def _worker(addresses: dict[str, str]) -> Iterator[None]:
    """A worker of the server, whose agent is known there."""
    command = [sys.executable, "-m", "dragoman", "worker", str(HERE / "mcp_worker.py")]
    with subprocess.Popen(
        [*command, "--server", f"grpc://{addresses['grpc']}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait(f"{addresses['http']}/worker/.well-known/agent-card.json", process)
            yield
        finally:
            process.terminate()


def _wait(card: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(card, timeout=5):
                return
        except urllib.error.HTTPError:
            time.sleep(0.05)
    sys.exit(f"the worker did not start: {card} is missing")
