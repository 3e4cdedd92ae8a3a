"""Input of a turn: the message to answer, the history, and what earlier turns left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dragoman.core.access.identity import Isolation
from dragoman.core.limits.quotas import Usage
from dragoman.core.names import Owner, task_id_of
from dragoman.core.task.log import ClaimHeld, ContextState, TaskRecord
from dragoman.ports import Store, StoredMessage
from dragoman.runtime.log import EventLog
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


class ReadableTurn:
    """Base class of TurnRunner: the part of `dragoman.ports.TurnContext` that an agent reads.

    `TurnRunner.__init__` sets the attributes that have no value here.
    """

    # Class attributes, because most turns never change these: a runner has thirty others.
    message: pb.Message = NO_MESSAGE
    envelope: pb.SendMessageRequest = pb.SendMessageRequest()
    question: pb.Message | None = None
    task_state = task_metadata = cancel_metadata = b""
    stored_envelope = b""
    previous_artifacts: Sequence[pb.Artifact] = ()
    references: Sequence[pb.Task] = ()
    waiting_messages = 0
    canceled = stopping = False
    _stop_reason = ""
    _context = ContextState()
    _fresh_context = False
    record: TaskRecord
    principal: str
    attempt: int
    _store: Store
    _log: EventLog
    _guard: ClaimHeld
    _message_arrived: asyncio.Event
    _reference_resolver: ReferenceResolver
    _history: list[pb.Message]
    _last_delivered: int

    @property
    def task_id(self) -> str:
        return self.record.id

    @property
    def context_id(self) -> str:
        return self.record.context

    @property
    def owner(self) -> Owner:
        return self.record.ref.owner

    @property
    def history(self) -> Sequence[pb.Message]:
        return self._history

    @property
    def context_state(self) -> bytes:
        return self._context.data

    @property
    def cancel_reason(self) -> str:
        return self._stop_reason

    async def incoming(self) -> AsyncIterator[tuple[pb.Message, pb.SendMessageRequest]]:
        while True:
            self._message_arrived.clear()  # before the read, so that a message arriving during it sets it again
            for stored in await self._log.retry_read(
                self._unread_messages, self.record.ref, self._guard, self._log_fields
            ):
                self._last_delivered = stored.number
                message = pb.Message.FromString(stored.message)
                self._history.append(message)
                yield message, pb.SendMessageRequest.FromString(stored.envelope)
            await self._message_arrived.wait()

    async def _load_message(self) -> Usage:
        """Reads the message to answer, and results of earlier turns. Returns the usage of earlier turns."""
        turn_input = await load_turn_input(self._store, self.record, self._last_delivered, self.attempt)
        self.task_state, self.task_metadata = turn_input.task_state, turn_input.task_metadata
        self.question, self._history = turn_input.question, turn_input.history
        self.previous_artifacts, self.waiting_messages = turn_input.artifacts, turn_input.waiting_messages
        self._set_message(turn_input.message)
        return turn_input.usage

    def _set_message(self, stored: StoredMessage) -> None:
        self._last_delivered = stored.number
        self.principal = stored.sender or self.record.ref.owner.principal
        self.message = pb.Message.FromString(stored.message)
        self.stored_envelope, self.envelope = stored.envelope, pb.SendMessageRequest.FromString(stored.envelope)

    async def _load_context(self) -> None:
        """Reads the state of the conversation, unless it is new, and the tasks that the message refers to."""
        record = self.record
        if not self._fresh_context:
            self._context = await self._store.context_state(record.ref.owner, record.agent, record.context)
        if task_ids := self.message.reference_task_ids:
            self.references = await self._reference_resolver.resolve(record, self.principal, task_ids)

    async def _unread_messages(self) -> list[StoredMessage]:
        conversation = await self._store.messages(self.record.ref, self._last_delivered)
        return conversation.unread(self._last_delivered) if conversation else []

    def _log_fields(self) -> dict[str, str]:
        record = self.record
        return {"task": task_id_of(record.ref.key), "agent": record.agent, "scope": record.ref.owner.scope}


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
