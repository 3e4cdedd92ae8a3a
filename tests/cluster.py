"""A cluster on this machine: PostgreSQL and NATS from their wheels, servers on one store, and workers.

Every part is a process that tests can kill, pause and restart on the same ports. Its output goes into a file, so that
no pipe has to be read.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.cli.server import clean_environment
from tests.nats import WHO, NatsServer, granted
from tests.postgres import Server as Postgres
from tests.postgres import free_port
from tests.postgres_pair import PostgresPair

START: Final = 60.0
"""Timeout of a start, in seconds."""

END: Final = 60.0
"""Timeout of a stop, in seconds."""


class Part:
    """A process `dragoman WORDS`, with its output in `log`."""

    program: Sequence[str] = ("-m", "dragoman")
    """Arguments of Python before the words."""

    def __init__(self, name: str, words: Sequence[str], folder: Path) -> None:
        self.name = name
        self.words = list(words)
        self.log = folder / f"{name}.log"
        self.python = sys.executable
        self.environment: dict[str, str] = {}
        """Additional environment variables."""
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._reported = 0
        """Offset of the current start in the log."""

    @property
    def pid(self) -> int:
        """The id of the current or last process."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_up(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def drains(self) -> bool:
        """Whether it handles SIGTERM: while it imports its agents, the signal ends it as it ends any program. Linux."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        caught = int(status.split("SigCgt:")[1].split()[0], 16)
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    def start(self, *, ready: bool = True) -> None:
        """Starts it; waits until it serves if `ready`. Raises RuntimeError with its output on failure."""
        self._reported = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self.python, *self.program, *self.words],
                cwd=self._folder, env=clean_environment() | self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        if ready:
            self.await_ready()

    def await_ready(self) -> None:
        """Waits until it serves. Raises RuntimeError with its output on failure."""
        deadline = time.monotonic() + START
        while not self.serves():
            if not self.is_up or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} does not serve:\n{self.output()[-4000:]}")
            time.sleep(0.02)  # no event to wait for

    def serves(self) -> bool:
        """Whether it is ready."""
        raise NotImplementedError

    def output(self) -> str:
        """Its output since the last start."""
        with self.log.open("rb") as log:
            log.seek(self._reported)
            return log.read().decode("utf-8", "replace")

    def send(self, number: signal.Signals) -> None:
        """Sends a signal such as SIGTERM, SIGSTOP or SIGCONT."""
        assert self._process is not None
        self._process.send_signal(number)

    def ends(self, timeout: float = END) -> int:
        """Waits for its end; returns the exit code."""
        assert self._process is not None
        return self._process.wait(timeout)

    def kill(self) -> None:
        """Kills it with SIGKILL, if it was started."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(END)


class ServerPart(Part):
    """`dragoman serve`."""

    def __init__(self, name: str, words: Sequence[str], folder: Path) -> None:
        self.http_port, self.grpc_port = free_port(), free_port()
        self.http, self.grpc = f"http://127.0.0.1:{self.http_port}", f"127.0.0.1:{self.grpc_port}"
        where = ("--http", f"127.0.0.1:{self.http_port}", "--grpc", self.grpc, "--log-format", "json")
        super().__init__(name, ("serve", *words, *where), folder)

    def readyz(self) -> dict[str, Any]:
        """The response of `/readyz`. Raises OSError without one."""
        try:
            with urllib.request.urlopen(f"{self.http}/readyz", timeout=5) as answer:
                values: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                values = json.load(error)
        return values

    def serves(self) -> bool:
        try:
            return self.readyz()["status"] in ("ok", "degraded")
        except (OSError, ValueError):  # not ready yet, or another process has taken the port
            return False


class WorkerPart(Part):
    """`dragoman worker`."""

    def __init__(self, name: str, app: str, server: str, folder: Path, *words: str) -> None:
        super().__init__(
            name, ("worker", app, "--server", server, "--name", name, "--log-format", "json", *words), folder
        )

    def serves(self) -> bool:
        return '"serving ' in self.output()


class Cluster:
    """All parts on one machine, with their files in `folder`."""

    def __init__(
        self,
        folder: Path,
        *,
        app: str = "",
        servers: int = 2,
        workers: int = 0,
        worker_app: str = "dragoman.playground",
        serving: Sequence[str] = (),
        working: Sequence[str] = (),
        postgres: Sequence[str] = (),
        standby: bool = False,
        nats: str = "",
    ) -> None:
        """app: APP of the servers; empty: only agents of workers. serving, working: further options of `dragoman serve`
        and `dragoman worker`. postgres: its settings, such as `shared_buffers=64MB`. standby: PostgreSQL has a
        synchronous standby. nats: further configuration of NATS.

        The second worker connects to the second server, and so on.
        """
        self.folder = folder
        self.nats = NatsServer(granted() + nats)
        self.postgres: Postgres | PostgresPair = PostgresPair(*postgres) if standby else Postgres(*postgres)
        own = [app] if app else ["--workers-only"]
        self.options = [*own, "--store", self.postgres.url(), "--bus", self.nats.url(WHO), *serving]
        self.servers = [ServerPart(f"server-{n}", self.options, folder) for n in range(1, servers + 1)]
        self.workers = [
            WorkerPart(f"worker-{n + 1}", worker_app, self.servers[n % servers].grpc, folder, *working)
            for n in range(workers)
        ]

    @property
    def parts(self) -> list[Part]:
        """Servers and workers."""
        return [*self.servers, *self.workers]

    def add_server(self, name: str, *words: str) -> ServerPart:
        """Adds a server with further options; does not start it."""
        server = ServerPart(name, [*self.options, *words], self.folder)
        self.servers.append(server)
        return server

    def start(self) -> None:
        """Starts all parts, and returns when they are ready."""
        self.nats.start()
        self.postgres.start()
        for part in self.servers:  # the first one creates the tables
            part.start()
        for worker in self.workers:
            worker.start()

    def close(self) -> None:
        """Kills all parts, and removes the data of PostgreSQL and NATS."""
        for part in self.parts:
            part.kill()
        self.nats.remove()
        self.postgres.remove()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
