"""What a turn on a task with a past begins with: everything that was said, and what earlier turns left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.core.log import Head
from dragoman.core.usage import Usage
from dragoman.ports import Store, StoredMessage
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(frozen=True, slots=True)
class Recalled:
    """What the agent is given."""

    message: StoredMessage
    """The first that no turn has taken."""
    waiting: int
    """How many came after it."""
    history: list[pb.Message]
    """All before it."""
    asked: pb.Message | None
    """What the agent asked last, if it waits for an answer."""
    memory: bytes
    artifacts: Sequence[pb.Artifact]
    """What earlier attempts at the turn left; empty in the first."""
    usage: Usage


async def recall(store: Store, head: Head, taken: int, attempt: int) -> Recalled:
    """Reads it. `taken`: the user's last message that a turn has taken. Raises LookupError when there is no other."""
    conversation = await store.conversation(head.ref)
    if conversation is None or not (unread := conversation.unread(taken)):
        raise LookupError("a claimed task has no message to answer")
    said = {one.number: pb.Message.FromString(one.message) for one in conversation.messages}
    history = [message for number, message in said.items() if number < unread[0].number]
    artifacts: Sequence[pb.Artifact] = ()
    if attempt > 1:
        snapshot = await store.read(head.ref, history=0)
        artifacts = tuple(pb.Task.FromString(snapshot.task).artifacts) if snapshot else ()
    asked, usage = said.get(conversation.head.asked), await store.usage(head.ref)
    return Recalled(unread[0], len(unread) - 1, history, asked, conversation.memory, artifacts, usage)
