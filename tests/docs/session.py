"""A shell in an empty folder that is given the commands of a page, one after the other, and real servers with it.

The addresses that pages show are others here, the same for a whole session: each 127.0.0.1:PORT becomes one with a
free port, in commands and files, and turns back into what is shown in what they say.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cli.server import clean_environment
from tests.docs.shown import FOLDER, differs, renamed
from tests.nats import NatsServer, granted
from tests.postgres import Server as Postgres
from tests.postgres import free_port

from tools.pages import ROOT

WAIT_TIMEOUT: Final = 120.0
"""Seconds after which a command that says nothing has failed."""

STAYS: Final = re.compile(
    r"^(?:\w+=\S* )*(?:dragoman|make|python|python -m) (?P<what>serve|worker|flaky|receiver\.py|library\.py|uvicorn)\b"
)
"""A program that stays there while the page goes on in another terminal."""
READY: Final = {
    "serve": 'Ctrl-C|"serving"',
    "worker": "serving ",
    "flaky": "Ctrl-C",
    "receiver.py": "listening",
    "library.py": "Ctrl-C",
    "uvicorn": "Uvicorn running",
}
"""What it says, on stdout or in its log, once it is there: patterns."""
PORT: Final = re.compile(
    r"(?P<host>127\.0\.0\.1|0\.0\.0\.0|localhost|\[::1\]|--port)(?P<between>:|\", | )(?P<port>\d{4,5})\b"
)


class Differs(AssertionError):
    """A command did not do what its page shows."""


@dataclass
class Program:
    """A program that stays: its process, and where its output goes."""

    what: str
    pid: int
    out: Path
    err: Path


class Session:
    """One shell. A context manager: whatever it started ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, str] = {}
        """What stands for the ids that pages show."""
        self.addresses: dict[str, str] = {}
        """What stands for addresses that pages show, as pages would show that."""
        self._ports: dict[str, str] = {}
        self._programs: dict[str, Program] = {}
        self._reported = folder / ".said"
        self._reported.mkdir(parents=True)
        self._count = 0
        http, grpc = f"127.0.0.1:{self._port('8080')}", f"127.0.0.1:{self._port('50051')}"
        environment = clean_environment() | {
            "DRAGOMAN_HTTP": http,
            "DRAGOMAN_GRPC": grpc,
            "DRAGOMAN_URL": f"http://{http}",
            "DRAGOMAN_SERVER": grpc,
            "EXAMPLES": str(ROOT / "examples"),
            "GIVEN": str(ROOT / "tests" / "docs" / "given"),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._tell("set -m")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *about: object) -> None:
        """Kills everything in the shell's session of processes."""
        for pid in self._everything():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._shell.wait()
        assert self._shell.stdin is not None
        self._shell.stdin.close()

    def write(self, name: str, text: str) -> None:
        """A file of the page, with the addresses of this session."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._here(text), "utf-8")

    def have(self, what: str) -> Callable[[], None]:
        """Starts `postgres` or `nats` (with the grants of docs/how-to/postgresql.md) at its usual port; `$WHAT_PID` is
        its process. Gives what ends it."""
        server = Postgres() if what == "postgres" else NatsServer(granted("SECRET"))
        server.port = int(self._port("5432" if what == "postgres" else "4222"))
        server.start()
        if isinstance(server, Postgres):
            self._tell(f"export PGHOST=127.0.0.1 PGPORT={server.port} PGUSER=postgres PATH={server.binaries}:$PATH")
        self._tell(f"{what.upper()}_PID={server.pid}")
        return server.remove

    def enter(self, environment: Path) -> None:
        """Uses another environment's programs and packages, until `leave`."""
        if (modules := environment / "node_modules").exists():
            (self.folder / "node_modules").unlink(missing_ok=True)
            (self.folder / "node_modules").symlink_to(modules)
        self._tell(f"OWN_PATH=$PATH; PATH='{environment / 'bin'}':$PATH")

    def leave(self) -> None:
        self._tell("PATH=$OWN_PATH")

    def run(self, command: str, shown: Sequence[str] = (), *, loosely: bool = False) -> None:
        """Runs a command, and holds what it says against what is shown. Raises Differs.

        One that stays goes on in the background once it is ready, in the place of an earlier one at its address.
        """
        texts, reported_texts, ended = self._carry_out(command)
        why = differs(shown, texts, reported_texts, self.names, folder="/tmp/demo", loosely=loosely) if shown else ""
        if not shown and ended:
            why = f"it failed with {ended}"
        if why:
            raise Differs(
                "\n".join([f"$ {command}", *texts, *(f"(stderr) {line}" for line in reported_texts), f"-- {why}"])
            )

    def shows(
        self, command: str, shown: Sequence[str], *, loosely: bool = False, timeout: float = WAIT_TIMEOUT
    ) -> None:
        """Waits until what a command says has the lines that are shown, in that order. Raises Differs."""
        end = time.monotonic() + timeout
        while True:
            texts, reported_texts, _ = self._carry_out(command)
            why = differs(shown, [], [*texts, *reported_texts], self.names, folder="/tmp/demo", loosely=loosely)
            if not why:
                return
            if time.monotonic() > end:
                raise Differs("\n".join([f"$ {command}", *texts, f"-- {why}"]))
            time.sleep(0.1)

    def _carry_out(self, command: str) -> tuple[list[str], list[str], int]:
        """What a command says on stdout and on stderr, as pages would show it, and how it ended."""
        self._count += 1
        here = renamed(self._here(re.sub("^make serve", "dragoman serve", command)), self.names)
        out, err, code = (self._reported / f"{self._count}.{name}" for name in ("out", "err", "code"))
        stays = STAYS.match(command)
        if stays and "--help" not in command:
            ended = self._start(here, stays["what"], out, err)
        else:
            logs = [program.err for program in self._programs.values()]
            before = sum(len(_read(log)) for log in logs)
            self._tell(f"{{ {here}\n}} </dev/null >'{out}' 2>'{err}'; echo $? >'{code}'")
            self._await(lambda: bool(_read(code).strip()), f"it did not end: {command}")
            if "-HUP" in command:
                self._await(lambda: sum(len(_read(log)) for log in logs) > before, "no server said anything to SIGHUP")
            ended = int(_read(code))
        return self._there(_read(out)), self._there(_read(err)), ended

    def _start(self, command: str, what: str, out: Path, err: Path) -> int:
        """Starts a program that stays; 0 once it is ready, or how it ended."""
        address = re.search(r"--http \S+:(\d+)", command)
        key = f"serve {address[1] if address else self._port('8080')}" if what == "serve" else f"{what} {self._count}"
        if earlier := self._programs.pop(key, None):
            self._tell(f"kill -TERM {earlier.pid} 2>/dev/null")
            self._await(lambda: not _alive(earlier.pid), f"process {earlier.pid} did not stop")
            self._tell("jobs >/dev/null")  # which forgets it, so that the next one is %1 again
        number = out.with_suffix(".pid")
        bare = re.sub(r"\s+#\s.*$", "", command).rstrip().removesuffix("&")
        self._tell(f"LOG='{out} {err}'; {{ {bare} & }} </dev/null >'{out}' 2>'{err}'; echo $! >'{number}'")
        self._await(lambda: bool(_read(number).strip()), f"it was not started: {command}")
        program = Program(what, int(_read(number)), out, err)
        self._await(
            lambda: re.search(READY[what], _read(out) + _read(err)) is not None or not _alive(program.pid),
            f"it is not ready: {command}",
            out,
            err,
        )
        if _alive(program.pid):
            self._programs[key] = program
            return 0
        code = out.with_suffix(".code")
        self._tell(f"wait {program.pid}; echo $? >'{code}'")
        self._await(lambda: bool(_read(code).strip()), "it has no exit code")
        return int(_read(code))

    def _tell(self, line: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(line + "\n")
        self._shell.stdin.flush()

    def _await(self, there: Callable[[], bool], otherwise: str, *tell: Path) -> None:
        """Waits until something is there. Raises Differs, with what files say, after a long while."""
        end = time.monotonic() + WAIT_TIMEOUT
        while not there():
            if self._shell.poll() is not None:
                raise Differs("the shell has ended")
            if time.monotonic() > end:
                raise Differs("\n".join([otherwise, *map(_read, tell)]))
            time.sleep(0.01)

    def _port(self, shown: str) -> str:
        if shown not in self._ports:
            self._ports[shown] = str(free_port())
        return self._ports[shown]

    def _here(self, text: str) -> str:
        """Text of the page with the addresses and the folder of this session."""
        for shown, address in self.addresses.items():
            text = text.replace(shown, address)
        text = PORT.sub(lambda found: f"{found['host']}{found['between']}{self._port(found['port'])}", text)
        return re.sub(FOLDER, str(self.folder), text)

    def _there(self, text: str) -> list[str]:
        """Lines that were said, with the addresses and the folder as pages show them."""
        for shown, port in self._ports.items():
            text = re.sub(rf"\b{port}\b", shown, text)
        for shown, address in self.addresses.items():
            text = text.replace(address, shown)
        text = text.replace(" --grpc 127.0.0.1:50051", "").replace(" --url http://127.0.0.1:8080", "")  # the defaults
        return text.replace(str(self.folder), "/tmp/demo").splitlines()

    def _everything(self) -> list[int]:
        """The processes of the shell's session, the shell last."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[3]) == self._shell.pid:
                    found.append(int(entry.name))
        return sorted(found, reverse=True)


def _read(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.exists() else ""


def _alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
