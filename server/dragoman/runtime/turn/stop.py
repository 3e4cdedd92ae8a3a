"""Why and how a turn stops: cancels, limits, a drain, and a lapse of the process's lease.

CANCELED means that the agent has stopped. So it is written when the agent has ended, never because time has passed: an
agent that ignores a cancel keeps its task active, until its process ends. Only a limit of the turn ends a task whose
agent may still run, as FAILED.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from dragoman.core.task import states
from dragoman.core.task.log import Append, StatusChange
from dragoman.ports import NO_CHANGE, Agent, LeaseLost, RemoteAgent, StateUpdate
from dragoman.runtime.lease import LeaseHold
from dragoman.runtime.turn.events import Change, EventBatch
from dragoman.runtime.turn.input import ReadableTurn
from dragoman.runtime.turn.limits import TurnDeadlines
from dragoman.runtime.turn.status import DRAINED, LEASE_LAPSED, system_status

log = logging.getLogger("dragoman.runtime")

FENCE_TIMEOUT: Final = 10.0
"""Seconds a canceled agent has to stop. Then it is fenced: its verbs raise LeaseLost."""


class StoppableTurn(ReadableTurn):
    """The stop requests of a turn. `TurnRunner` runs the turn and writes its end."""

    # Class attributes, because most runs never change these: an object with 30 instance attributes or more gets a
    # dictionary of its own and takes twice the time to create.
    cancel_refusal = ""
    """The agent's reason for refusing a cancel; empty when it does not refuse."""
    _task: asyncio.Task[None] | None = None
    _started = False  # its asyncio task has taken its first step; canceled earlier, it would never run
    _finishing = False
    _fence_task: asyncio.Task[None] | None = None
    _client_canceled = False  # by a client; the store records up to which message
    _drained = False
    _fenced = False  # did not stop within FENCE_TIMEOUT of a client's cancel
    _lease_lapsed = False
    _hold: LeaseHold | None
    _agent: Agent
    _batch: EventBatch
    deadlines: TurnDeadlines

    def cancel(self, reason: str = "client", metadata: bytes = b"") -> None:
        """Asks the agent to stop. CANCELED is written when it has stopped; from FENCE_TIMEOUT on its verbs fail.

        A task that exceeded a limit ends as FAILED after FENCE_TIMEOUT, whatever its agent does. `metadata`: of the
        client's request, a serialized Struct.
        """
        if self.cancel_refusal and reason == "client":
            return
        if self._fenced and reason == "deadline" and not self._finishing:
            self._end_without_agent(self.deadlines.end_status(self.record))
        self._client_canceled = self._client_canceled or reason == "client"
        if self.canceled or self._finishing:
            return
        self.canceled, self._stop_reason, self.cancel_metadata = True, reason, metadata
        self.deadlines.after(FENCE_TIMEOUT, self._fence)
        self._interrupt()

    def drain(self) -> None:
        """Stops the turn at the end of the drain: the task ends as FAILED or is released for a retry."""
        self._drained = self.stopping = True
        if not self._finishing and self._task is not None and not self._task.done():
            self.canceled, self._stop_reason = True, self._stop_reason or "drain"
            self._interrupt()

    def end_lapsed_lease(self) -> None:
        """Stops the turn if the process's lease has lapsed since it began: others may act for this process now."""
        if self._loses_lease():
            self._interrupt()

    def _loses_lease(self) -> bool:
        """Notes a lapse of the lease. True, once, if the agent has to be interrupted for it."""
        if self._hold is None or self._lease_lapsed or self._finishing or not self._hold.lost:
            return False
        self._lease_lapsed = True
        log.warning("the lease of this process has lapsed; its turns stop", extra=self._log_fields())
        was_canceled = self.canceled
        if not was_canceled:
            self.canceled, self._stop_reason = True, "fenced"
        if isinstance(self._agent, RemoteAgent):  # only its answer tells whether it has stopped
            return not was_canceled
        self._batch.close(LeaseLost("the lease of this process has lapsed"))
        return True

    def _interrupt(self) -> None:
        if self._task is not None and self._started:
            self._task.cancel()

    def announce_stop(self) -> None:
        """Sets `stopping`: the drain ends soon."""
        self.stopping = True

    def refuse_cancel(self, reason: str) -> None:
        self.cancel_refusal = reason

    def _fence(self) -> None:
        """Rejects the output of a canceled agent that does not stop. A task that exceeded a limit ends without it."""
        if self._finishing or self._task is None or self._task.done():
            return
        log.warning("agent did not stop within %g s of a cancel; fenced", FENCE_TIMEOUT, extra=self._log_fields())
        if self._stop_reason != "client":
            self._end_without_agent(self._stop_status())
        else:
            self._fenced = True
            if not isinstance(self._agent, RemoteAgent):  # which is told by its own process
                self._batch.close(LeaseLost("the task is being canceled"))

    def _end_without_agent(self, end: StatusChange) -> None:
        """Ends the task while its agent may run. The release makes the store reject every later write of this run."""
        if self._fence_task is None:
            self._stop_reason = "fenced"
            self._fence_task = asyncio.ensure_future(self._insist(self._build_append([end], NO_CHANGE, release=True)))
            self._batch.close(LeaseLost("the task has ended"))

    def _stop_status(self) -> StatusChange:
        """The final status of a run that stopped on request."""
        if self._stop_reason == "deadline":
            return self.deadlines.end_status(self.record)
        if self._stop_reason == "drain":
            return system_status(DRAINED, self.record)
        lapsed = self._stop_reason == "fenced"
        return system_status(LEASE_LAPSED, self.record) if lapsed else StatusChange(states.CANCELED)

    async def _insist(self, change: Append) -> None:
        """Writes the end of the turn as soon as the store is available."""
        raise NotImplementedError

    def _build_append(self, changes: list[Change], state_update: StateUpdate, *, release: bool = False) -> Append:
        """An append under the claim of this turn."""
        raise NotImplementedError
