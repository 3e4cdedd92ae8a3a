"""`serve --processes N`: a parent that keeps N servers alive behind the same ports.

The parent serves nothing. It keeps the ports, starts the first server, which makes the tables or says what is wrong,
then the others, and starts again whoever ends without being told to. Signals go to the parent, and so to all of them.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Final

from dragoman import logs
from dragoman.cli.channel import Channel
from dragoman.cli.loop import Signals
from dragoman.cli.ports import check_sharing, kept
from dragoman.foundation import check_role
from dragoman.settings import Address, Settings, SettingsError

AGAIN: Final = 0.5
"""Seconds after which a server that ended is started again; twice as many each time that it ends soon."""

AT_MOST: Final = 30.0
"""The most that these seconds become."""

SETTLED: Final = 60.0
"""Seconds after which a server's end has nothing to do with its start any more."""

log = logging.getLogger("dragoman.processes")


def check(settings: Settings) -> None:
    """Raises SettingsError for several processes where there can be one only."""
    if not settings.is_shared:
        raise SettingsError(
            f"--processes {settings.processes}: an SQLite store has one process, which holds its file; use 1, or a "
            "store for several: --store postgresql://USER@HOST/DATABASE, and --bus nats://HOST"
        )
    check_sharing()
    check_role(settings)


def supervise(arguments: Sequence[str], settings: Settings) -> int:
    """Runs `dragoman ARGUMENTS` so often as the settings say, until a signal. Gives the exit code.

    Raises StartError, SettingsError.
    """
    check(settings)
    logs.configure(settings.log_format)
    if not settings.bus.get_secret_value():
        log.warning(
            "without --bus these processes tell each other nothing: a stream at another one than that which runs its "
            "task is up to 2 s late, and a cancel has to meet that one"
        )
    with ExitStack() as stack:
        words = ["--processes", "1"]
        for option, address in (("--http", settings.http), ("--grpc", settings.grpc)):
            if option == "--http" or settings.role != "worker":
                words += [option, str(stack.enter_context(kept(option, address)))]
        command = [sys.executable, "-m", "dragoman", *arguments, *words]
        commands = [[*command, *_metrics(settings, number)] for number in range(settings.processes)]
        return asyncio.run(Herd(commands, reload=bool(settings.tls_cert or settings.card_file)).run())


def _metrics(settings: Settings, number: int) -> Sequence[str]:
    """Where one of them shows how it is: each has numbers of its own, so their ports follow one another."""
    if settings.metrics is None or not settings.metrics.port:
        return ()
    return ("--metrics", str(Address(settings.metrics.host, settings.metrics.port + number)))


class Child:
    """One server: its process, and what is said with it."""

    def __init__(self, number: int, command: Sequence[str]) -> None:
        self.number = number
        self._command = command
        self._channel: Channel | None = None
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
        self._channel = Channel(ours)
        await self._channel.open()

    async def ended(self) -> int:
        """Its exit code, when it has one; meanwhile notes that it is ready."""
        assert self._process is not None
        assert self._channel is not None
        while (said := await self._channel.hear()) is not None:
            if said.get("ready"):
                self.ready.set()
        self._channel.close()
        return await self._process.wait()

    def announce(self, pids: Sequence[int]) -> None:
        """Has it print what one server would print."""
        assert self._channel is not None
        self._channel.say(announce=list(pids))

    def send(self, number: int) -> None:
        """Sends a signal, if it is still there."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


class Herd:
    """All of them."""

    def __init__(self, commands: Sequence[Sequence[str]], *, reload: bool) -> None:
        """`commands`: of each. `reload`: SIGHUP is theirs, to look at files; else it ends them."""
        self._children = [Child(number, command) for number, command in enumerate(commands, 1)]
        self._reload = reload
        self._stopping = asyncio.Event()
        self._codes: list[int] = []

    async def run(self) -> int:
        """Starts them, and keeps them until a signal. Gives the worst of their exit codes."""
        telling = asyncio.create_task(self._obey(Signals()), name="signals")
        first, *others = self._children
        keeping = [asyncio.create_task(self._keep(first), name="server 1")]
        if await self._all_ready([first], keeping):
            keeping += [asyncio.create_task(self._keep(one), name=f"server {one.number}") for one in others]
            if await self._all_ready(others, keeping):
                first.announce([one.pid for one in self._children])
        await asyncio.gather(*keeping)
        telling.cancel()
        return max(self._codes, default=0)

    async def _all_ready(self, children: Sequence[Child], keeping: Sequence[asyncio.Task[None]]) -> bool:
        """Waits until these serve; False when one of all has ended for good before that, which ends all."""
        waiting = asyncio.create_task(_all(one.ready for one in children))
        await asyncio.wait((waiting, *keeping), return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return not self._stopping.is_set()
        waiting.cancel()
        self._stop(signal.SIGTERM)
        return False

    async def _keep(self, child: Child) -> None:
        """Starts one, again and again, until all are to stop, or until it has never been ready."""
        clock, pause, was_ready = asyncio.get_running_loop().time, AGAIN / 2, False
        while not self._stopping.is_set():
            begun = clock()
            await child.start()
            if self._stopping.is_set():  # the signal went to the one before
                child.send(signal.SIGTERM)
            code = await child.ended()
            was_ready = was_ready or child.ready.is_set()
            if self._stopping.is_set() or not was_ready:
                self._codes.append(code if code >= 0 else 128 - code)
                return
            pause = AGAIN if clock() - begun >= SETTLED else min(pause * 2, AT_MOST)
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            log.error("server %d (pid %d) %s; it is started again in %g s", child.number, child.pid, how, pause)
            try:
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    async def _obey(self, signals: Signals) -> None:
        """Ctrl-C and SIGTERM: the first one drains, the second stops now; a third one ends the parent alone."""
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)
        while True:
            await signals.next()
            self._stop(signal.SIGTERM)

    def _hang_up(self) -> None:
        if self._reload:
            for child in self._children:
                child.send(signal.SIGHUP)
        else:
            self._stop(signal.SIGTERM)

    def _stop(self, number: int) -> None:
        self._stopping.set()
        for child in self._children:
            child.send(number)


async def _all(events: Iterable[asyncio.Event]) -> None:
    for one in events:
        await one.wait()
