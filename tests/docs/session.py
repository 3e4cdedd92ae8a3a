"""A shell in an empty folder that runs the commands of a page, with real servers.

Each 127.0.0.1:PORT of the page is replaced by a free port in commands and files, the same one during a session, and
replaced back in their output.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
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
"""Seconds for a command to end or to become ready."""

STAYS: Final = re.compile(
    r"^(?:\w+=\S* )*(?:dragoman|make|python|python -m) (?P<what>serve|worker|flaky|receiver\.py|library\.py|uvicorn)\b"
)
"""A command that keeps running in the background."""
READY: Final = {
    "serve": 'Ctrl-C|"serving"',
    "worker": "serving ",
    "flaky": "Ctrl-C",
    "receiver.py": "listening",
    "library.py": "Ctrl-C",
    "uvicorn": "Uvicorn running",
}
"""Patterns in its output or log that show that it is ready."""
PORT: Final = re.compile(
    r"(?P<host>127\.0\.0\.1|0\.0\.0\.0|localhost|\[::1\]|--port)(?P<between>:|\", | )(?P<port>\d{4,5})\b"
)

NEEDS_HTTP: Final = re.compile(r"--binding (?:rest|jsonrpc|ws)(?! --server)")
"""What needs an HTTP address, which the environment of a session, DRAGOMAN_SERVER=HOST:PORT, does not name."""


class Differs(AssertionError):
    """The output of a command differs from its page."""


@dataclass
class Program:
    """A background program and its output files."""

    what: str
    pid: int
    out: Path
    err: Path


class Session:
    """One shell. A context manager that kills all its processes at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, str] = {}
        """Actual ids by shown id."""
        self.addresses: dict[str, str] = {}
        """Replacement addresses by shown address."""
        self._ports: dict[str, str] = {}
        self._programs: dict[str, Program] = {}
        self._output = folder / ".output"
        self._output.mkdir(parents=True)
        self._count = 0
        http, grpc = f"127.0.0.1:{self._port('8080')}", f"127.0.0.1:{self._port('50051')}"
        environment = clean_environment() | {
            "DRAGOMAN_HTTP": http,
            "DRAGOMAN_GRPC": grpc,
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
        self._type("set -m")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *about: object) -> None:
        """Kills all processes of the shell's session."""
        for pid in self._processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._shell.wait()
        assert self._shell.stdin is not None
        self._shell.stdin.close()

    def write(self, name: str, text: str) -> None:
        """Writes a file of the page, with the addresses of this session."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._with_addresses(text), "utf-8")

    def start_service(self, name: str) -> Callable[[], None]:
        """Starts `postgres` or `nats` (with the grants of docs/how-to/postgresql.md) on its default port.

        `$NAME_PID` is its process. Returns a function that stops it.
        """
        server = Postgres() if name == "postgres" else NatsServer(granted("SECRET"))
        server.port = int(self._port("5432" if name == "postgres" else "4222"))
        server.start()
        if isinstance(server, Postgres):
            self._type(f"export PGHOST=127.0.0.1 PGPORT={server.port} PGUSER=postgres PATH={server.binaries}:$PATH")
        self._type(f"{name.upper()}_PID={server.pid}")
        return server.remove

    def link(self, name: str, target: Path) -> None:
        """Links a name in the folder to a file or folder elsewhere."""
        (self.folder / name).symlink_to(target)

    def export(self, variables: Mapping[str, str]) -> None:
        """Sets environment variables of later commands, as they are."""
        for name, value in variables.items():
            self._type(f"export {name}={shlex.quote(value)}")

    def enter(self, environment: Path) -> None:
        """Uses programs and packages of another environment until `leave`."""
        if (modules := environment / "node_modules").exists():
            (self.folder / "node_modules").unlink(missing_ok=True)
            (self.folder / "node_modules").symlink_to(modules)
        self._type(f"OWN_PATH=$PATH; PATH='{environment / 'bin'}':$PATH")

    def leave(self) -> None:
        self._type("PATH=$OWN_PATH")

    def run(self, command: str, shown: Sequence[str] = (), *, loosely: bool = False) -> None:
        """Runs a command and compares its output. Raises Differs.

        A background program continues when it is ready, and replaces an earlier one at the same address.
        """
        out, err, exit_code = self._execute(command)
        why = differs(shown, out, err, self.names, folder="/tmp/demo", loosely=loosely) if shown else ""
        if not shown and exit_code:
            why = f"exit code {exit_code}"
        if why:
            raise Differs("\n".join([f"$ {command}", *out, *(f"(stderr) {line}" for line in err), f"-- {why}"]))

    def shows(
        self, command: str, shown: Sequence[str], *, loosely: bool = False, timeout: float = WAIT_TIMEOUT
    ) -> None:
        """Repeats a command until its output has the shown lines in this order. Raises Differs."""
        end = time.monotonic() + timeout
        while True:
            out, err, _ = self._execute(command)
            why = differs(shown, [], [*out, *err], self.names, folder="/tmp/demo", loosely=loosely)
            if not why:
                return
            if time.monotonic() > end:
                raise Differs("\n".join([f"$ {command}", *out, f"-- {why}"]))
            time.sleep(0.1)

    def _execute(self, command: str) -> tuple[list[str], list[str], int]:
        """Executes a command. Returns stdout and stderr as pages show them, and the exit code."""
        self._count += 1
        here = renamed(self._with_addresses(re.sub("^make serve", "dragoman serve", command)), self.names)
        out, err, code = (self._output / f"{self._count}.{name}" for name in ("out", "err", "code"))
        stays = STAYS.match(command)
        if stays and "--help" not in command:
            exit_code = self._start(here, stays["what"], out, err)
        else:
            logs = [program.err for program in self._programs.values()]
            before = sum(len(_read(log)) for log in logs)
            self._type(f"{{ {here}\n}} </dev/null >'{out}' 2>'{err}'; echo $? >'{code}'")
            self._await(lambda: bool(_read(code).strip()), f"timeout: {command}")
            if "-HUP" in command:
                self._await(lambda: sum(len(_read(log)) for log in logs) > before, "no server logged SIGHUP")
            exit_code = int(_read(code))
        return self._as_shown(_read(out)), self._as_shown(_read(err)), exit_code

    def _start(self, command: str, what: str, out: Path, err: Path) -> int:
        """Starts a background program. Returns 0 once it is ready, or its exit code."""
        address = re.search(r"--http \S+:(\d+)", command)
        key = f"serve {address[1] if address else self._port('8080')}" if what == "serve" else f"{what} {self._count}"
        if earlier := self._programs.pop(key, None):
            self._type(f"kill -TERM {earlier.pid} 2>/dev/null")
            self._await(lambda: not _alive(earlier.pid), f"process {earlier.pid} did not stop")
            # The shell may not have seen its end yet. Then it is removed from the job table: the next one is %1.
            self._type(f"wait {earlier.pid} 2>/dev/null; jobs >/dev/null")
        number = out.with_suffix(".pid")
        bare = re.sub(r"\s+#\s.*$", "", command).rstrip().removesuffix("&")
        self._type(f"LOG='{out} {err}'; {{ {bare} & }} </dev/null >'{out}' 2>'{err}'; echo $! >'{number}'")
        self._await(lambda: bool(_read(number).strip()), f"not started: {command}")
        program = Program(what, int(_read(number)), out, err)
        self._await(
            lambda: re.search(READY[what], _read(out) + _read(err)) is not None or not _alive(program.pid),
            f"not ready: {command}",
            out,
            err,
        )
        if _alive(program.pid):
            self._programs[key] = program
            return 0
        code = out.with_suffix(".code")
        self._type(f"wait {program.pid}; echo $? >'{code}'")
        self._await(lambda: bool(_read(code).strip()), "no exit code")
        return int(_read(code))

    def _type(self, line: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(line + "\n")
        self._shell.stdin.flush()

    def _await(self, condition: Callable[[], bool], otherwise: str, *logs: Path) -> None:
        """Waits for a condition. After a timeout raises Differs with the contents of the logs."""
        end = time.monotonic() + WAIT_TIMEOUT
        while not condition():
            if self._shell.poll() is not None:
                raise Differs("the shell has ended")
            if time.monotonic() > end:
                raise Differs("\n".join([otherwise, *map(_read, logs)]))
            time.sleep(0.01)

    def _port(self, shown: str) -> str:
        if shown not in self._ports:
            self._ports[shown] = str(free_port())
        return self._ports[shown]

    def _with_addresses(self, text: str) -> str:
        """Replaces shown addresses and folder by those of this session."""
        for shown, address in self.addresses.items():
            text = text.replace(shown, address)
        text = NEEDS_HTTP.sub(r"\g<0> --server http://127.0.0.1:8080", text)
        text = PORT.sub(lambda found: f"{found['host']}{found['between']}{self._port(found['port'])}", text)
        return re.sub(FOLDER, str(self.folder), text)

    def _as_shown(self, text: str) -> list[str]:
        """Splits output into lines, with addresses and folder as pages show them."""
        for shown, port in self._ports.items():
            text = re.sub(rf"\b{port}\b", shown, text)
        for shown, address in self.addresses.items():
            text = text.replace(address, shown)
        text = text.replace(" --server 127.0.0.1:50051", "").replace(" --server http://127.0.0.1:8080", "")  # defaults
        return text.replace(str(self.folder), "/tmp/demo").splitlines()

    def _processes(self) -> list[int]:
        """The process ids of the shell's session, the shell last."""
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
    """Whether a process is running. A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
