"""`dragoman serve` as a separate process, for tests that start, stop and kill it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

PROCESS_TIMEOUT: Final = 60.0
"""Seconds to wait for a line."""


class Lines:
    """Reads the lines of a pipe as they arrive; earlier lines stay in `seen`."""

    def __init__(self, pipe: IO[str]) -> None:
        self.seen: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._reader.start()

    def _read(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def until(self, text: str) -> str:
        """Returns the next line that contains `text`."""
        while True:
            line = self._queue.get(timeout=PROCESS_TIMEOUT)
            if line is None:
                raise AssertionError(f"it ended without saying {text!r}; it said:\n" + "\n".join(self.seen))
            self.seen.append(line)
            if text in line:
                return line

    def rest(self) -> str:
        """Returns all lines, after the process has ended."""
        while (line := self._queue.get(timeout=PROCESS_TIMEOUT)) is not None:
            self.seen.append(line)
        self._queue.put(None)
        return "\n".join(self.seen)


@dataclass
class Server:
    """A running server. `told` is its log line `serving`, or empty in text form."""

    process: subprocess.Popen[str]
    out: Lines
    err: Lines
    startup_info: dict[str, Any] = field(default_factory=dict)

    @property
    def grpc(self) -> str:
        return str(self.startup_info["grpc"])

    @property
    def http(self) -> str:
        return str(self.startup_info["http"])

    def await_ready(self) -> None:
        """Waits until it serves, after a start or a restart."""
        self.startup_info = json.loads(self.err.until('"serving"'))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        """Waits for the exit and returns the exit code."""
        return self.process.wait(PROCESS_TIMEOUT)


def clean_environment() -> dict[str, str]:
    """The environment without settings of a server, and with unbuffered output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
    return kept | {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "COLUMNS": "200", "XDG_CONFIG_HOME": "/nonexistent"}


def start(
    *arguments: str,
    cwd: Path,
    ready: bool = True,
    text: bool = False,
    grpc: str = "127.0.0.1:0",
    http: str = "127.0.0.1:0",
    open_files: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Server:
    """Starts `dragoman serve ARGUMENTS` in `cwd` on free ports; waits until it serves if `ready`.

    open_files: the soft and hard limit of its descriptors; None: those of this process. environment: more variables.
    """
    limit = ("sh", "-c", f'ulimit -n {open_files}; exec "$@"', "sh") if open_files else ()
    words = [*limit, sys.executable, "-m", "dragoman", "serve", *arguments, "--http", http, "--grpc", grpc]
    process = subprocess.Popen(
        [*words, "--log-format", "text" if text else "json"],
        cwd=cwd,
        env=clean_environment() | dict(environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    server = Server(process, Lines(process.stdout), Lines(process.stderr))
    try:
        if ready and text:
            server.out.until("Ctrl-C")
        elif ready:
            server.await_ready()
    except BaseException:
        process.kill()  # no other code can stop it yet
        process.wait()
        raise
    return server


@contextmanager
def serving(
    *arguments: str,
    cwd: Path,
    ready: bool = True,
    text: bool = False,
    grpc: str = "127.0.0.1:0",
    open_files: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """A server while the block runs; it is killed at the end if it still runs."""
    server = start(
        *arguments, cwd=cwd, ready=ready, text=text, grpc=grpc, open_files=open_files, environment=environment
    )
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait()
