"""PostgreSQL for tests, from the wheel `pgserver` or the system: a server per run, and a database per test.

The wheel's own launcher shares one server; tests need servers that they can stop, kill and restart.
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    import asyncpg

TEMPLATE = "template_of_tests"


DEBIAN: Final = Path("/usr/lib/postgresql")
"""The folder of Debian's packages: each major version has its programs in a folder of its own, not on PATH."""

MISSING: Final = (
    "PostgreSQL is missing: the wheel pgserver does not exist for this interpreter, and the system has no PostgreSQL "
    "server (on Debian: apt-get install postgresql)"
)


def binaries() -> Path | None:
    """The folder of the programs: those of the wheel, else the newest of Debian, else those on PATH; None without."""
    spec = importlib.util.find_spec("pgserver")  # importing it would have side effects
    if spec and spec.origin:
        return Path(spec.origin).parent / "pginstall" / "bin"
    by_version = sorted(DEBIAN.glob("*/bin/postgres"), key=lambda program: float(program.parts[-3]))
    if by_version:
        return by_version[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path else None


@cache
def within_reach(programs: Path) -> Path:
    """The programs in a folder that any user can read: a copy, if only root can read this tree."""
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
    """Skips a test without PostgreSQL."""
    if binaries() is None:
        pytest.skip(MISSING)


class Server:
    """A server on a loopback port, with a folder of its own."""

    def __init__(self, *settings: str, data: Path | None = None) -> None:
        """settings: such as `fsync=off`. data: an existing data folder."""
        found = binaries()
        assert found is not None
        self.binaries = found
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self.data = data or self.folder / "data"
        self.port = free_port()
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._templates: set[str] = set()
        # PostgreSQL does not run as root.
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(self.folder, self._user)
            self.binaries = within_reach(found)
        if data is None:
            self.run("initdb", "-D", str(self.data), "-U", "postgres", "-E", "UTF8", "--locale=C", "-A", "trust", "-N")

    @property
    def pid(self) -> int:
        """The id of the main process."""
        assert self._process is not None
        return self._process.pid

    def run(self, program: str, *arguments: str) -> None:
        """Runs one of PostgreSQL's programs. Raises RuntimeError with its output."""
        done = subprocess.run(
            [self.binaries / program, *arguments],
            user=self._user, cwd=self.folder, check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stdout}{done.stderr}")

    def start(self, *settings: str) -> None:
        """Starts the server and waits until it accepts connections."""
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
            time.sleep(0.02)  # no event to wait for

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stops it: SIGINT rolls open transactions back and writes committed data, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def freeze(self) -> None:
        """Stops all its processes with SIGSTOP: connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)
        self._signal(signal.SIGSTOP, *self._children())  # the main process starts no more of them

    def thaw(self) -> None:
        """Continues its processes after `freeze`."""
        self._signal(signal.SIGCONT, *self._children())
        self._signal(signal.SIGCONT)

    def kill_all(self) -> None:
        """Kills all its processes, after `freeze`."""
        children = self._children()
        self._signal(signal.SIGKILL, *children)
        self.stop(signal.SIGKILL)
        while any(map(_runs, children)):
            time.sleep(0.01)  # they are not children of this process: no event to wait for

    def _signal(self, number: signal.Signals, *children: int) -> None:
        for pid in children or (self.pid,):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _children(self) -> list[int]:
        folders = (folder for folder in Path("/proc").iterdir() if folder.name.isdecimal())
        return [int(folder.name) for folder in folders if _parent(folder) == self.pid]

    def remove(self) -> None:
        """Stops it and removes its folder."""
        if self._process is not None:
            self.thaw()
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """The URL of a database."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    @asynccontextmanager
    async def database(self, name: str, template: str = "template1") -> AsyncIterator[str]:
        """Creates a database, empty by default, while the block runs; yields its URL."""
        await self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        try:
            yield self.url(name)
        finally:
            await self._execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    async def filled(self, template: str, fill: Callable[[str], Awaitable[None]]) -> str:
        """The name of a template: a database that `fill` was called with, once for this server."""
        if template not in self._templates:
            await self._execute(f'CREATE DATABASE "{template}"')
            await fill(self.url(template))
            self._templates.add(template)
        return template

    async def _execute(self, sql: str) -> None:
        import asyncpg  # most of the tests run without the extra

        connection = await asyncpg.connect(self.url())
        try:
            await connection.execute(sql)
        finally:
            await connection.close()


def _parent(folder: Path) -> int:
    """The parent of a process, from its folder under /proc; 0 for one that has ended."""
    try:
        return int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _runs(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def free_port() -> int:
    """A free loopback port outside the range from which the system assigns ports."""
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
    async with postgres.database(new_name()) as url:
        yield url


@pytest.fixture
def postgres_database(postgres: Server) -> Iterator[str]:
    """The same for a test that runs no event loop."""
    name = new_name()
    options = ("-h", "127.0.0.1", "-p", str(postgres.port), "-U", "postgres")
    postgres.run("createdb", *options, name)
    yield postgres.url(name)
    postgres.run("dropdb", *options, "--force", name)


def new_name() -> str:
    """The name of a database for one test."""
    return f"t{os.getpid()}_{next(_numbers)}"


_numbers = iter(range(1, 1_000_000))

_PORTS = range(16_000, 30_000)
"""Below the ports that systems assign to port 0 and to outgoing connections."""

_first = secrets.randbelow(len(_PORTS))
_ports: Iterator[int] = cycle([*_PORTS[_first:], *_PORTS[:_first]])
"""In order from a random start, so that processes rarely try the same port at once."""


async def execute(url: str, sql: str, *values: object) -> list[asyncpg.Record]:
    """Runs one statement on a connection of its own."""
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        found: list[asyncpg.Record] = await connection.fetch(sql, *values)
        return found
    finally:
        await connection.close()
