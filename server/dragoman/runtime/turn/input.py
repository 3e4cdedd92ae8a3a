"""What a turn on a task with a past begins with: everything that was said, and what earlier turns left."""

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
    """What the agent is given."""

    message: StoredMessage
    """The first that no turn has taken."""
    waiting_messages: int
    """How many came after it."""
    history: list[pb.Message]
    """All before it."""
    question: pb.Message | None
    """What the agent asked last, if it waits for an answer."""
    task_state: bytes
    artifacts: Sequence[pb.Artifact]
    """What earlier attempts at the turn left; empty in the first."""
    usage: Usage


async def load_turn_input(store: Store, record: TaskRecord, last_delivered: int, attempt: int) -> TurnInput:
    """Reads it. `taken`: the user's last message that a turn has taken. Raises LookupError when there is no other."""
    conversation = await store.messages(record.ref)
    if conversation is None or not (unread := conversation.unread(last_delivered)):
        raise LookupError("a claimed task has no message to answer")
    said = {one.number: pb.Message.FromString(one.message) for one in conversation.messages}
    history = [message for number, message in said.items() if number < unread[0].number]
    artifacts: Sequence[pb.Artifact] = ()
    if attempt > 1:
        snapshot = await store.read(record.ref, history=0)
        artifacts = tuple(pb.Task.FromString(snapshot.task).artifacts) if snapshot else ()
    asked, usage = said.get(conversation.record.question), await store.usage(record.ref)
    return TurnInput(unread[0], len(unread) - 1, history, asked, conversation.task_state, artifacts, usage)


MAX_REFERENCES: Final = 16
"""Referenced tasks that an agent is given; further ones it has to do without."""


class ReferenceResolver:
    """Looks up references for the runs of one process."""

    def __init__(self, store: Store, isolation: Isolation) -> None:
        self._store = store
        self._isolation = isolation

    async def resolve(self, record: TaskRecord, sender: str, task_ids: Iterable[str]) -> list[pb.Task]:
        """The tasks of these ids that the sender sees of this task's agent; others are not there for either."""
        view = self._isolation.visibility(record.ref.owner.scope, record.agent, sender)
        found = []
        for task_id in list(dict.fromkeys(task_ids))[:MAX_REFERENCES]:
            other = await self._store.find(view.owner, record.agent, task_id, joined=view.joined)
            snapshot = await self._store.read(other.ref) if other else None
            if snapshot is not None:
                found.append(pb.Task.FromString(snapshot.task))
        return found
