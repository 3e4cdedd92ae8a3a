"""Why a turn has to stop, and how far that has come.

CANCELED means that the agent has stopped. So it is written when the agent has ended, never because time has passed: an
agent that ignores a cancel keeps its task active, until its process ends. Only a limit of the turn ends a task whose
agent may still run, as FAILED.

A request of a client, a deadline, a drain or a lapse of the lease interrupts the agent. After `Timings.fence_timeout`
the stop escalates. A client's cancel becomes FENCED: the agent's verbs fail, and the task waits for its end. For other
reasons the task ENDED: its final status is written while the agent may run.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

StopReason = Literal["client", "deadline", "drain", "fenced"]
"""`fenced`: the lease of the process has lapsed, or the task has ended without its agent."""


class Stop(Enum):
    """How far the stop of a turn has come."""

    NONE = "no stop was requested"
    REQUESTED = "the agent was asked to stop"
    FENCED = "the agent did not stop in time; its verbs fail"
    ENDED = "the task ends without its agent"


STOP_TRANSITIONS: Final = {
    Stop.NONE: frozenset({Stop.REQUESTED}),
    Stop.REQUESTED: frozenset({Stop.FENCED, Stop.ENDED}),
    Stop.FENCED: frozenset({Stop.ENDED}),
    Stop.ENDED: frozenset[Stop](),
}
"""A new turn begins in NONE again, or in REQUESTED while the process drains."""


class StopToken:
    """The stop requests of a run."""

    # Class attributes, because most runs never change these.
    state = Stop.NONE
    """Of the current turn."""
    reason: StopReason | Literal[""] = ""
    """Of the current turn: the first request counts."""
    metadata = b""
    """Of the client's cancel request: a serialized Struct."""
    requests: frozenset[StopReason] = frozenset()
    """All reasons for which a stop was requested, in this turn or an earlier one, in time for its end or not."""

    @property
    def requested(self) -> bool:
        """Whether the turn has to stop."""
        return self.state is not Stop.NONE

    def note(self, reason: StopReason) -> None:
        """Notes a request that comes too late for this turn; a later one looks at it."""
        self.requests |= {reason}

    def request(self, reason: StopReason, metadata: bytes = b"") -> bool:
        """Requests a stop. False when an earlier request counts."""
        self.note(reason)
        if self.state is not Stop.NONE:
            return False
        self._enter(Stop.REQUESTED)
        self.reason, self.metadata = reason, metadata
        return True

    def escalate(self) -> Stop:
        """The agent did not stop in time: FENCED after a client's cancel, else ENDED."""
        if self.reason == "client" and self.state is Stop.REQUESTED:
            self._enter(Stop.FENCED)
        else:
            self._enter(Stop.ENDED)
            self.reason = "fenced"
        return self.state

    def begin_turn(self) -> None:
        """Begins the next turn. A drain stops that as well."""
        draining = "drain" in self.requests
        self.state, self.reason, self.metadata = Stop.NONE, "", b""
        if draining:
            self.request("drain")

    def _enter(self, state: Stop) -> None:
        assert state in STOP_TRANSITIONS[self.state], f"{self.state.name} to {state.name}"
        self.state = state
