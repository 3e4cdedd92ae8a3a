"""Servers under load: their commands, processes on the first core, and addresses."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.environments import ROOT, Environment

SERVER_CORE: Final = 0
LOAD_CORE: Final = 1
CORES: Final = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
"""Cores available at the start; empty on systems without CPU affinity."""

WAIT_TIMEOUT: Final = 120.0
"""Seconds until a server has to listen, including the time to fill its store."""

BENCH_FOLDER: Final = ROOT / ".bench"
"""Folder of the measured stores and of rows. Inside the tree, since /tmp may not be on a disk."""

PEERS: Final = ROOT / "bench" / "peers"

Arguments = Callable[["ServerFolder"], Sequence[str | Path]]


@dataclass(frozen=True, slots=True)
class ServerFolder:
    """Folder of a server, with ports for servers that do not report their own."""

    folder: Path
    ports: dict[str, int]
    tasks: int = 0

    @property
    def address_file(self) -> Path:
        """The file to which a server writes its addresses."""
        return self.folder / "addresses"

    @property
    def start_file(self) -> Path:
        """The file whose creation starts the events for many subscribers."""
        return self.folder / "go"

    @property
    def log(self) -> Path:
        return self.folder / "log"


@dataclass(frozen=True, slots=True)
class Contestant:
    """A server that can be measured. `implementation` selects its codec (bench.load.codecs)."""

    name: str
    implementation: str
    bindings: tuple[str, ...]
    command: Arguments
    environment: Environment | None = None
    folder: Path = ROOT
    """The folder in which its command runs."""
    kinds: tuple[str, ...] | None = None
    """The kinds of load that it supports; None for all."""

    @property
    def writes_addresses(self) -> bool:
        """Whether it writes its addresses to a file. Dragoman is started as users start it, with given ports."""
        return self.implementation != "dragoman"


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A listening server: HOST:PORT by transport, and the seconds that its start took."""

    contestant: Contestant
    pid: int
    targets: dict[str, str]
    seconds: float
    folder: ServerFolder

    @property
    def name(self) -> str:
        return self.contestant.name

    def target(self, binding: str) -> str:
        """Returns HOST:PORT of a binding."""
        return self.targets["grpc" if binding == "grpc" else "http"]


def _bare(transport: str) -> Arguments:
    return lambda server_folder: [
        sys.executable,
        "-m",
        f"bench.servers.bare_{transport}",
        server_folder.address_file,
        server_folder.start_file,
    ]


def _ceiling(server_folder: ServerFolder) -> list[str | Path]:
    store = server_folder.folder / "tasks.db"
    return [sys.executable, "-m", "bench.servers.ceiling", server_folder.address_file, store]


def dragoman_arguments(store: str, *, python: str = sys.executable) -> Arguments:
    """The command of a Dragoman server on a store; `{folder}` in its URL is the server's folder."""

    def command(server_folder: ServerFolder) -> list[str | Path]:
        addresses = [f"--{name}=127.0.0.1:{port}" for name, port in server_folder.ports.items()]
        store_option = f"--store={store.format(folder=server_folder.folder)}"
        return [python, "-m", "dragoman", "serve", "bench/servers/agents.py", *addresses, store_option]

    return command


def _a2a_sdk(*arguments: str) -> Arguments:
    def command(server_folder: ServerFolder) -> list[str | Path]:
        script: list[str | Path] = [
            A2A_SDK_ENVIRONMENT.python,
            PEERS / "a2a_sdk" / "server.py",
            server_folder.address_file,
            "--tasks",
            str(server_folder.tasks),
        ]
        return [*script, *(argument.format(folder=server_folder.folder) for argument in arguments)]

    return command


def _fasta2a(server_folder: ServerFolder) -> list[str | Path]:
    return [FASTA2A_ENVIRONMENT.python, PEERS / "fasta2a" / "server.py", server_folder.address_file]


A2A_SDK_ENVIRONMENT: Final = Environment("bench_a2a_sdk", (PEERS / "a2a_sdk" / "requirements.txt",))
FASTA2A_ENVIRONMENT: Final = Environment("bench_fasta2a", (PEERS / "fasta2a" / "requirements.txt",))
ALL_BINDINGS: Final = ("grpc", "rest", "jsonrpc")
CEILING: Final = "ceiling"
DRAGOMAN: Final = "dragoman"
A2A_SDK_SQLITE: Final = "a2a-sdk SQLite"
FASTA2A: Final = "fasta2a"

