"""An agent of workers, as the runtime sees it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from dragoman.agents.workers.connection import WorkerConnection
from dragoman.agents.workers.turn import WORKER_TURN_STOP_TIMEOUT, AgentStopped
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.task import states
from dragoman.core.task.log import AppendRejected, StatusChange
from dragoman.ports import LeaseLost, TurnContext, TurnResult, WorkerLost

REMOTE_PRESENCE_TTL: Final = 15.0
"""Seconds for which another server's word counts that workers of an agent are there."""

WORKER_WAIT_TIMEOUT: Final = 10.0
"""Seconds that a turn which was begun here waits for a worker, should the one with room have gone just then."""


class WorkerAgent:
    """Implements `dragoman.ports.Elsewhere`: its turns go to workers with unused credits, one after the other."""

    def __init__(self, spec: AgentSpec, principal: str, clock: Callable[[], int], last_seen: int) -> None:
        """`principal`: whose workers have it. `clock` gives milliseconds since the epoch; `seen`: when a worker of it
        was there last, by that clock."""
        self.spec = spec
        self.principal = principal
        self.last_seen = last_seen
        self.last_seen_elsewhere = 0
        """When another server on the store last noted that a worker of it is there."""
        self._clock = clock
        self._workers: deque[WorkerConnection] = deque()
        self._capacity_changed = asyncio.Event()

    @property
    def leaked_threads(self) -> int:
        """Threads are its workers' business."""
        return 0

    @property
    def capacity(self) -> int:
        """Turns that it could have at the same time now, those that it has included."""
        return sum(worker.free_capacity(self.spec.id) + worker.running_turns(self.spec.id) for worker in self._workers)

    @property
    def seconds_absent(self) -> float:
        """Seconds since no worker of it is there; 0 while there is one, here or at another server."""
        now = self._clock()
        if self._workers or now - self.last_seen_elsewhere < REMOTE_PRESENCE_TTL * 1000:
            return 0.0
        return max((now - max(self.last_seen, self.last_seen_elsewhere)) / 1000, 0.001)

    @property
    def has_local_workers(self) -> bool:
        """Whether a worker of it is at this server."""
        return bool(self._workers)

    @property
    def workers(self) -> Iterator[WorkerConnection]:
        """The workers that are there."""
        return iter(tuple(self._workers))

    def runner_of(self, task_id: str) -> str:
        """The worker that runs a turn of this task; empty when none does."""
        return next((str(worker) for worker in self._workers if worker.is_running(self.spec.id, task_id)), "")

    def describe_run(self, task_id: str) -> str:
        """Whether its worker is silent."""
        for worker in self._workers:
            if (
                worker.is_running(self.spec.id, task_id)
                and (silence := worker.seconds_silent) > worker.timings.heartbeat * 2
            ):
                return (
                    f"Nothing was heard of its worker for {silence:.0f} s; "
                    f"after {worker.timings.lease:g} s without a sign of life it counts as gone."
                )
        return ""

    @property
    def is_worker_backed(self) -> bool:
        """It is workers that have it."""
        return True

    @property
    def problem(self) -> str:
        """There is nothing to say of workers that are not there."""
        return ""

    async def on_canceled(self, task_state: bytes) -> None:
        """Workers have nothing of a task that nobody runs."""

    def add_worker(self, worker: WorkerConnection) -> None:
        """A worker came."""
        self._workers.append(worker)

    def remove_worker(self, worker: WorkerConnection) -> None:
        """A worker went."""
        if worker in self._workers:
            self._workers.remove(worker)
            self.last_seen = max(self.last_seen, self._clock())

    def notify_capacity(self) -> None:
        """A worker takes more turns than before."""
        self._capacity_changed.set()

    async def take_turn(self, turn_context: TurnContext) -> TurnResult:
        """Runs one turn at a worker. Raises ProcessLost when that went away meanwhile."""
        turn = (await self._wait_for_worker()).start_turn(self.spec.id, turn_context)
        try:
            await asyncio.wait([turn.result])  # which does not cancel what it waits for
        except asyncio.CancelledError:
            if not turn.result.done():
                turn.cancel(turn_context.cancel_reason)
            try:
                await asyncio.wait([turn.result], timeout=WORKER_TURN_STOP_TIMEOUT)
            finally:
                turn.abort(TimeoutError("it was asked to stop, and did not in time"))
        try:
            return turn.result.result()
        except (AgentStopped, TimeoutError) as error:
            raise asyncio.CancelledError from error
        except WorkerLost as error:
            if turn_context.cancelled:  # it has stopped indeed
                raise asyncio.CancelledError from error
            raise
        except (LeaseLost, AppendRejected):
            # The task went on without this run, and the store refuses whatever we say.
            return TurnResult(StatusChange(states.CANCELED))

    async def _wait_for_worker(self) -> WorkerConnection:
        """The next worker with an unused credit. Raises ProcessLost when none comes."""
        try:
            async with asyncio.timeout(WORKER_WAIT_TIMEOUT):
                while True:
                    for _ in range(len(self._workers)):
                        worker = self._workers[0]
                        self._workers.rotate(-1)
                        if worker.free_capacity(self.spec.id):
                            return worker
                    self._capacity_changed.clear()
                    await self._capacity_changed.wait()
        except TimeoutError:
            raise WorkerLost("It went before it began.", may_have_started=False) from None
