"""What the server itself says of a task it had to end, in words for people and a reason for programs.

The reason stands in the metadata of the status message, so that it is there in every dialect and transport.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dragoman.core import states
from dragoman.core.log import StatusChange
from dragoman.entropy import ENTROPY
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(frozen=True, slots=True)
class Notice:
    state: int
    reason: str
    text: str


INTERRUPTED: Final = Notice(states.FAILED, "INTERRUPTED", "The server stopped while this task was running.")
BROKEN_OFF: Final = Notice(states.FAILED, "INTERRUPTED", "The server could not go on with this task.")
PROCESS_LOST: Final = Notice(states.FAILED, "INTERRUPTED", "The worker that ran this task is gone.")
NO_WORKER: Final = Notice(states.FAILED, "NO_WORKER", "No worker of this agent came to take this task.")
AWAY: Final = Notice(states.FAILED, "UPSTREAM_AWAY", "The agent of this task went away, and did not come back.")
DRAINED: Final = Notice(states.FAILED, "DRAINED", "The server shut down before this task was finished.")
LOST: Final = Notice(states.FAILED, "NOT_WRITTEN", "What the agent produced could not be written.")
OVERTAKEN: Final = Notice(states.CANCELED, "FENCED", "The agent did not stop in time; the task was ended without it.")

TIMED_OUT: Final = Notice(states.FAILED, "TIMED_OUT", "The agent took longer than it may.")
IDLE: Final = Notice(states.FAILED, "IDLE", "The agent said nothing for longer than it may.")
OVER_BUDGET: Final = Notice(states.FAILED, "OVER_BUDGET", "The task has used more than it may.")
OUTDATED: Final = Notice(
    states.FAILED, "CONTEXT_CHANGED", "Another task of this conversation changed its state while this one worked on it."
)
EXPIRED: Final = Notice(states.FAILED, "EXPIRED", "Nobody answered this task in the time it is kept waiting.")

BROKEN: Final = Notice(states.FAILED, "INVALID_AGENT_RESPONSE", "The agent broke the order of states:")


def again(attempt: int) -> StatusChange:
    """The status change with which a turn is begun again: it carries the number of the attempt."""
    holder = pb.Message(metadata={"attempt": attempt})
    return StatusChange(states.WORKING, metadata=holder.metadata.SerializeToString())


def notice(what: Notice, detail: str = "") -> StatusChange:
    """The status change that ends a task with this notice."""
    message = pb.Message(
        message_id=ENTROPY.hex(),
        role=pb.ROLE_AGENT,
        parts=[pb.Part(text=f"{what.reason}: {what.text} {detail}".rstrip())],
        metadata={"reason": what.reason},
    )
    return StatusChange(what.state, message.SerializeToString())
