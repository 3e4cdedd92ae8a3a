"""`serve --processes N`: a parent that keeps N servers alive behind the same ports.

The parent serves nothing. It keeps the ports, starts the first server, which makes the tables or says what is wrong,
then the others, and starts again whoever ends without being told to. Signals go to the parent, and so to all of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from dragoman.cli import process_setup
from dragoman.cli.process_setup import Signals
from dragoman.core.backoff import Backoff
from dragoman.settings.settings import Address, Settings, SettingsError
from dragoman.wiring.infra import StartError, check_role

RESTART_BACKOFF: Final = Backoff(0.5, 30.0)
"""Until a server that ended is started again; longer each time that it ends soon."""

RESTART_RESET_AFTER: Final = 60.0
"""Seconds after which a server's end has nothing to do with its start any more."""

log = logging.getLogger("dragoman.processes")


def check_multiprocess(settings: Settings) -> None:
    """Raises SettingsError for several processes where there can be one only."""
    if not settings.is_shared:
        raise SettingsError(
            f"--processes {settings.processes}: an SQLite store has one process, which holds its file; use 1, or a "
            "store for several: --store postgresql://USER@HOST/DATABASE, and --bus nats://HOST"
        )
    check_port_sharing()
    check_role(settings)


def run_processes(arguments: Sequence[str], settings: Settings) -> int:
    """Runs `dragoman ARGUMENTS` so often as the settings say, until a signal. Gives the exit code.

    Raises StartError, SettingsError.
    """
    check_multiprocess(settings)
    process_setup.configure_logging(settings.log_format)
    if not settings.bus.get_secret_value():
        log.warning(
            "without --bus these processes tell each other nothing: a stream at another one than that which runs its "
            "task is up to 2 s late, and a cancel has to meet that one"
        )
    with ExitStack() as stack:
        words = ["--processes", "1"]
        for option, address in (("--http", settings.http), ("--grpc", settings.grpc)):
            if option == "--http" or settings.role != "worker":
                words += [option, str(stack.enter_context(reserved_address(option, address)))]
        command = [sys.executable, "-m", "dragoman", *arguments, *words]
        commands = [[*command, *_metrics_arguments(settings, number)] for number in range(settings.processes)]
        return asyncio.run(ProcessSupervisor(commands, reload=bool(settings.tls_cert or settings.card_file)).run())


def _metrics_arguments(settings: Settings, number: int) -> Sequence[str]:
    """Where one of them shows how it is: each has numbers of its own, so their ports follow one another."""
    if settings.metrics is None or not settings.metrics.port:
        return ()
    return ("--metrics", str(Address(settings.metrics.host, settings.metrics.port + number)))


