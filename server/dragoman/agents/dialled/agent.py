"""An agent of workers, as the runtime sees it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from dragoman.agents.dialled.connection import Connection
from dragoman.agents.dialled.turn import PATIENCE, Stopped
from dragoman.core import states
from dragoman.core.card import AgentSpec
from dragoman.core.log import Refused, StatusChange
from dragoman.ports import Desk, Ending, ProcessLost, TurnOver

FRESH: Final = 15.0
"""Seconds for which another server's word counts that workers of an agent are there."""

SEATED: Final = 10.0
"""Seconds that a turn which was begun here waits for a worker, should the one with room have gone just then."""


class DialledAgent:
    """Implements `dragoman.ports.Elsewhere`: its turns go to workers with unused credits, one after the other."""

    def __init__(self, spec: AgentSpec, principal: str, clock: Callable[[], int], seen: int) -> None:
        """`principal`: whose workers have it. `clock` gives milliseconds since the epoch; `seen`: when a worker of it
        was there last, by that clock."""
        self.spec = spec
        self.principal = principal
        self.seen = seen
        self.elsewhere = 0
        """When another server on the store last noted that a worker of it is there."""
        self._clock = clock
        self._workers: deque[Connection] = deque()
        self._changed = asyncio.Event()

    @property
    def left_behind(self) -> int:
        """Threads are its workers' business."""
        return 0

    @property
    def capacity(self) -> int:
        """Turns that it could have at the same time now, those that it has included."""
        return sum(worker.free(self.spec.id) + worker.running(self.spec.id) for worker in self._workers)

    @property
    def absence(self) -> float:
        """Seconds since no worker of it is there; 0 while there is one, here or at another server."""
        now = self._clock()
        if self._workers or now - self.elsewhere < FRESH * 1000:
            return 0.0
        return max((now - max(self.seen, self.elsewhere)) / 1000, 0.001)

    @property
    def is_here(self) -> bool:
        """Whether a worker of it is at this server."""
        return bool(self._workers)

    @property
    def workers(self) -> Iterator[Connection]:
        """The workers that are there."""
        return iter(tuple(self._workers))

    def runner_of(self, task_id: str) -> str:
        """The worker that runs a turn of this task; empty when none does."""
        return next((str(worker) for worker in self._workers if worker.runs(self.spec.id, task_id)), "")

    def outlook_of(self, task_id: str) -> str:
        """Whether its worker is silent."""
        for worker in self._workers:
            if worker.runs(self.spec.id, task_id) and (silence := worker.silence) > worker.pace.heartbeat * 2:
                return (
                    f"Nothing was heard of its worker for {silence:.0f} s; "
                    f"after {worker.pace.lease:g} s without a sign of life it counts as gone."
                )
        return ""

    @property
    def dials_in(self) -> bool:
        """It is workers that have it."""
        return True

    @property
    def trouble(self) -> str:
        """There is nothing to say of workers that are not there."""
        return ""

    async def let_go(self, memory: bytes) -> None:
        """Workers have nothing of a task that nobody runs."""

    def join(self, worker: Connection) -> None:
        """A worker came."""
        self._workers.append(worker)

    def part(self, worker: Connection) -> None:
        """A worker went."""
        if worker in self._workers:
            self._workers.remove(worker)
            self.seen = max(self.seen, self._clock())

    def tell(self) -> None:
        """A worker takes more turns than before."""
        self._changed.set()

    async def take_turn(self, desk: Desk) -> Ending:
        """Runs one turn at a worker. Raises ProcessLost when that went away meanwhile."""
        turn = (await self._seat()).begin(self.spec.id, desk)
        try:
            await asyncio.wait([turn.result])  # which does not cancel what it waits for
        except asyncio.CancelledError:
            if not turn.result.done():
                turn.cancel(desk.cancel_reason)
            try:
                await asyncio.wait([turn.result], timeout=PATIENCE)
            finally:
                turn.drop(TimeoutError("it was asked to stop, and did not in time"))
        try:
            return turn.result.result()
        except (Stopped, TimeoutError) as error:
            raise asyncio.CancelledError from error
        except ProcessLost as error:
            if desk.cancelled:  # it has stopped indeed
                raise asyncio.CancelledError from error
            raise
        except (TurnOver, Refused):
            # The task went on without this run, and the store refuses whatever we say.
            return Ending(StatusChange(states.CANCELED))

    async def _seat(self) -> Connection:
        """The next worker with an unused credit. Raises ProcessLost when none comes."""
        try:
            async with asyncio.timeout(SEATED):
                while True:
                    for _ in range(len(self._workers)):
                        worker = self._workers[0]
                        self._workers.rotate(-1)
                        if worker.free(self.spec.id):
                            return worker
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise ProcessLost("It went before it began.", began=False) from None
