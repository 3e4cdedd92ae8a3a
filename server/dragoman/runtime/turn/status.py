"""What the server itself says of a task it had to end, in words for people and a reason for programs.

The reason stands in the metadata of the status message, so that it is there in every dialect and transport.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dragoman.core.task import states
from dragoman.core.task.log import StatusChange
from dragoman.ids import IDS
from dragoman.runtime.turn.events import Change
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(frozen=True, slots=True)
class SystemStatus:
    state: int
    reason: str
    text: str


SERVER_STOPPED: Final = SystemStatus(states.FAILED, "INTERRUPTED", "The server stopped while this task was running.")
TURN_ABORTED: Final = SystemStatus(states.FAILED, "INTERRUPTED", "The server could not go on with this task.")
WORKER_LOST: Final = SystemStatus(states.FAILED, "INTERRUPTED", "The worker that ran this task is gone.")
NO_WORKER: Final = SystemStatus(states.FAILED, "NO_WORKER", "No worker of this agent came to take this task.")
UPSTREAM_AWAY: Final = SystemStatus(
    states.FAILED, "UPSTREAM_AWAY", "The agent of this task went away, and did not come back."
)
DRAINED: Final = SystemStatus(states.FAILED, "DRAINED", "The server shut down before this task was finished.")
NOT_WRITTEN: Final = SystemStatus(states.FAILED, "NOT_WRITTEN", "What the agent produced could not be written.")
FENCED_OFF: Final = SystemStatus(
    states.CANCELED, "FENCED", "The agent did not stop in time; the task was ended without it."
)

TIMED_OUT: Final = SystemStatus(states.FAILED, "TIMED_OUT", "The agent took longer than it may.")
IDLE_TOO_LONG: Final = SystemStatus(states.FAILED, "IDLE", "The agent said nothing for longer than it may.")
OVER_BUDGET: Final = SystemStatus(states.FAILED, "OVER_BUDGET", "The task has used more than it may.")
CONTEXT_CHANGED: Final = SystemStatus(
    states.FAILED, "CONTEXT_CHANGED", "Another task of this conversation changed its state while this one worked on it."
)
EXPIRED: Final = SystemStatus(states.FAILED, "EXPIRED", "Nobody answered this task in the time it is kept waiting.")

INVALID_TRANSITION: Final = SystemStatus(
    states.FAILED, "INVALID_AGENT_RESPONSE", "The agent broke the order of states:"
)


def retry_status(attempt: int) -> StatusChange:
    """The status change with which a turn is begun again: it carries the number of the attempt."""
    holder = pb.Message(metadata={"attempt": attempt})
    return StatusChange(states.WORKING, metadata=holder.metadata.SerializeToString())


def system_status(status: SystemStatus, detail: str = "") -> StatusChange:
    """The status change that ends a task with this notice."""
    message = pb.Message(
        message_id=IDS.hex(),
        role=pb.ROLE_AGENT,
        parts=[pb.Part(text=f"{status.reason}: {status.text} {detail}".rstrip())],
        metadata={"reason": status.reason},
    )
    return StatusChange(status.state, message.SerializeToString())


class TransitionChecker:
    """The states that the verbs of one turn bring its task to, from the one in which the turn began."""

    def __init__(self, state: int) -> None:
        self._state = state
        self._reported_working = False

    def check(self, change: Change) -> None:
        """Raises ValueError, in the agent's own call, for a state that may not follow.

        The WORKING that the server wrote for the agent does not count against the agent's own first one.
        """
        if not isinstance(change, StatusChange):
            if self._state == states.SUBMITTED:
                self._state = states.WORKING
            return
        again = change.state == self._state == states.WORKING and not self._reported_working
        if not again and not states.can_transition_to(self._state, change.state, strict=True):
            raise ValueError(f"{states.name(self._state)} may not be followed by {states.name(change.state)}")
        self._reported_working = change.state == states.WORKING
        self._state = change.state

    def check_end(self, changes: list[Change], *, current_state: int) -> list[Change]:
        """The last append of the turn: WORKING before a result, FAILED for an end that may not follow.

        `shown` is the state that the task has. An agent that has said nothing may end as if it had said WORKING, which
        the server says for it when it takes its time.
        """
        first, end, said = changes[0], changes[-1], self._state
        begins = isinstance(first, StatusChange) and first.state in states.STRICT_TRANSITIONS[states.SUBMITTED]
        if current_state == states.SUBMITTED and not begins:
            changes = [StatusChange(states.WORKING), *changes]
            said = states.WORKING
        before = (said, states.WORKING) if said == states.SUBMITTED else (said,)
        if isinstance(end, StatusChange) and not any(
            states.can_transition_to(one, end.state, strict=True) for one in before
        ):
            rule = f"{states.name(said)} may not be followed by {states.name(end.state)}"
            return [*changes[:-1], system_status(INVALID_TRANSITION, rule)]
        return changes