class ServerProcess:
    """One server: its process, and what is said with it."""

    def __init__(self, number: int, command: Sequence[str]) -> None:
        self.number = number
        self._command = command
        self._channel: SupervisorChannel | None = None
        self._process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()

    @property
    def pid(self) -> int:
        """Of the process that runs, or ran last."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Starts it. A terminal's signals do not reach it, so that each is heard once."""
        self.ready.clear()
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._process = await asyncio.create_subprocess_exec(
                *self._command, "--supervised", str(number), pass_fds=(number,), process_group=0
            )
        self._channel = SupervisorChannel(ours)
        await self._channel.open()

    async def wait(self) -> int:
        """Its exit code, when it has one; meanwhile notes that it is ready."""
        assert self._process is not None
        assert self._channel is not None
        while (said := await self._channel.receive()) is not None:
            if said.get("ready"):
                self.ready.set()
        self._channel.close()
        return await self._process.wait()

    def announce(self, pids: Sequence[int]) -> None:
        """Has it print what one server would print."""
        assert self._channel is not None
        self._channel.send(announce=list(pids))

    def send_signal(self, number: int) -> None:
        """Sends a signal, if it is still there."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


class ProcessSupervisor:
    """All of them."""

    def __init__(self, commands: Sequence[Sequence[str]], *, reload: bool) -> None:
        """`commands`: of each. `reload`: SIGHUP is theirs, to look at files; else it ends them."""
        self._children = [ServerProcess(number, command) for number, command in enumerate(commands, 1)]
        self._reload = reload
        self._stopping = asyncio.Event()
        self._exit_codes: list[int] = []

    async def run(self) -> int:
        """Starts them, and keeps them until a signal. Gives the worst of their exit codes."""
        telling = asyncio.create_task(self._handle_signals(Signals()), name="signals")
        first, *others = self._children
        keeping = [asyncio.create_task(self._keep_running(first), name="server 1")]
        if await self._all_ready([first], keeping):
            keeping += [asyncio.create_task(self._keep_running(one), name=f"server {one.number}") for one in others]
            if await self._all_ready(others, keeping):
                first.announce([one.pid for one in self._children])
        await asyncio.gather(*keeping)
        telling.cancel()
        return max(self._exit_codes, default=0)

    async def _all_ready(self, children: Sequence[ServerProcess], supervisions: Sequence[asyncio.Task[None]]) -> bool:
        """Waits until these serve; False when one of all has ended for good before that, which ends all."""
        waiting = asyncio.create_task(_wait_all(one.ready for one in children))
        await asyncio.wait((waiting, *supervisions), return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return not self._stopping.is_set()
        waiting.cancel()
        self._stop(signal.SIGTERM)
        return False

    async def _keep_running(self, child: ServerProcess) -> None:
        """Starts one, again and again, until all are to stop, or until it has never been ready."""
        clock, restarts, was_ready = asyncio.get_running_loop().time, 0, False
        while not self._stopping.is_set():
            begun = clock()
            await child.start()
            if self._stopping.is_set():  # the signal went to the one before
                child.send_signal(signal.SIGTERM)
            code = await child.wait()
            was_ready = was_ready or child.ready.is_set()
            if self._stopping.is_set() or not was_ready:
                self._exit_codes.append(code if code >= 0 else 128 - code)
                return
            restarts = 1 if clock() - begun >= RESTART_RESET_AFTER else restarts + 1
            pause = RESTART_BACKOFF.delay(restarts)
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            log.error("server %d (pid %d) %s; it is started again in %g s", child.number, child.pid, how, pause)
            try:
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    async def _handle_signals(self, signals: Signals) -> None:
        """Ctrl-C and SIGTERM: the first one drains, the second stops now; a third one ends the parent alone."""
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_sighup)
        while True:
            await signals.next()
            self._stop(signal.SIGTERM)

    def _on_sighup(self) -> None:
        if self._reload:
            for child in self._children:
                child.send_signal(signal.SIGHUP)
        else:
            self._stop(signal.SIGTERM)

    def _stop(self, number: int) -> None:
        self._stopping.set()
        for child in self._children:
            child.send_signal(number)


async def _wait_all(events: Iterable[asyncio.Event]) -> None:
    for one in events:
        await one.wait()


class SupervisorChannel:
    """One end."""

    def __init__(self, end_socket: socket.socket) -> None:
        self._socket = end_socket
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @classmethod
    def inherited(cls, number: int) -> SupervisorChannel:
        """The end of a child, by the number of its file. Raises OSError when there is no such socket."""
        os.set_inheritable(number, False)  # what this child starts shall not keep it open
        return cls(socket.socket(fileno=number))

    async def open(self) -> None:
        """Begins to talk."""
        self._socket.setblocking(False)
        self._streams = await asyncio.open_connection(sock=self._socket)

    def send(self, **fields: Any) -> None:
        """Says something, to whoever is still there."""
        assert self._streams is not None
        self._streams[1].write(json.dumps(fields).encode() + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """What the other end says next; None when it is gone."""
        assert self._streams is not None
        try:
            line = await self._streams[0].readline()
        except OSError:
            return None
        return dict(json.loads(line)) if line.endswith(b"\n") else None

    def close(self) -> None:
        """Ends it."""
        if self._streams is not None:
            self._streams[1].close()
        else:
            self._socket.close()


def check_port_sharing() -> None:
    """Raises SettingsError where the system does not give connections to one of several processes on a port."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise SettingsError("--processes: this system does not share a port among processes (SO_REUSEPORT); use 1")


@contextmanager
def reserved_address(option: str, address: Address) -> Iterator[Address]:
    """Keeps an address for as long as the block runs, without listening there; gives it with the port that it has.

    Nobody else may listen there: the system would give them some of the connections. Raises StartError.
    """
    with ExitStack() as stack:
        try:
            found = socket.getaddrinfo(
                address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            port = address.port
            for family, kind, proto, _, (host, *_) in dict.fromkeys(found):
                with _bound_socket(family, kind, proto, str(host), port, socket.SO_REUSEADDR) as alone:
                    port = alone.getsockname()[1]
                stack.enter_context(_bound_socket(family, kind, proto, str(host), port, socket.SO_REUSEPORT))
        except OSError as error:
            why = error.strerror or "taken by another process, or no address of this machine"
            raise StartError(
                f"{option}: cannot listen on {address}: {why}; choose another, or port 0 for any"
            ) from error
        yield Address(address.host, port)


def _bound_socket(family: int, kind: int, proto: int, host: str, port: int, option: int) -> socket.socket:
    """Raises OSError."""
    one = socket.socket(family, kind, proto)
    try:
        one.setsockopt(socket.SOL_SOCKET, option, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind((host, port))
    except OSError:
        one.close()
        raise
    return one
