"""A PostgreSQL of one's own: a server from the wheel `pgserver` for a run of tests, and a database for each of them.

The wheel's own launcher keeps a server for the user; here it is ours to stop, to kill and to start again.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from itertools import cycle
from pathlib import Path

import asyncpg
import pytest

TEMPLATE = "template_of_tests"


def binaries() -> Path | None:
    """Where the wheel has the programs; None on an interpreter for which there is no wheel."""
    spec = importlib.util.find_spec("pgserver")  # importing it would do more than we want
    return Path(spec.origin).parent / "pginstall" / "bin" if spec and spec.origin else None


@cache
def within_reach(programs: Path) -> Path:
    """The programs where any user may enter: a copy of them, if this tree is in a folder that is root's alone."""
    if all(folder.stat().st_mode & stat.S_IXOTH for folder in programs.parents):
        return programs
    package, copy = programs.parents[1], Path(tempfile.mkdtemp(prefix="postgres-programs-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    copy.chmod(0o755)
    shutil.copytree(package / "pginstall", copy / "pgserver" / "pginstall", symlinks=True)
    if (libraries := package.with_name("pgserver.libs")).exists():
        shutil.copytree(libraries, copy / libraries.name)
    return copy / "pgserver" / "pginstall" / "bin"


def needed() -> None:
    """Skips a test where there is no PostgreSQL to be had."""
    if binaries() is None:
        pytest.skip("no PostgreSQL here: the wheel pgserver is not made for this interpreter")


class Server:
    """One server on a port of loopback, in a folder that goes with it."""

    def __init__(self, *settings: str, data: Path | None = None) -> None:
        """settings: such as `fsync=off`. data: a folder that is there already."""
        found = binaries()
        assert found is not None
        self.binaries = found
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self.data = data or self.folder / "data"
        self.port = free_port()
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        # PostgreSQL does not run as root.
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(self.folder, self._user)
            self.binaries = within_reach(found)
        if data is None:
            self.run("initdb", "-D", str(self.data), "-U", "postgres", "-E", "UTF8", "--locale=C", "-A", "trust", "-N")

    @property
    def pid(self) -> int:
        """Of the process that the others belong to."""
        assert self._process is not None
        return self._process.pid

    def run(self, program: str, *arguments: str) -> None:
        """Runs one of PostgreSQL's programs to its end. Raises RuntimeError with what it said."""
        done = subprocess.run(
            [self.binaries / program, *arguments],
            user=self._user, cwd=self.folder, check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stdout}{done.stderr}")

    def start(self, *settings: str) -> None:
        """Starts the server and waits until it answers."""
        arguments = [f"port={self.port}", "listen_addresses=127.0.0.1", "max_connections=200", "shared_buffers=32MB"]
        options = [word for setting in (*arguments, *self._settings, *settings) for word in ("-c", setting)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.data, "-k", self.folder, *options],
                user=self._user, cwd=self.folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + 60
        ready = [str(self.binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False).returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.02)  # there is nothing to wait on

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Ends it: SIGINT undoes what is under way and writes what is committed, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def remove(self) -> None:
        """Stops it and removes its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """Where a database of it is."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    @asynccontextmanager
    async def database(self, name: str) -> AsyncIterator[str]:
        """An empty database, for as long as the block runs; gives its URL."""
        await self._execute(f'CREATE DATABASE "{name}"')
        try:
            yield self.url(name)
        finally:
            await self._execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    async def _execute(self, sql: str) -> None:
        connection = await asyncpg.connect(self.url())
        try:
            await connection.execute(sql)
        finally:
            await connection.close()


def free_port() -> int:
    """A port of loopback that nobody listens on, nor is given by the system before somebody here does."""
    while True:
        port = next(_ports)
        with suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            return port


@pytest.fixture
async def own_postgres() -> AsyncIterator[Server]:
    """A server that a test may stop."""
    needed()
    server = await asyncio.to_thread(Server)
    try:
        await asyncio.to_thread(server.start)
        yield server
    finally:
        await asyncio.to_thread(server.remove)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server of this run."""
    needed()
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
async def postgres_url(postgres: Server, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """An empty database for one test."""
    name = f"t{os.getpid()}_{next(_numbers)}"
    async with postgres.database(name) as url:
        yield url


@pytest.fixture
def postgres_database(postgres: Server) -> Iterator[str]:
    """The same for a test that runs no event loop."""
    name = f"t{os.getpid()}_{next(_numbers)}"
    where = ("-h", "127.0.0.1", "-p", str(postgres.port), "-U", "postgres")
    postgres.run("createdb", *where, name)
    yield postgres.url(name)
    postgres.run("dropdb", *where, "--force", name)


_numbers = iter(range(1, 1_000_000))

_PORTS = range(16_000, 30_000)
"""Below those that systems give to whoever wants any one, and to every connection that goes out."""

_first = secrets.randbelow(len(_PORTS))
_ports: Iterator[int] = cycle([*_PORTS[_first:], *_PORTS[:_first]])
"""One after the other from anywhere on, so that two processes hardly ever try the same at a time."""


async def execute(url: str, sql: str, *values: object) -> list[asyncpg.Record]:
    """Runs one statement by a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        found: list[asyncpg.Record] = await connection.fetch(sql, *values)
        return found
    finally:
        await connection.close()
