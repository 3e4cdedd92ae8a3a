"""The servers under load, each a process of its own on the first core: how they are started and where they listen."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.environments import ROOT, Environment

SERVER_CORE: Final = 0
LOAD_CORE: Final = 1
CORES: Final = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
"""The cores this process could use when it began; none where the system cannot bind a process to one."""

WAIT_TIMEOUT: Final = 120.0
"""Seconds a server may take to listen; filling its store is part of it."""

KEPT: Final = ROOT / ".bench"
"""Where stores are while they are measured, and rows for ever. In the tree, since /tmp may be no disk."""

PEERS: Final = Path(__file__).parent / "peers"

Arguments = Callable[["Place"], Sequence[str | Path]]


@dataclass(frozen=True, slots=True)
class Place:
    """What a server is started with: a folder of its own, and ports for those that cannot tell theirs."""

    folder: Path
    ports: dict[str, int]
    tasks: int = 0

    @property
    def log_file(self) -> Path:
        """Where a server writes the addresses that it listens on."""
        return self.folder / "listens"

    @property
    def go(self) -> Path:
        """The file that lets the events for many subscribers begin."""
        return self.folder / "go"

    @property
    def log(self) -> Path:
        return self.folder / "log"


@dataclass(frozen=True, slots=True)
class Contestant:
    """A server that can be measured. `whose` says how it is asked (bench.asking.FORMS)."""

    name: str
    whose: str
    bindings: tuple[str, ...]
    command: Arguments
    environment: Environment | None = None

    @property
    def tells(self) -> bool:
        """Whether it writes where it listens. Ours is started as people start it, and is given its ports."""
        return self.whose != "dragoman"


@dataclass(frozen=True, slots=True)
class Running:
    """A server that listens: HOST:PORT by transport, and how many seconds it took to."""

    contestant: Contestant
    pid: int
    targets: dict[str, str]
    seconds: float
    place: Place

    @property
    def name(self) -> str:
        return self.contestant.name

    def target(self, binding: str) -> str:
        """Where a binding is spoken."""
        return self.targets["grpc" if binding == "grpc" else "http"]


def _bare(transport: str) -> Arguments:
    return lambda place: [sys.executable, "-m", f"bench.bare_{transport}", place.log_file, place.go]


def _ours(store: str) -> Arguments:
    def command(place: Place) -> list[str | Path]:
        addresses = [f"--{name}=127.0.0.1:{port}" for name, port in place.ports.items()]
        where = f"--store={store.format(folder=place.folder)}"
        return [sys.executable, "-m", "dragoman", "serve", "bench/agents.py", *addresses, where]

    return command


def _a2a_sdk(*arguments: str) -> Arguments:
    def command(place: Place) -> list[str | Path]:
        script: list[str | Path] = [
            A2A_SDK.python,
            PEERS / "a2a_sdk" / "server.py",
            place.log_file,
            "--tasks",
            str(place.tasks),
        ]
        return [*script, *(argument.format(folder=place.folder) for argument in arguments)]

    return command


def _fasta2a(place: Place) -> list[str | Path]:
    return [FASTA2A.python, PEERS / "fasta2a" / "server.py", place.log_file]


A2A_SDK: Final = Environment("bench_a2a_sdk", (PEERS / "a2a_sdk" / "requirements.txt",))
FASTA2A: Final = Environment("bench_fasta2a", (PEERS / "fasta2a" / "requirements.txt",))
EVERY: Final = ("grpc", "rest", "jsonrpc")

CONTESTANTS: Final = {
    one.name: one
    for one in (
        Contestant("bare gRPC", "bare", ("grpc",), _bare("grpc")),
        Contestant("bare HTTP", "bare", ("rest", "jsonrpc"), _bare("http")),
        Contestant("dragoman", "dragoman", EVERY, _ours("sqlite:///{folder}/tasks.db")),
        Contestant("a2a-sdk memory", "a2a-sdk", EVERY, _a2a_sdk(), A2A_SDK),
        Contestant("a2a-sdk SQLite", "a2a-sdk", EVERY, _a2a_sdk("--database", "{folder}/tasks.db"), A2A_SDK),
        Contestant("fasta2a", "fasta2a", ("jsonrpc",), _fasta2a, FASTA2A),
    )
}
OURS: Final = "dragoman"


def limit_of(binding: str) -> str:
    """The name of the bare transport of a binding."""
    return "bare gRPC" if binding == "grpc" else "bare HTTP"


def pin(pid: int, core: int) -> None:
    """Binds a process that has just begun to one core, where there are several and the system can."""
    if len(CORES) > 1 and core in CORES:
        os.sched_setaffinity(pid, {core})


@contextmanager
def started(
    contestant: Contestant, *, tasks: int = 0, prepare: Callable[[Place], None] | None = None
) -> Iterator[Running]:
    """The server with a fresh store, until it listens on everything. Raises RuntimeError with the end of its log.

    `tasks`: a peer fills its store with so many. `prepare` may do the same to ours, before it is started.
    """
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT, prefix="run-") as folder:
        place = Place(Path(folder), {} if contestant.tells else {"http": free_port(), "grpc": free_port()}, tasks)
        if prepare is not None:
            prepare(place)
        began = time.perf_counter()
        with place.log.open("wb") as sink:
            try:
                process = subprocess.Popen(contestant.command(place), cwd=ROOT, stdout=sink, stderr=sink)
            except OSError as error:  # its environment could not be made
                raise RuntimeError(f"{contestant.name} did not start: {error}") from None
        pin(process.pid, SERVER_CORE)
        try:
            targets = _wait(contestant, place, process)
            yield Running(contestant, process.pid, targets, time.perf_counter() - began, place)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(contestant: Contestant, place: Place, process: subprocess.Popen[bytes]) -> dict[str, str]:
    deadline = time.monotonic() + WAIT_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        if targets := _listening(contestant, place):
            return targets
        time.sleep(0.002)
    texts = place.log.read_text("utf-8", "replace").strip().splitlines()
    raise RuntimeError(f"{contestant.name} did not start: {texts[-1] if texts else 'it said nothing'}")


def _listening(contestant: Contestant, place: Place) -> dict[str, str]:
    if contestant.tells:
        text = place.log_file.read_text("utf-8") if place.log_file.exists() else ""
        return dict(json.loads(text)) if text.endswith("\n") else {}
    for port in place.ports.values():
        try:
            socket.create_connection(("127.0.0.1", port), 0.1).close()
        except OSError:
            return {}
    return {name: f"127.0.0.1:{port}" for name, port in place.ports.items()}


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tell(file: str, targets: dict[str, str]) -> None:
    """What a server of ours says once it listens: its addresses, as the last thing it does before it waits."""
    Path(file).write_text(json.dumps(targets) + "\n", "utf-8")
