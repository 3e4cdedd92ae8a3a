"""The supervisor of several servers on the same ports, with small programs as servers; see also test_replicas.py."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.eventually import eventually
from typer.testing import CliRunner

from dragoman.cli import cli
from dragoman.cli.serve import processes
from dragoman.cli.serve.processes import ProcessSupervisor, check_multiprocess, reserved_address
from dragoman.core.durations import Backoff
from dragoman.ports.extension import StartError
from dragoman.settings.settings import Address, Settings, SettingsError

CHILD = """
import signal, socket, sys, os
log, end = open(sys.argv[1], "a", buffering=1), socket.socket(fileno=int(sys.argv[-1]))
print("begun", os.getpid(), file=log)
{before}
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda came, _: (print(signal.Signals(came).name, file=log), came == 1 or sys.exit({code})))
end.sendall(b'{{"ready": true}}\\n')
while word := end.recv(4096):
    print("announced", word.decode().strip(), file=log)
print("orphan", file=log)
"""
"""A program that behaves like a server towards its supervisor."""


class SupervisedPrograms:
    """A supervisor with such programs, and their output."""

    def __init__(
        self,
        folder: Path,
        number: int = 2,
        before: str = "",
        code: int = 0,
        *,
        reload: bool = False,
        kill_after: float = 60.0,
    ) -> None:
        self.log = folder / "log"
        self.log.touch()
        program = CHILD.format(before=before, code=code)
        self.supervisor = ProcessSupervisor(
            [[sys.executable, "-c", program, str(self.log)]] * number, reload=reload, kill_after=kill_after
        )

    def output(self, word: str) -> list[str]:
        """Returns the lines that begin with this word, without it."""
        lines = (line.partition(" ") for line in self.log.read_text().splitlines())
        return [rest for first, _, rest in lines if first == word]

    async def until(self, word: str, number: int = 1) -> list[str]:
        """Waits until the word was written this number of times."""
        await eventually(lambda: len(self.output(word)) >= number)
        return self.output(word)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "RESTART_BACKOFF", Backoff(0.002, 30.0))


async def test_all_servers_start_one_announces_and_a_signal_stops_all(tmp_path: Path) -> None:
    programs = SupervisedPrograms(tmp_path)
    running = asyncio.create_task(programs.supervisor.run())
    (text,) = await programs.until("announced")
    pids = await programs.until("begun", 2)
    assert text == '{"announce": [' + ", ".join(pids) + "]}"
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    assert programs.output("SIGTERM") == ["", ""]


async def test_a_server_that_dies_is_restarted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    programs = SupervisedPrograms(tmp_path)
    running = asyncio.create_task(programs.supervisor.run())
    await programs.until("announced")
    first = int(programs.output("begun")[0])
    os.kill(first, signal.SIGKILL)
    await programs.until("begun", 3)
    assert f"server 1 (pid {first}) was killed by SIGKILL; restarting it in " in caplog.text
    await eventually(programs.supervisor._ready[1].is_set)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0


async def test_servers_that_do_not_end_are_killed(tmp_path: Path) -> None:
    programs = SupervisedPrograms(tmp_path, before="signal.pthread_sigmask(signal.SIG_BLOCK, {15})", kill_after=0.2)
    running = asyncio.create_task(programs.supervisor.run())
    await programs.until("announced")
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 128 + signal.SIGKILL


async def test_if_the_first_server_fails_no_other_is_started(tmp_path: Path) -> None:
    programs = SupervisedPrograms(tmp_path, 3, before="sys.exit(2)")
    assert await programs.supervisor.run() == 2
    assert len(programs.output("begun")) == 1


async def test_a_server_that_fails_to_start_stops_all(tmp_path: Path) -> None:
    first = tmp_path / "first"
    programs = SupervisedPrograms(
        tmp_path, 2, before=f"os.path.exists({str(first)!r}) and sys.exit(1); open({str(first)!r}, 'w')"
    )
    assert await programs.supervisor.run() == 1
    assert programs.output("announced") == []


async def test_the_highest_exit_code_is_returned(tmp_path: Path) -> None:
    programs = SupervisedPrograms(tmp_path, code=3)
    running = asyncio.create_task(programs.supervisor.run())
    await programs.until("announced")
    os.kill(os.getpid(), signal.SIGINT)
    assert await running == 3


@pytest.mark.parametrize("reload", [True, False])
async def test_sighup_is_forwarded_with_a_certificate_and_else_stops_the_servers(tmp_path: Path, reload: bool) -> None:
    programs = SupervisedPrograms(tmp_path, reload=reload)
    running = asyncio.create_task(programs.supervisor.run())
    await programs.until("announced")
    os.kill(os.getpid(), signal.SIGHUP)
    if reload:
        await programs.until("SIGHUP", 2)
        os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    assert len(programs.output("SIGTERM")) == 2


async def test_servers_detect_the_death_of_the_supervisor(tmp_path: Path) -> None:
    programs = SupervisedPrograms(tmp_path)
    running = asyncio.create_task(programs.supervisor.run())
    await programs.until("announced")
    for server in programs.supervisor._servers.values():
        server.channel.close()
    await programs.until("orphan", 2)
    os.kill(os.getpid(), signal.SIGTERM)
    await running


def test_a_reserved_port_is_shared_by_our_servers_only() -> None:
    with reserved_address("--http", Address("127.0.0.1", 0)) as address, ExitStack() as stack:
        assert address.port
        for _ in range(2):
            ours = stack.enter_context(socket.socket())
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            ours.bind((address.host, address.port))
            ours.listen()
        with pytest.raises(OSError, match="Address already in use"):
            stack.enter_context(socket.socket()).bind((address.host, address.port))
        with (
            pytest.raises(StartError, match=f"^{address} is already in use; stop the other process or pass --grpc "),
            reserved_address("--grpc", address),
        ):
            pass


def test_a_foreign_address_is_rejected() -> None:
    nowhere = Address("192.0.2.1", 8080)
    with (
        pytest.raises(StartError, match=r"^192\.0\.2\.1:8080 is not an address of this machine; .*--http HOST:PORT$"),
        reserved_address("--http", nowhere),
    ):
        pass


def test_several_processes_on_sqlite_are_rejected_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["serve", "--processes", "4"])
    assert result.exit_code == 2
    assert (
        "--processes 4: an SQLite store supports only one process; pass --processes 1, or a shared store"
        in result.output
    )
    assert list(tmp_path.iterdir()) == []


def test_a_system_on_which_no_port_is_shared_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_REUSEPORT", raising=False)
    settings = Settings(store="postgresql://localhost/d", processes=2)
    with pytest.raises(SettingsError, match="cannot share a port on this system; pass --processes 1"):
        check_multiprocess(settings)
