"""`serve --processes N`: a supervisor that runs N servers on the same ports.

The supervisor serves no requests. It reserves the ports, starts the first server, which creates the tables or reports
errors, then the others, restarts servers that die, and forwards signals to all.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

from dragoman.cli import logs
from dragoman.cli.process_setup import STOP_GRACE, Signals
from dragoman.core.durations import Backoff
from dragoman.settings.extensions import bus_example, shared_store_example
from dragoman.settings.settings import Address, Settings, SettingsError
from dragoman.supervision import Background, start_task, wait_for
from dragoman.wiring.infra import check_role, listen_error
from dragoman.wiring.systemd import READY, STOPPING, ServiceNotifier

RESTART_BACKOFF: Final = Backoff(0.5, 30.0)  # seconds before a server is restarted, doubled with each early exit
RESTART_RESET_AFTER: Final = 60.0  # seconds of uptime after which the delay starts again at its first value
KILL_DELAY: Final = 1.0  # seconds after which a server is killed that should have ended by itself

log = logging.getLogger("dragoman.processes")


def check_multiprocess(settings: Settings) -> None:
    """Raises SettingsError if the settings allow only one process."""
    if not settings.store.is_shared:
        raise SettingsError(
            f"--processes {settings.cluster.processes}: an SQLite store supports only one process; pass --processes 1, "
            f"or a shared store: {shared_store_example()} and {bus_example()}"
        )
    check_role(settings)
    if not hasattr(socket, "SO_REUSEPORT"):
        raise SettingsError("--processes: processes cannot share a port on this system; pass --processes 1")


def run_processes(arguments: Sequence[str], settings: Settings) -> int:
    """Runs `settings.cluster.processes` servers with these arguments until a signal. Returns the exit code.

    Raises StartError, SettingsError.
    """
    check_multiprocess(settings)
    logs.configure_logging(settings.process.log_format, settings.process.log_level)
    if not settings.cluster.bus.get_secret_value():
        log.warning(
            "without --bus the processes only communicate through the store: streams from another process and cancels "
            "are up to 2 s late, and messages to a running turn are read when it ends; pass %s",
            bus_example(),
        )
    with ExitStack() as stack:
        words = ["--processes", "1"]
        for option, address in (("--http", settings.listen.http), ("--grpc", settings.listen.grpc)):
            if option == "--http" or settings.cluster.role != "worker":
                words += [option, str(stack.enter_context(reserved_address(option, address)))]
        command = [sys.executable, "-m", "dragoman", *arguments, *words]
        commands = [[*command, *_metrics_arguments(settings, number)] for number in range(settings.cluster.processes)]
        kill_after = settings.limits.drain + STOP_GRACE + KILL_DELAY
        reload = bool(settings.tls.cert or settings.public.card_file)
        return asyncio.run(ProcessSupervisor(commands, reload=reload, kill_after=kill_after).run())


def _metrics_arguments(settings: Settings, number: int) -> Sequence[str]:
    """The metrics address of one server. Each process has its own metrics, on consecutive ports."""
    if settings.listen.metrics is None or not settings.listen.metrics.port:
        return ()
    return ("--metrics", str(Address(settings.listen.metrics.host, settings.listen.metrics.port + number)))


@dataclass
class ServerProcess:
    """A server in a process of its own, and the channel to it."""

    process: asyncio.subprocess.Process
    channel: SupervisorChannel

    @classmethod
    async def start(cls, command: Sequence[str], option: str) -> Self:
        """Starts a server, whose option `option` is the descriptor of its end of the channel.

        It has a process group of its own, so that it gets a terminal's signals only once.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            process = await asyncio.create_subprocess_exec(
                *command, option, str(number), pass_fds=(number,), process_group=0
            )
        channel = SupervisorChannel(ours)
        await channel.open()
        return cls(process, channel)

    async def wait(self) -> int:
        """Waits until the process has ended. Returns its exit code; -N for the signal N."""
        code = await self.process.wait()
        self.channel.close()
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal if the process is still running."""
        if self.process.returncode is None:
            self.process.send_signal(number)


def exit_code(code: int) -> int:
    """The exit code of a process as a shell tells it."""
    return code if code >= 0 else 128 - code


class ProcessSupervisor:
    """Starts, restarts and stops the server processes."""

    def __init__(self, commands: Sequence[Sequence[str]], *, reload: bool, kill_after: float) -> None:
        """commands: one command line per server. reload: forward SIGHUP to the servers; otherwise SIGHUP stops them.
        kill_after: seconds for them to end after the first signal; C code may keep their Python from running."""
        self._kill_after = kill_after
        self._notifier = ServiceNotifier.from_environment(os.environ)
        self._commands = dict(enumerate(commands, 1))
        self._ready = {number: asyncio.Event() for number in self._commands}
        self._servers: dict[int, ServerProcess] = {}  # by number, once started
        self._reload = reload
        self._stopping = asyncio.Event()
        self._exit_codes: list[int] = []

    async def run(self) -> int:
        """Runs the servers until a signal. Returns the highest exit code."""
        signals = Signals()
        signal_handler = asyncio.create_task(self._handle_signals(signals), name="signals")
        keeping_alive = start_task(Background.WATCHDOG, self._notifier.keep_alive, "of systemd")
        first, *others = self._commands
        supervisions = [asyncio.create_task(self._supervise(first), name="server 1")]
        if await self._all_ready([first], supervisions):
            supervisions += [asyncio.create_task(self._supervise(one), name=f"server {one}") for one in others]
            if await self._all_ready(others, supervisions):
                pids = [self._servers[number].process.pid for number in self._commands]
                self._servers[first].channel.send(announce=pids)
                self._notifier.notify(READY)
        await asyncio.gather(*supervisions)
        signal_handler.cancel()
        keeping_alive.cancel()
        signals.close()
        return max(self._exit_codes, default=0)

    async def _all_ready(self, numbers: Sequence[int], supervisions: Sequence[asyncio.Task[None]]) -> bool:
        """Waits until these servers are ready. If any server ends for good before, stops all and returns False."""
        waiting = asyncio.gather(*(self._ready[number].wait() for number in numbers))
        either: list[asyncio.Future[Any]] = [waiting, *supervisions]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return not self._stopping.is_set()
        waiting.cancel()
        self._stop()
        return False

    async def _supervise(self, number: int) -> None:
        """Runs and restarts one server until the supervisor stops, or until it ends without ever having been ready."""
        clock, restarts, was_ready, ready = asyncio.get_running_loop().time, 0, False, self._ready[number]
        while not self._stopping.is_set():
            begun = clock()
            ready.clear()
            server = self._servers[number] = await ServerProcess.start(self._commands[number], "--supervised")
            if self._stopping.is_set():  # the signal went to the previous process
                server.send_signal(signal.SIGTERM)
            while (message := await server.channel.receive()) is not None:
                if message.get("ready"):
                    ready.set()
            code = await server.wait()
            was_ready = was_ready or ready.is_set()
            if self._stopping.is_set() or not was_ready:
                self._exit_codes.append(exit_code(code))
                return
            restarts = 1 if clock() - begun >= RESTART_RESET_AFTER else restarts + 1
            pause = RESTART_BACKOFF.delay(restarts)
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
            log.error("server %d (pid %d) %s; restarting it in %g s", number, server.process.pid, how, pause)
            await wait_for(self._stopping, pause)

    async def _handle_signals(self, signals: Signals) -> None:
        """Forwards Ctrl-C and SIGTERM: the first drains, the second stops at once; a third ends the supervisor only."""
        kill_after = self._kill_after
        on_hangup = partial(self._signal_all, signal.SIGHUP) if self._reload else self._stop
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, on_hangup)
        while True:
            await signals.next()
            self._notifier.notify(STOPPING)
            self._stop()
            asyncio.get_running_loop().call_later(kill_after, self._signal_all, signal.SIGKILL)
            kill_after = min(kill_after, STOP_GRACE + KILL_DELAY)

    def _stop(self) -> None:
        self._stopping.set()
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: int) -> None:
        for server in self._servers.values():
            server.send_signal(number)


class SupervisorChannel:
    """One end of the socket between supervisor and server. Messages are JSON lines."""

    def __init__(self, end_socket: socket.socket) -> None:
        self.socket = end_socket
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @classmethod
    def inherited(cls, number: int) -> SupervisorChannel:
        """Opens the server's end by its file descriptor. Raises OSError if there is no such socket."""
        os.set_inheritable(number, False)  # processes started by this server must not keep it open
        return cls(socket.socket(fileno=number))

    async def open(self) -> None:
        self.socket.setblocking(False)
        self._streams = await asyncio.open_connection(sock=self.socket)

    def send(self, **fields: Any) -> None:
        """Sends a message. It is lost if the other end has closed."""
        assert self._streams is not None
        self._streams[1].write(json.dumps(fields).encode() + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """Receives the next message; None if the other end has closed."""
        assert self._streams is not None
        try:
            line = await self._streams[0].readline()
        except OSError:
            return None
        return dict(json.loads(line)) if line.endswith(b"\n") else None

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        else:
            self.socket.close()


@contextmanager
def reserved_address(option: str, address: Address) -> Iterator[Address]:
    """Reserves an address while the block runs, without listening. Yields it with the actual port.

    The system balances connections over sockets with SO_REUSEPORT. No other program may listen there: it would get
    some of them. Raises StartError.
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
            raise listen_error(option, address, error) from error
        yield Address(address.host, port)


def _bound_socket(family: int, kind: int, proto: int, host: str, port: int, option: int) -> socket.socket:
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
