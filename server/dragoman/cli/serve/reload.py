"""`serve --reload`: serves the new code when the app's files change.

Two processes take turns. The spare one has imported everything but the app, and waits. On a change it loads the app.
The server ends only then, so it goes on serving if the new code cannot be loaded. Then the spare one serves, and the
next one starts. Both get their orders over a socket (`SupervisorChannel`):

| order | what the process does | report |
|---|---|---|
| `load` | reads the settings and imports the app | `loaded`; or it ends, with the error on stderr |
| `serve` | opens the store and the ports | `ready` |
| `restart` | waits a little for running turns, and ends | |

Polls modification times, which needs no library and works on every file system.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dragoman.cli import ExitCode, format_count
from dragoman.cli.serve.processes import ServerProcess, SupervisorChannel, exit_code
from dragoman.settings.extensions import used_sources
from dragoman.settings.settings import SettingsError, load_settings
from dragoman.wiring.agent_loader import source_directory
from dragoman.wiring.app import App

RELOAD_POLL_INTERVAL: Final = 0.15  # seconds between two polls

RELOAD_STOP_TIMEOUT: Final = 2.0  # seconds for turns to finish on a change: short, because a developer is waiting
RELOAD_KILL_TIMEOUT: Final = 4.0  # seconds to the kill of a process on a change: an agent does not stop

_SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_MAX_WATCHED_FILES: Final = 5000

log = logging.getLogger("dragoman.reload")


def app_argument(arguments: Mapping[str, Any]) -> str:
    """APP from any source of settings; empty if the settings are invalid, which the server itself reports."""
    try:
        settings = load_settings(arguments)
    except SettingsError:
        return ""
    app, groups = settings.agents.app, settings.extensions
    others = ((one.agents, groups[one.name]) for one in used_sources(groups, app))
    return settings.own_app or next((sources.module(group, app) for sources, group in others if sources), "")


def run_with_reload(arguments: Sequence[str], app: str) -> int:
    """Runs `dragoman ARGUMENTS` without `--reload`, and replaces it on changes. Returns the last exit code.

    A server that ends by itself (a port in use) is started again at the next change.
    """
    command = [sys.executable, "-m", "dragoman", *(word for word in arguments if word != "--reload")]
    return asyncio.run(Reloader(command, source_directory(app) if app else None).run())


class Reloader:
    """Watches the files, and keeps one process that serves and a spare one."""

    def __init__(self, command: Sequence[str], watched: Path | None) -> None:
        self._command = command
        self._watched = watched
        self._seen: dict[Path, int] = {}
        self._server: ReloadedServer | None = None
        self._stopping = asyncio.Event()
        self._exit_code: int = ExitCode.INTERRUPTED

    async def run(self) -> int:
        """Serves until a signal. Returns the exit code of the last server."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, number)
        stopping = asyncio.create_task(self._stopping.wait())
        reloading = asyncio.create_task(self._serve_and_reload())
        await asyncio.wait((stopping, reloading), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not reloading.cancel():
            reloading.result()  # it ends only with an error
        await asyncio.wait((reloading,))
        if self._server is not None:
            self._exit_code = exit_code(await self._server.wait())
        return self._exit_code

    def _stop(self, number: int) -> None:
        # A terminal sends Ctrl-C to a server that serves as well; other signals reach only this process.
        if self._server is not None and (number != signal.SIGINT or not self._server.serves):
            self._server.process.send_signal(number)
        self._stopping.set()

    async def _serve_and_reload(self) -> None:
        self._seen = modification_times(self._watched)
        changed_at = 0.0  # the start is no change
        while True:
            spare = await ReloadedServer.start(self._command, "--reloading")
            try:
                changed_at = changed_at and await self._next_change()
                spare.order("load")
                if await spare.reports("loaded"):
                    await self._replace(spare, changed_at)
                else:
                    self._exit_code = exit_code(await spare.wait())
                    if self._server is not None:
                        print("reload: the code before this change is still served", file=sys.stderr, flush=True)
                changed_at = changed_at or time.time()
            finally:
                if spare is not self._server:
                    spare.send_signal(signal.SIGKILL)

    async def _replace(self, spare: ReloadedServer, changed_at: float) -> None:
        """Ends the server, and lets the spare process serve."""
        if self._server is not None:
            await self._server.restart()
        self._server = spare
        spare.order("serve", changed_at=changed_at)
        if not await spare.reports("ready"):
            self._server, self._exit_code = None, exit_code(await spare.wait())

    async def _next_change(self) -> float:
        """Waits until a file changes. Returns when it did, in seconds since the epoch."""
        now = modification_times(self._watched)
        while now == self._seen:
            await asyncio.sleep(RELOAD_POLL_INTERVAL)
            now = modification_times(self._watched)
        changed = sorted(path for path in now.keys() | self._seen.keys() if now.get(path) != self._seen.get(path))
        names = ", ".join(path.name for path in changed[:3])
        print(f"reload: {names} changed; loading it", file=sys.stderr, flush=True)
        self._seen = now
        latest = max(now.get(path, 0) for path in changed) / 1e9
        # A file with an older time moved here.
        return latest if time.time() - 5 < latest <= time.time() else time.time()


@dataclass
class ReloadedServer(ServerProcess):
    """One server process, which loads, serves and ends when it is told to."""

    serves: bool = False  # whether it has reported `ready`: it has joined our process group

    def order(self, name: str, **fields: Any) -> None:
        self.channel.send(order=name, **fields)

    async def reports(self, name: str) -> bool:
        """Waits for a report; False if the process ends before."""
        while (message := await self.channel.receive()) is not None:
            if message["report"] == name:
                self.serves = name == "ready"
                return True
        return False

    async def restart(self) -> None:
        """Ends the process; by force if it does not end in time."""
        self.order("restart")
        try:
            async with asyncio.timeout(RELOAD_KILL_TIMEOUT):
                await self.wait()
        except TimeoutError:
            print("reload: the server does not end, because an agent does not stop; killing it", file=sys.stderr)
            self.send_signal(signal.SIGKILL)
            await self.wait()


class StandbyEnded(Exception):
    """The process that gives the orders has ended."""


class Standby:
    """The end of a process that waits for its orders: blocking, until its event loop runs."""

    def __init__(self, number: int) -> None:
        """number: the file descriptor of the socket."""
        self.channel = SupervisorChannel.inherited(number)  # once it is open, orders arrive on the event loop

    def await_order(self, name: str) -> dict[str, Any]:
        """Waits for the order. Raises StandbyEnded."""
        while True:
            line = b""
            while not line.endswith(b"\n"):  # byte by byte: what follows is for the event loop
                byte = self.channel.socket.recv(1)
                if not byte:
                    raise StandbyEnded
                line += byte
            message: dict[str, Any] = json.loads(line)
            if message["order"] == name:
                return message

    def report_loaded(self) -> float:
        """Reports `loaded`, and waits for `serve`. From then on the signals of the terminal are for this process, too.

        Returns the time of the change that it was started for, in seconds since the epoch. Raises StandbyEnded.
        """
        self.channel.socket.sendall(json.dumps({"report": "loaded"}).encode() + b"\n")
        order = self.await_order("serve")
        os.setpgid(0, os.getpgid(os.getppid()))
        return float(order["changed_at"])

    async def restarts_before(self, stop: Coroutine[Any, Any, object]) -> bool:
        """Waits for the order `restart`: True. False if the process has to stop, or nobody can give orders any more."""
        order = asyncio.create_task(self.channel.receive())
        stopping = asyncio.create_task(stop)
        await asyncio.wait((order, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        return not order.cancel() and order.result() is not None


async def drain_for_reload(app: App) -> None:
    """Ends the running turns: waits for them a little, and says before what happens to those that remain."""
    if app.running:
        count, repeated = app.running, app.runtime.scheduler.repeatable
        fates = [f"{format_count(repeated, 'turn')} will start again after the restart"] if repeated else []
        if failing := count - repeated:
            fates.append(f"{format_count(failing, 'turn')} without @agent(on_crash=retry(n)) will end as FAILED")
        waiting = f"waiting up to {RELOAD_STOP_TIMEOUT:g} s for {format_count(count, 'turn')} to end"
        log.info("%s; otherwise %s", waiting, ", and ".join(fates))
    await app.drain(RELOAD_STOP_TIMEOUT)


def modification_times(directory: Path | None) -> dict[Path, int]:
    """The modification times of all Python files below a directory, and of `dragoman.toml`, in nanoseconds."""
    found = {}
    for path in (*_sources(directory), Path("dragoman.toml")):
        try:
            found[path] = path.stat().st_mtime_ns
        except OSError:  # deleted since it was listed
            continue
    return found


def _sources(directory: Path | None) -> Iterator[Path]:
    if directory is None:
        return
    number = 0
    for folder, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")]
        for name in files:
            if name.endswith(".py"):
                number += 1
                yield Path(folder, name)
        if number > _MAX_WATCHED_FILES:  # an app in a home directory, for example
            return
