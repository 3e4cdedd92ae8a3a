"""Input of a turn: the message to answer, the history, and what earlier turns left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.core.access.identity import Isolation
from dragoman.core.limits.quotas import Usage
from dragoman.core.task.log import TaskRecord
from dragoman.ports import Store, StoredMessage
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(frozen=True, slots=True)
class TurnInput:
    """The input of a turn, as read from the store."""

    message: StoredMessage
    """The first message that no turn has received."""
    waiting_messages: int
    """Unread messages behind it."""
    history: list[pb.Message]
    """All messages before it, oldest first."""
    question: pb.Message | None
    """The agent's last question, if the task waited for its answer."""
    task_state: bytes
    task_metadata: bytes
    artifacts: Sequence[pb.Artifact]
    """All artifacts of the task at the start of a second or later attempt; empty in the first."""
    usage: Usage


async def load_turn_input(store: Store, record: TaskRecord, last_delivered: int, attempt: int) -> TurnInput:
    """Reads the input of a turn from the store.

    `last_delivered` is the number of the last message that a turn has received. Raises LookupError when no later one
    exists.
    """
    conversation = await store.messages(record.ref)
    if conversation is None or not (unread := conversation.unread(last_delivered)):
        raise LookupError("a claimed task has no message to answer")
    messages = {stored.number: pb.Message.FromString(stored.message) for stored in conversation.messages}
    history = [message for number, message in messages.items() if number < unread[0].number]
    artifacts: Sequence[pb.Artifact] = ()
    if attempt > 1:
        snapshot = await store.read(record.ref, history=0)
        artifacts = tuple(pb.Task.FromString(snapshot.task).artifacts) if snapshot else ()
    question, usage = messages.get(conversation.record.question), await store.usage(record.ref)
    state, metadata = conversation.task_state, conversation.task_metadata
    return TurnInput(unread[0], len(unread) - 1, history, question, state, metadata, artifacts, usage)


NO_MESSAGE: Final = pb.Message()
"""Stands for a message that has not been read yet."""


MAX_REFERENCES: Final = 16
"""Referenced tasks passed to an agent; further ones are dropped."""


class ReferenceResolver:
    """Reads the tasks that messages refer to."""

    def __init__(self, store: Store, isolation: Isolation) -> None:
        self._store = store
        self._isolation = isolation

    async def resolve(self, record: TaskRecord, sender: str, task_ids: Iterable[str]) -> list[pb.Task]:
        """The referenced tasks that the sender may see, of this task's agent only; unknown ids are skipped."""
        visible = self._isolation.visibility(record.ref.owner.scope, record.agent, sender)
        found = []
        for task_id in list(dict.fromkeys(task_ids))[:MAX_REFERENCES]:
            record_found = await self._store.find(visible.owner, record.agent, task_id, joined=visible.joined)
            snapshot = await self._store.read(record_found.ref) if record_found else None
            if snapshot is not None:
                found.append(pb.Task.FromString(snapshot.task))
        return found
