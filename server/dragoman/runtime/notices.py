"""What the server itself says of a task it had to end, in words for people and a reason for programs.

The reason stands in the metadata of the status message, so that it is there in every dialect and transport.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from dragoman.core import states
from dragoman.core.log import StatusChange
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(frozen=True, slots=True)
class Notice:
    state: int
    reason: str
    text: str


INTERRUPTED: Final = Notice(states.FAILED, "INTERRUPTED", "The server stopped while this task was running.")
DRAINED: Final = Notice(states.FAILED, "DRAINED", "The server shut down before this task was finished.")
LOST: Final = Notice(states.FAILED, "NOT_WRITTEN", "What the agent produced could not be written.")
OVERTAKEN: Final = Notice(states.CANCELED, "FENCED", "The agent did not stop in time; the task was ended without it.")

BROKEN: Final = Notice(states.FAILED, "INVALID_AGENT_RESPONSE", "The agent broke the order of states:")


def notice(what: Notice, detail: str = "") -> StatusChange:
    """The status change that ends a task with this notice."""
    message = pb.Message(
        message_id=uuid.uuid4().hex,
        role=pb.ROLE_AGENT,
        parts=[pb.Part(text=f"{what.reason}: {what.text} {detail}".rstrip())],
        metadata={"reason": what.reason},
    )
    return StatusChange(what.state, message.SerializeToString())
