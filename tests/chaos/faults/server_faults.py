"""Outages of one server that go on without a restart: a full disk, no more descriptors, a wall clock that jumps."""

from __future__ import annotations

import asyncio
import random
import resource
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from tests.chaos.faults.clock_steps import WallClock, step_of
from tests.chaos.faults.outages import Outage
from tests.chaos.faults.small_disk import SmallDisk
from tests.chaos.history import Acknowledged, Fault
from tests.chaos.targets.target import Scene
from tests.load.transports import UNARY_BINDINGS, Transports

from dragoman.client import ClientError
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

AGAIN: Final = 15.0
"""Seconds after an outage in which the server has to acknowledge sends again."""
FULL: Final = ("the store is full", "the store does not respond")
"""Parts of the error that callers get in their dialect while the disk is full. The second: SQLite sometimes reports a
full disk as an I/O error."""


EXPECTED: Final[Mapping[str, Sequence[str]]] = {
    "disk": (
        *FULL,
        "dragoman.store: a write failed: database or disk is full",
        "dragoman.store: a write failed: disk I/O error",
    ),
    "files": ("Too many open files: raise `ulimit -n` (LimitNOFILE), or lower --connections",),
    "clock": (),
    "freeze": ("has ended (the worker has sent nothing for",),
}
"""Parts of the errors that a server logs during an outage and shortly after it. A server that was frozen has heard
nothing of its executors."""
SHORTLY: Final = 5.0


class ServerFaults:
    """Performs outages of one server, and lists what it did wrong in them."""

    def __init__(self, disk: SmallDisk, clock: WallClock) -> None:
        self.problems: list[str] = []
        self.periods: list[tuple[str, float, float]] = []
        """The outages: their part, begin and end, in seconds of the epoch."""
        self._disk = disk
        self._clock = clock

    async def suffer(self, scene: Scene, outage: Outage, pid: int, transports: Transports) -> None:
        """Performs an outage of disk or descriptors of the process `pid`, which nothing else may strike meanwhile."""
        async with self._record(scene, outage):
            if outage.part == "disk":
                await self._fill(outage.seconds, transports)
            else:
                with no_more_files(pid):
                    await asyncio.sleep(outage.seconds)
        since = scene.now
        try:
            async with asyncio.timeout(AGAIN):
                while not _acknowledged_after(scene, since):  # noqa: ASYNC110  # no event to wait for
                    await asyncio.sleep(0.1)
        except TimeoutError:
            self.problems.append(f"{AGAIN:g} s after {outage} the server acknowledges nothing")
        if not Path(f"/proc/{pid}").exists():
            self.problems.append(f"the server ended during {outage}")

    async def step(self, scene: Scene, outage: Outage, run_seconds: float, rng: random.Random) -> None:
        """Makes the clock wrong for the time of an outage; other faults may strike meanwhile."""
        async with self._record(scene, outage):
            self._clock.set(step_of(outage.how, run_seconds, rng))
            try:
                await asyncio.sleep(outage.seconds)
            finally:
                self._clock.set(0)

    def note_freeze(self, began: float) -> None:
        """Notes that the process was frozen from `began` (seconds of the epoch) until now."""
        self.periods.append(("freeze", began, time.time()))

    def explain(self, at: float, error: str) -> bool:
        """Whether an outage explains an error that was logged at this time (seconds of the epoch)."""
        return any(
            began <= at <= over + SHORTLY and any(text in error for text in EXPECTED[part])
            for part, began, over in self.periods
        )

    async def _fill(self, seconds: float, transports: Transports) -> None:
        await asyncio.to_thread(self._disk.fill)
        try:
            # A send that still found room may wait for the end of its turn, until there is space again.
            probes = [asyncio.create_task(self._probe(binding, transports)) for binding in UNARY_BINDINGS]
            await asyncio.sleep(seconds)
        finally:
            await asyncio.to_thread(self._disk.free)
        await asyncio.gather(*probes)

    async def _probe(self, binding: str, transports: Transports) -> None:
        """Sends a message, which has to be refused in the caller's dialect, or served: some space may be left."""
        message = pb.Message(message_id=f"full-{binding}", role=pb.ROLE_USER, parts=[pb.Part(text="echo #full")])
        try:
            await transports.call(
                binding, "SendMessage", pb.SendMessageRequest(message=message), pb.SendMessageResponse
            )
        except ClientError as error:
            if not any(text in str(error) for text in FULL):
                self.problems.append(f"with a full disk, a send over {binding} is answered: {error}")
        except TimeoutError:
            self.problems.append(f"with a full disk, a send over {binding} has no answer")

    @asynccontextmanager
    async def _record(self, scene: Scene, outage: Outage) -> AsyncIterator[None]:
        at, began = scene.now, time.time()
        try:
            yield
        finally:
            seconds = round(scene.now - at, 3)
            how = "step" if outage.part == "clock" else outage.how
            scene.record.add(Fault(at=at, how=how, part=outage.part, seconds=seconds))
            self.periods.append((outage.part, began, time.time()))


def _acknowledged_after(scene: Scene, since: float) -> bool:
    return any(isinstance(entry, Acknowledged) and entry.at > since for entry in scene.record.entries[-500:])


@contextmanager
def no_more_files(pid: int) -> Iterator[None]:
    """Lets a process open no file or connection inside the block; those that it has stay open."""
    taken = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    free = next(number for number in range(len(taken) + 1) if number not in taken)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
