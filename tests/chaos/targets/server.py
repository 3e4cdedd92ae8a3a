"""Chaos target with one server: a `dragoman serve` process that is killed, paused, restarted and deprived."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.chaos.faults.clock_steps import WallClock
from tests.chaos.faults.logged_errors import error_of
from tests.chaos.faults.outages import SERVER, Outage, plan_outages
from tests.chaos.faults.server_faults import ServerFaults
from tests.chaos.faults.small_disk import SmallDisk
from tests.chaos.history import EventKeys, Fault, Sampled
from tests.chaos.targets import readback
from tests.chaos.targets.target import Scene
from tests.chaos_checker.checker import StoredTask
from tests.cli.server import clean_environment
from tests.load.transports import Transports

AGENTS: Final = Path(__file__).with_name("agents.py")
SLOTS: Final = 40
START: Final = 60.0
"""Maximum seconds of a start."""
LONG: Final = 11.5
"""Seconds of one pause in a long run, longer than the lease of a session."""


class ServerTarget:
    """One server on one store. Implements `Target`."""

    agents: Sequence[str] = ("", "again")
    words: Sequence[str] = ()
    stored_agents: Sequence[str] = readback.AGENTS
    """The ids of `agents` in the store."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.disk = SmallDisk(folder / "disk")
        self.clock = WallClock(folder / "clock")
        self.store = self.disk.folder / "tasks.db"
        self._faults = ServerFaults(self.disk, self.clock)
        self.turns = folder / "turns"
        self.actions = folder / "actions"
        self.actions.mkdir()
        self.log = folder / "server.log"
        self.errors: list[tuple[float, str]] = []
        """Errors in its log that are not as asked, with the times at which they were read."""
        self.up = asyncio.Event()
        self.client_transports: Transports | None = None
        self._built: list[Transports] = []
        self._since = 0.0
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def up_for(self) -> float:
        """Seconds since the last start or the end of the last pause."""
        return time.monotonic() - self._since if self.up.is_set() else 0.0

    async def start(self) -> None:
        """Starts the server, and waits until it listens."""
        words = ["-m", "dragoman", "serve", str(AGENTS), "--store", f"sqlite:///{self.store}", "--log-format", "json"]
        words += ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--slots", str(SLOTS), *self._arguments]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            cwd=self.store.parent,
            env=clean_environment()
            | {
                "CHAOS_TURNS": str(self.turns),
                "CHAOS_ACTIONS": str(self.actions),
                **self.clock.environment,
            },
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=16 * 1024 * 1024,
        )
        reported: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(self._process, reported), name="the server's log")
        async with asyncio.timeout(START):
            where = await reported
        # Old transports stay open until the end: closing a gRPC channel would cancel its calls.
        self.client_transports = Transports(where["http"], where["grpc"])
        self._built.append(self.client_transports)
        self._since = time.monotonic()
        self.up.set()

    async def kill(self) -> None:
        """Kills the server (`kill -9`)."""
        assert self._process is not None
        assert self._reader is not None
        self.up.clear()
        self._process.kill()
        await self._process.wait()
        await self._reader

    async def hold(self, seconds: float) -> None:
        """Pauses the process with SIGSTOP, and continues it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        began = time.time()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._process.send_signal(signal.SIGCONT)
            self._faults.note_freeze(began)
            self._since = time.monotonic()

    # Target ---------------------------------------------------------------------------------------------------------

    async def inject_faults(self, scene: Scene, until: float, say: Callable[[str], None]) -> None:
        """Kills or pauses the server every few seconds."""
        rng = random.Random(f"{scene.seed}/strikes")
        planned = self._plan_outages(scene, until, say)
        long_pause = until - time.monotonic() > 60
        steps: list[asyncio.Task[None]] = []
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, rng.uniform(*scene.pace.between)))
            if time.monotonic() >= until:
                break
            if planned and time.monotonic() >= planned[0][0]:
                outage = planned.pop(0)[1]
                say(str(outage))
                if outage.part == "clock":
                    steps.append(asyncio.create_task(self._faults.step(scene, outage, left + scene.now, rng)))
                elif self.client_transports is not None:
                    await self._faults.suffer(scene, outage, self.pid, self.client_transports)
            elif rng.random() < scene.pace.kill_share:
                await self.restart(scene)
            else:
                seconds = rng.uniform(0.1, scene.pace.longest_pause)
                if long_pause and until - time.monotonic() > 2 * LONG and rng.random() < 0.3:
                    seconds, long_pause = LONG, False
                scene.record.add(Fault(at=scene.now, how="pause", seconds=round(seconds, 3)))
                await self.hold(seconds)
        for _, outage in planned:
            say(f"{outage} is left out: the faults before it took too long")
        await asyncio.gather(*steps)

    def _plan_outages(self, scene: Scene, until: float, say: Callable[[str], None]) -> list[tuple[float, Outage]]:
        """The outages of this run, with the monotonic times of their starts."""
        now = time.monotonic()
        selected = SERVER.parse(os.environ.get("CHAOS_OUTAGES", ""), until - now)
        if self.disk.missing and any(outage.part == "disk" for outage in selected):
            say(f"NO FULL DISK IN THIS RUN: {self.disk.missing}")
            selected = [outage for outage in selected if outage.part != "disk"]
        planned = plan_outages(selected, "", until - now, random.Random(f"{scene.seed}/outages"))
        if left := len(selected) - len(planned):
            say(f"{left} of {len(selected)} outages do not fit into {until - now:.0f} s and are left out")
        return [(now + start, outage) for start, outage in planned]

    async def restart(self, scene: Scene) -> None:
        scene.record.add(Fault(at=scene.now, how="kill"))
        await self.kill()
        await self.start()

    async def look(self, at: float) -> Sampled | None:
        with suppress(sqlite3.OperationalError):  # the disk has no room for an index of the log
            return self._sample(at)
        return None

    def _sample(self, at: float) -> Sampled:
        return readback.sample(self.store, at=at, up=round(self.up_for, 1), slots=SLOTS)

    async def unpushed(self) -> int:
        return readback.unpushed(self.store)

    async def kept(self, began: float, shown: EventKeys | None = None) -> Mapping[str, StoredTask]:
        await self.stop()
        found = await readback.read_all(self.store, self.turns, began, shown, self.stored_agents)
        over = time.time()
        return {id: replace(task, times=self._real(task.times, began, over)) for id, task in found.items()}

    def _real(self, times: tuple[float, float], began: float, over: float) -> tuple[float, float]:
        """Times of a task as they were by the machine's clock."""
        created, ended = (self.clock.real(began + at, began, over) - began for at in times)
        return created, ended

    @property
    def troubles(self) -> Sequence[str]:
        unexplained = Counter(text for at, text in self.errors if not self._faults.explain(at, text))
        logged = [f"the server logged, {times} times: {text}" for text, times in unexplained.items()]
        return [*self._faults.problems, *logged]

    # ----------------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Kills the process. May be called twice."""
        if self._process is not None and self._process.returncode is None:
            await self.kill()
        while self._built:
            await self._built.pop().close()

    async def _read(self, process: asyncio.subprocess.Process, reported: asyncio.Future[dict[str, Any]]) -> None:
        assert process.stderr is not None
        with self.log.open("ab") as log:
            async for line in process.stderr:
                log.write(line)
                if b'"serving"' in line and not reported.done():
                    reported.set_result(json.loads(line))
                elif b'"level": "ERROR"' in line and b"failing, as asked" not in line:
                    self.errors.append((time.time(), error_of(json.loads(line))))
        if not reported.done():
            reported.set_exception(RuntimeError(f"the server did not start:\n{self.log.read_text()[-4000:]}"))


@asynccontextmanager
async def running(
    folder: Path, *arguments: str, target: Callable[..., ServerTarget] = ServerTarget
) -> AsyncIterator[ServerTarget]:
    """Runs a server inside the block. `arguments`: further options of the server."""
    victim = target(folder, *arguments)
    try:
        await victim.start()
        yield victim
    finally:
        await victim.stop()
        victim.disk.remove()