CONTESTANTS: Final[dict[str, Contestant]] = {
    one.name: one
    for one in (
        Contestant("bare gRPC", "bare", ("grpc",), _bare("grpc")),
        Contestant("bare HTTP", "bare", ("rest", "jsonrpc"), _bare("http")),
        Contestant(CEILING, "ceiling", ALL_BINDINGS, _ceiling, kinds=("send",)),
        Contestant(DRAGOMAN, "dragoman", ALL_BINDINGS, dragoman_arguments("sqlite:///{folder}/tasks.db")),
        Contestant("a2a-sdk memory", "a2a-sdk", ALL_BINDINGS, _a2a_sdk(), A2A_SDK_ENVIRONMENT),
        Contestant(
            A2A_SDK_SQLITE, "a2a-sdk", ALL_BINDINGS, _a2a_sdk("--database", "{folder}/tasks.db"), A2A_SDK_ENVIRONMENT
        ),
        Contestant(FASTA2A, "fasta2a", ("jsonrpc",), _fasta2a, FASTA2A_ENVIRONMENT),
    )
}


def bare_server_of(binding: str) -> str:
    """Returns the name of the bare server of a binding."""
    return "bare gRPC" if binding == "grpc" else "bare HTTP"


def pin(pid: int, core: int) -> None:
    """Binds a new process to one core, if there are several and the system supports it."""
    if len(CORES) > 1 and core in CORES:
        os.sched_setaffinity(pid, {core})


@contextmanager
def start_server(
    contestant: Contestant, *, tasks: int = 0, prepare: Callable[[ServerFolder], None] | None = None
) -> Iterator[RunningServer]:
    """Starts a server with a new store, and waits until it listens. Raises RuntimeError with the end of its log.

    tasks: number of tasks with which a peer fills its store. prepare: called before the start, such as to fill ours.
    """
    BENCH_FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BENCH_FOLDER, prefix="run-") as folder:
        server_folder = ServerFolder(
            Path(folder), {} if contestant.writes_addresses else {"http": free_port(), "grpc": free_port()}, tasks
        )
        if prepare is not None:
            prepare(server_folder)
        began = time.perf_counter()
        with server_folder.log.open("wb") as sink:
            try:
                process = subprocess.Popen(
                    contestant.command(server_folder), cwd=contestant.folder, stdout=sink, stderr=sink
                )
            except OSError as error:  # its environment could not be made
                raise RuntimeError(f"{contestant.name} did not start: {error}") from None
        pin(process.pid, SERVER_CORE)
        try:
            targets = _wait(contestant, server_folder, process)
            yield RunningServer(contestant, process.pid, targets, time.perf_counter() - began, server_folder)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(contestant: Contestant, server_folder: ServerFolder, process: subprocess.Popen[bytes]) -> dict[str, str]:
    deadline = time.monotonic() + WAIT_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        if targets := _listening(contestant, server_folder):
            return targets
        time.sleep(0.002)
    texts = server_folder.log.read_text("utf-8", "replace").strip().splitlines()
    raise RuntimeError(f"{contestant.name} did not start: {texts[-1] if texts else 'no output'}")


def _listening(contestant: Contestant, server_folder: ServerFolder) -> dict[str, str]:
    if contestant.writes_addresses:
        text = server_folder.address_file.read_text("utf-8") if server_folder.address_file.exists() else ""
        return dict(json.loads(text)) if text.endswith("\n") else {}
    for port in server_folder.ports.values():
        try:
            socket.create_connection(("127.0.0.1", port), 0.1).close()
        except OSError:
            return {}
    return {name: f"127.0.0.1:{port}" for name, port in server_folder.ports.items()}


def free_port() -> int:
    """Returns a free port outside the range from which the system assigns ports, so that no connection takes it."""
    while True:
        port = random.randrange(10_000, 32_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def write_addresses(file: str, targets: dict[str, str]) -> None:
    """Writes the addresses of a bare server, as its last step before it waits."""
    Path(file).write_text(json.dumps(targets) + "\n", "utf-8")
