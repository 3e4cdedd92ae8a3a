"""An agent that workers run, as the runtime sees it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from dragoman.agents.functions.threads import wait_until_stopped
from dragoman.agents.workers.connection import WorkerConnection
from dragoman.agents.workers.turn import AgentStopped
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.task import states
from dragoman.core.task.log import AppendRejected, StatusChange
from dragoman.ports import AGENT_STOP_TIMEOUT, AgentStillRuns, LeaseLost, TurnContext, TurnResult, WorkerLost

REMOTE_PRESENCE_TTL: Final = 15.0  # seconds for which another server's note that it has workers is valid
WORKER_WAIT_TIMEOUT: Final = 10.0
"""Seconds that a started turn waits for a worker, in case the one with capacity has just disconnected."""


class WorkerAgent:
    """Gives its turns to workers with unused credits, in rotation. Implements `dragoman.ports.RemoteAgent`."""

    is_worker_backed = True
    leaked_threads = 0  # its workers count their own threads
    problem = ""  # `seconds_absent` reports missing workers

    def __init__(self, spec: AgentSpec, principal: str, clock: Callable[[], int], last_seen: int) -> None:
        """`principal`: owner of its workers. `last_seen`: when one was last connected, by `clock` (milliseconds)."""
        self.spec = spec
        self.principal = principal
        self.last_seen = last_seen
        self.last_seen_elsewhere = 0  # when this server last read that another one has a worker, by `clock`
        self.registration = b""  # its last registration, serialized
        self.stored_at = 0  # `last_seen` as this server last wrote or read it: others have other clocks
        self._clock = clock
        self.workers: deque[WorkerConnection] = deque()  # the connected ones, in rotation
        self._capacity_changed = asyncio.Event()
        self._lost: dict[str, WorkerConnection] = {}  # by task: the lost workers that may still run a turn

    @property
    def capacity(self) -> int:
        """Concurrent turns that the connected workers can run, including the running ones and those of lost workers."""
        connected = sum(one.free_capacity(self.spec.id) + one.running_turns(self.spec.id) for one in self.workers)
        return connected + len(self._lost)

    @property
    def seconds_absent(self) -> float:
        """Seconds since the last worker disconnected; 0 while one is connected, here or at another server."""
        now = self._clock()
        if self.workers or now - self.last_seen_elsewhere < REMOTE_PRESENCE_TTL * 1000:
            return 0.0
        return max((now - max(self.last_seen, self.last_seen_elsewhere)) / 1000, 0.001)

    def runner_of(self, task_id: str) -> str:
        return next((str(worker) for worker in self.workers if worker.is_running(self.spec.id, task_id)), "")

    def describe_run(self, task_id: str) -> str:
        if (lost := self._lost.get(task_id)) is not None:
            return f"Its worker is lost and may run it for {lost.remaining_lease:.0f} s more; then it goes on, or ends."
        for worker in self.workers:
            quiet, lease = worker.seconds_silent, worker.timings.lease
            if worker.is_running(self.spec.id, task_id) and quiet > worker.timings.heartbeat * 2:
                return f"Its worker has sent nothing for {quiet:.0f} s; after {lease:g} s of silence it counts as lost."
        return ""

    def may_have_work(self, task_state: bytes, attempt: int) -> bool:
        """False: workers keep nothing of a task that is not running."""
        return False

    async def cancel_waiting(self, task_state: bytes, metadata: bytes) -> bool:
        """Nothing to do, as `may_have_work` says."""
        return True

    def remove_worker(self, worker: WorkerConnection) -> None:
        if worker in self.workers:
            self.workers.remove(worker)
            self.last_seen = max(self.last_seen, self._clock())

    def notify_capacity(self) -> None:
        """Call this when a worker has more capacity than before."""
        self._capacity_changed.set()

    async def take_turn(self, turn_context: TurnContext) -> TurnResult:
        """Runs one turn at a worker. Raises WorkerLost if the worker disconnects during the turn, or returns it.

        A canceled turn, and one to be repeated, ends when the worker has stopped it, or cannot run it by its own clock.
        Raises AgentStillRuns when the server shuts down before.
        """
        worker = await self._next_free_worker(turn_context)
        turn = worker.start_turn(self.spec.id, turn_context)
        try:
            await asyncio.wait([turn.result])  # does not cancel the future
        except asyncio.CancelledError:
            if not turn.result.done():
                turn.cancel(turn_context.cancel_reason, turn_context.cancel_metadata)
            try:
                await wait_until_stopped(turn.result, turn_context, AGENT_STOP_TIMEOUT)
            finally:
                turn.abort(TimeoutError("the turn was canceled and did not stop in time"))
        try:
            return turn.result.result()
        except (AgentStopped, TimeoutError) as error:
            raise asyncio.CancelledError from error
        except WorkerLost as error:
            is_repeated = turn_context.attempt <= self.spec.crash_retries
            if error.may_have_started and not turn.was_returned and (turn_context.canceled or is_repeated):
                await self._wait_for_lease_of(worker, turn_context)
                if turn_context.canceled:
                    raise asyncio.CancelledError from error
            raise
        except (LeaseLost, AppendRejected):
            # The task continued without this run and the store rejects our writes.
            return TurnResult(StatusChange(states.CANCELED))

    async def _wait_for_lease_of(self, worker: WorkerConnection, context: TurnContext) -> None:
        """Waits until a disconnected worker has stopped its turns by its own clock."""
        self._lost[context.task_id] = worker
        while (seconds := worker.remaining_lease) > 0:
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                if context.stopping:
                    raise AgentStillRuns from None
        self._lost.pop(context.task_id, None)  # tasks of two owners may have one id

    async def _next_free_worker(self, turn_context: TurnContext) -> WorkerConnection:
        """The next worker in rotation that has a lease and room.

        Raises WorkerLost without one for WORKER_WAIT_TIMEOUT, or when this server stops or loses its own lease.
        """
        try:
            async with asyncio.timeout(WORKER_WAIT_TIMEOUT):
                while True:
                    for _ in range(len(self.workers)):
                        worker = self.workers[0]
                        self.workers.rotate(-1)
                        if worker.free_capacity(self.spec.id):
                            return worker
                    self._capacity_changed.clear()
                    await self._capacity_changed.wait()
        except TimeoutError:
            raise WorkerLost("It disconnected before the turn began.", may_have_started=False) from None
        except asyncio.CancelledError:
            if turn_context.cancel_reason in ("drain", "lease_lost"):
                raise WorkerLost("No worker had taken the turn yet.", may_have_started=False) from None
            raise
