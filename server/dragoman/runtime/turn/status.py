"""System statuses: how the server itself ends or repeats a turn, and strict transitions.

The text is for people; the reason, for programs, is in the metadata of the status message, so every dialect and
transport shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dragoman.core.task import states
from dragoman.core.task.log import StatusChange, TaskRecord
from dragoman.ids import IDS
from dragoman.runtime.turn.events import Change
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(frozen=True, slots=True)
class SystemStatus:
    """A final state with its reason and text."""

    state: int
    reason: str
    text: str


SERVER_STOPPED: Final = SystemStatus(states.FAILED, "INTERRUPTED", "The server stopped while this task was running.")
TURN_ABORTED: Final = SystemStatus(states.FAILED, "INTERRUPTED", "The server could not continue this task.")
WORKER_LOST: Final = SystemStatus(states.FAILED, "INTERRUPTED", "The worker running this task was lost.")
NO_WORKER: Final = SystemStatus(
    states.FAILED, "NO_WORKER", "No worker of this agent connected in time to run this task."
)
UPSTREAM_AWAY: Final = SystemStatus(
    states.FAILED, "UPSTREAM_AWAY", "The agent of this task became unavailable and did not come back in time."
)
DRAINED: Final = SystemStatus(states.FAILED, "DRAINED", "The server shut down before this task was finished.")
NOT_WRITTEN: Final = SystemStatus(states.FAILED, "NOT_WRITTEN", "The output of the agent could not be stored.")
LEASE_LAPSED: Final = SystemStatus(
    states.FAILED, "INTERRUPTED", "The server could not reach its store in time and stopped this task."
)

TIMED_OUT: Final = SystemStatus(states.FAILED, "TIMED_OUT", "The turn exceeded its time limit.")
IDLE_TOO_LONG: Final = SystemStatus(states.FAILED, "IDLE", "The agent was inactive for longer than its idle limit.")
OVER_BUDGET: Final = SystemStatus(states.FAILED, "OVER_BUDGET", "The task exceeded its budget.")
CONTEXT_CHANGED: Final = SystemStatus(
    states.FAILED,
    "CONTEXT_CHANGED",
    "Another task of this conversation changed the conversation's state during this turn.",
)
EXPIRED: Final = SystemStatus(states.FAILED, "EXPIRED", "The task received no reply within its retention time.")

INVALID_TRANSITION: Final = SystemStatus(
    states.FAILED, "INVALID_AGENT_RESPONSE", "The agent made an invalid state transition:"
)


def retry_status(attempt: int) -> StatusChange:
    """The status update that begins a repeated turn; its metadata carry the number of the attempt."""
    message = pb.Message(metadata={"attempt": attempt})
    return StatusChange(states.WORKING, metadata=message.metadata.SerializeToString())


def system_status(status: SystemStatus, record: TaskRecord, detail: str = "") -> StatusChange:
    """The status change that ends the task of `record` with a system status; `detail` is appended to the text.

    The message names its task and context, as every message of a task does (1.0 §4.1.4).
    """
    message = pb.Message(
        message_id=IDS.hex(),
        context_id=record.context,
        task_id=record.id,
        role=pb.ROLE_AGENT,
        parts=[pb.Part(text=f"{status.reason}: {status.text} {detail}".rstrip())],
        metadata={"reason": status.reason},
    )
    return StatusChange(status.state, message.SerializeToString())


class TransitionChecker:
    """Strict mode: checks the state transitions that one turn makes, from the state in which it began."""

    def __init__(self, state: int) -> None:
        self._state = state
        self._reported_working = False

    def check(self, change: Change) -> None:
        """Raises ValueError, in the agent's own call, for an invalid transition.

        A WORKING written by the server on the agent's behalf does not make the agent's own first WORKING a repetition.
        """
        if not isinstance(change, StatusChange):
            if self._state == states.SUBMITTED:
                self._state = states.WORKING
            return
        first_working = change.state == self._state == states.WORKING and not self._reported_working
        if not first_working and not states.can_transition_to(self._state, change.state, strict=True):
            raise ValueError(f"{states.name(self._state)} may not be followed by {states.name(change.state)}")
        self._reported_working = change.state == states.WORKING
        self._state = change.state

    def check_end(self, changes: list[Change], record: TaskRecord) -> list[Change]:
        """Completes the last append of a turn: adds WORKING before a result, replaces an invalid end by FAILED.

        `record` is the task in the store. An agent that wrote nothing may end as if it had written
        WORKING, which the server writes for slow agents anyway.
        """
        first, end, state = changes[0], changes[-1], self._state
        begins = isinstance(first, StatusChange) and first.state in states.STRICT_TRANSITIONS[states.SUBMITTED]
        if record.state == states.SUBMITTED and not begins:
            changes = [StatusChange(states.WORKING), *changes]
            state = states.WORKING
        possible_states = (state, states.WORKING) if state == states.SUBMITTED else (state,)
        if isinstance(end, StatusChange) and not any(
            states.can_transition_to(candidate, end.state, strict=True) for candidate in possible_states
        ):
            rule = f"{states.name(state)} may not be followed by {states.name(end.state)}"
            return [*changes[:-1], system_status(INVALID_TRANSITION, record, rule)]
        return changes
