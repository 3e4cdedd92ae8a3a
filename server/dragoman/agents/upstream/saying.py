"""What an agent upstream says of its task's status, as our own: under our ids, and each thing once."""

from __future__ import annotations

import hashlib
from typing import Final

from dragoman.agents.upstream.road import Refused
from dragoman.agents.values import NewId, message_of
from dragoman.core import states
from dragoman.core.log import StatusChange
from dragoman.ports import Desk, Ending, Notes
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_REJECTED: Final = ("INVALID_PARAMS", "CONTENT_TYPE_NOT_SUPPORTED", "INVALID_REQUEST")
"""Refusals that are about the message, and no failure of the agent."""


class Sayings:
    """The statuses of one turn at a desk."""

    def __init__(self, desk: Desk, new_id: NewId) -> None:
        self._desk = desk
        self._new_id = new_id
        self._told = {message.message_id for message in desk.history if message.role == pb.ROLE_AGENT}
        """The ids of messages that our task has already."""
        self._last: tuple[int, bytes] | None = None

    def change(self, status: pb.TaskStatus, metadata: bytes = b"") -> StatusChange:
        """A status of ours. What is only on its way is WORKING here."""
        state = status.state if status.state in states.STORED - {states.SUBMITTED} else states.WORKING
        message = b""
        if status.HasField("message") and status.message.parts:
            message = self._message(status.message).SerializeToString()
        return StatusChange(state, message, metadata)

    def is_news(self, status: pb.TaskStatus) -> bool:
        """Whether a status says what none before it said."""
        if status.HasField("message") and status.message.message_id:
            return status.message.message_id not in self._told
        return self._last != _essence(status)

    def noted(self, status: pb.TaskStatus) -> None:
        """A status was written."""
        if status.HasField("message") and status.message.message_id:
            self._told.add(status.message.message_id)
        self._last = _essence(status)

    def reply(self, message: pb.Message, notes: Notes) -> Ending:
        """The end of a turn that is answered by a Message, and has no task there."""
        said = self._message(message)
        change = StatusChange(states.COMPLETED, said.SerializeToString())
        said.ClearField("task_id")  # of a task that will not have been
        return Ending(change, (), said, notes)

    def refused(self, refused: Refused, notes: Notes) -> Ending:
        """The end of a turn whose message was refused."""
        state = states.REJECTED if refused.reason in _REJECTED else states.FAILED
        return self._ended(state, f"UPSTREAM_REFUSED: {refused}", notes)

    def failed(self, text: str, notes: Notes) -> Ending:
        """FAILED with a text that begins with the reason."""
        return self._ended(states.FAILED, text, notes)

    def _ended(self, state: int, text: str, notes: Notes) -> Ending:
        message = message_of(text, self._new_id, task_id=self._desk.task_id, context_id=self._desk.context_id)
        message.metadata.update({"reason": text.partition(":")[0]})
        return Ending(StatusChange(state, message.SerializeToString()), notes=notes)

    def _message(self, said: pb.Message) -> pb.Message:
        return message_of(said, self._new_id, task_id=self._desk.task_id, context_id=self._desk.context_id)


def mark(status: pb.TaskStatus) -> str:
    """By which a status is known again: what it says, and when it was said."""
    return hashlib.blake2b(status.SerializeToString(deterministic=True), digest_size=12).hexdigest()


def _essence(status: pb.TaskStatus) -> tuple[int, bytes]:
    message = status.message.SerializeToString(deterministic=True) if status.HasField("message") else b""
    return status.state, hashlib.blake2b(message, digest_size=12).digest()
