"""What a turn upstream writes into our log, and what it knows of the task there."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID, uuid5

import orjson
from google.protobuf import struct_pb2

from dragoman.agents.upstream.task_view import ArtifactSync, StatusMapper, status_digest
from dragoman.agents.values import NewId
from dragoman.calling.errors import ProtocolError
from dragoman.core.limits.quotas import Usage, UsageReport, usage_from_metadata
from dragoman.core.names import Owner
from dragoman.core.task import states
from dragoman.core.task.log import ArtifactChange, StatusChange
from dragoman.ports import NO_CHANGE, StateUpdate, TurnContext, TurnResult
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_UPSTREAM_ID_CHARS = 1000
"""Characters of an id that upstream may give."""


class TurnWriter:
    """One turn at a desk, as far as it is written. What is learnt of the task upstream goes with the next event."""

    def __init__(self, turn_context: TurnContext, location: str, new_id: NewId) -> None:
        self.turn_context = turn_context
        self.location = location
        self.state = read_task_state(turn_context.task_state)
        self.task_known = asyncio.Event()
        """Set once it is known which task upstream this is."""
        if self.state.task:
            self.task_known.set()
        self.statuses = StatusMapper(turn_context, new_id)
        self.may_change_task = False
        """A message was just sent: some servers begin another task for each, whichever it names."""
        self.event_count = 0
        """Events written."""
        self._written_state = self.state
        self._artifacts = ArtifactSync(new_id)
        self._held_status: StatusChange | None = None
        self._answered_digest = self.state.waited

    @property
    def holds_status(self) -> bool:
        """Whether AUTH_REQUIRED was said and is not written yet: a stream that ends with it ends the turn."""
        return self._held_status is not None

    @property
    def has_artifacts(self) -> bool:
        """Whether an artifact was seen in this turn."""
        return self._artifacts.has_any

    async def apply(self, event: pb.StreamResponse, last_message_id: str, *, polled: bool = False) -> TurnResult | None:
        """Writes one event; `heard` is the id of the message that upstream has then. The end of the turn, if it is
        that. `by_call`: nothing more comes by itself. Raises Nonsense, InvalidAgentResponse."""
        match event.WhichOneof("payload"):
            case "message":
                await self.flush_held()
                return self.statuses.reply_result(event.message, NO_CHANGE)
            case "task":
                task = event.task
                self._record_ids(task.id, task.context_id, last_message_id)
                self._count_usage(task.metadata)
                for change in self._artifacts.snapshot(task):
                    await self._put(change)
                return await self._apply_status(task.status, polled=polled)
            case "status_update":
                update = event.status_update
                self._record_ids(update.task_id, update.context_id, last_message_id)
                self._count_usage(update.metadata)
                metadata = update.metadata.SerializeToString() if update.HasField("metadata") else b""
                return await self._apply_status(update.status, metadata)
            case "artifact_update":
                self._record_ids(event.artifact_update.task_id, event.artifact_update.context_id, last_message_id)
                added = self._artifacts.update(event.artifact_update)
                if added is not None:
                    await self._put(added)
                return None
        raise ProtocolError(f"{self.location}: an event says nothing")

    async def flush_held(self) -> None:
        """Writes what was held back."""
        held, self._held_status = self._held_status, None
        if held is not None:
            await self._put(held)

    def take_held_result(self) -> TurnResult | None:
        """The end of the turn with what was held back; None when nothing was."""
        held, self._held_status = self._held_status, None
        return TurnResult(held) if held is not None else None

    async def continue_after(self, result: TurnResult) -> None:
        """Writes what would have ended the turn, which goes on with another message."""
        await self._put(StatusChange(states.WORKING, result.status.message, result.status.metadata))
        if states.is_terminal(result.status.state):
            self.forget_task()
        self._answered_digest = self.state.waited

    def forget_task(self) -> None:
        """The next message begins another task there, in the same conversation."""
        self.state = replace(self.state, task="")

    def mark_unsent(self) -> None:
        """Writes that the message of this turn has not been sent."""
        self.state = replace(self.state, unsent=True)
        self.turn_context.put(StatusChange(states.WORKING), state_update=self.state_update())

    def state_update(self) -> StateUpdate:
        """What is to be kept and is not yet."""
        return NO_CHANGE if self.state == self._written_state else StateUpdate(task_state=self.state.to_json())

    async def _apply_status(
        self, status: pb.TaskStatus, metadata: bytes = b"", *, polled: bool = False
    ) -> TurnResult | None:
        change, waits = self.statuses.to_change(status, metadata), status.state in states.INTERRUPTED
        if waits and status_digest(status) == self._answered_digest:
            return None  # as it was before the message came
        if waits:
            self.state = replace(self.state, waited=status_digest(status))
        if states.is_terminal(status.state) or (waits and (polled or status.state == states.INPUT_REQUIRED)):
            await self.flush_held()
            return TurnResult(change)
        if waits:
            if self.statuses.is_new(status):
                self._held_status = change
                self.statuses.mark_written(status)
            return None
        if self.statuses.is_new(status) or metadata or self._written_state != self.state:
            self.statuses.mark_written(status)
            await self._put(change)
        return None

    async def _put(self, change: StatusChange | ArtifactChange) -> None:
        await self.flush_held()
        self.event_count += 1
        notes = self.state_update()
        self._written_state = self.state
        await self.turn_context.put(change, state_update=notes)

    def _count_usage(self, metadata: struct_pb2.Struct) -> None:
        """Counts here what the task there has used since it was heard of last, where upstream says it as we do."""
        told = usage_from_metadata(metadata)
        tokens, cost = told.tokens - self.state.tokens, told.cost - self.state.cost
        if tokens <= 0 and cost <= 0:
            return
        # The key, so that an attempt that follows one which died, and hears the same, does not count it again.
        key = usage_key(self.state.task, told)
        self.turn_context.report_usage(UsageReport(max(tokens, 0), max(cost, 0), key))
        self.state = replace(
            self.state, tokens=max(told.tokens, self.state.tokens), cost=max(told.cost, self.state.cost)
        )

    def _record_ids(self, task_id: str, context_id: str, last_message_id: str) -> None:
        """Which task and conversation it is there. Raises Nonsense for another one than it was."""
        if not task_id or len(task_id) > MAX_UPSTREAM_ID_CHARS or len(context_id) > MAX_UPSTREAM_ID_CHARS:
            raise ProtocolError(f"{self.location}: what it says of a task has no id of that task, or a very long one")
        if self.state.task and task_id != self.state.task and not self.may_change_task:
            raise ProtocolError(
                f"{self.location}: it speaks of task {task_id[:100]} when asked about {self.state.task}"
            )
        self.may_change_task = False
        if task_id != self.state.task:
            self.state = replace(self.state, tokens=0, cost=0)
        self.state = replace(
            self.state,
            at=self.location,
            task=task_id,
            context=context_id or self.state.context,
            heard=last_message_id,
            unsent=False,
        )
        self.task_known.set()


_ID_NAMESPACE = UUID("5c0d3a0e-6f0b-4b6e-9a52-8f6a7c1d2e41")
"""The name space of ids that are made up here for agents upstream."""


@dataclass(frozen=True, slots=True)
class UpstreamTaskState:
    """Where a task of ours is upstream."""

    at: str = ""
    """The base of the agent that has it, without what is secret."""
    task: str = ""
    """Its id there; empty until that is known."""
    context: str = ""
    """The conversation there."""
    heard: str = ""
    """The id of the last message of ours that upstream is known to have."""
    waited: str = ""
    """The mark of the status in which it waited for its caller last (saying.mark)."""
    unsent: bool = False
    """The turn was given back before its message can have arrived."""
    tokens: int = 0
    cost: int = 0
    """What the task there has used, as far as it was counted here; the cost in billionths."""

    def to_json(self) -> bytes:
        """As JSON."""
        return orjson.dumps({"upstream": {name: value for name, value in asdict(self).items() if value}})


def read_task_state(data: bytes) -> UpstreamTaskState:
    """The memory of a task; an empty one for what nobody wrote, or what is not ours."""
    try:
        found: Any = orjson.loads(data) if data else {}
    except orjson.JSONDecodeError:
        return UpstreamTaskState()
    said = found.get("upstream") if isinstance(found, dict) else None
    if not isinstance(said, dict):
        return UpstreamTaskState()
    texts = {
        name: said[name] for name in ("at", "task", "context", "heard", "waited") if isinstance(said.get(name), str)
    }
    numbers = {name: said[name] for name in ("tokens", "cost") if type(said.get(name)) is int}
    return UpstreamTaskState(**texts, **numbers, unsent=said.get("unsent") is True)


def upstream_context_id(owner: Owner, context_id: str) -> str:
    """The conversation upstream for one of ours: the same for all of its tasks, and nobody else's.

    Upstream all callers of ours are one caller. A conversation's id may be its client's choice, and two clients may
    choose the same; so it is not passed on as it is.
    """
    return str(
        uuid5(_ID_NAMESPACE, f"{len(owner.scope)}:{owner.scope}{len(owner.principal)}:{owner.principal}{context_id}")
    )


def upstream_task_id(task_id: str, message_id: str) -> str:
    """The task upstream that a message of ours begins, where its client has to name it (0.1): the same each time."""
    return str(uuid5(_ID_NAMESPACE, f"{task_id}\n{message_id}"))


def idempotency_key(task_id: str, message_id: str) -> str:
    """The idempotency key of the send of a message."""
    return str(uuid5(_ID_NAMESPACE, f"key\n{task_id}\n{message_id}"))


def usage_key(task: str, usage: Usage) -> str:
    """The key under which it is reported that a task upstream has used so much in all."""
    return str(uuid5(_ID_NAMESPACE, f"usage\n{task}\n{usage.tokens}\n{usage.cost}"))
