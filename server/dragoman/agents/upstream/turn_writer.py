"""Writes an upstream turn into our log, and keeps the state of the upstream task."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final
from uuid import UUID, uuid5

from google.protobuf import struct_pb2

from dragoman.agents.called.agent import state_document, stored_fields
from dragoman.agents.upstream.task_view import ArtifactSync, content_digest, status_digest
from dragoman.agents.values import NewId, check_task_metadata, checked_metadata, message_of, struct_of
from dragoman.calling.errors import ProtocolError
from dragoman.core.limits.quotas import USAGE_METADATA_KEY, Usage, UsageReport, usage_from_metadata
from dragoman.core.names import Owner
from dragoman.core.task import states
from dragoman.core.task.log import ArtifactChange, StatusChange
from dragoman.core.task.projection import merge_metadata
from dragoman.ports import NO_CHANGE, StateUpdate, TurnContext, TurnResult
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_UPSTREAM_ID_CHARS = 1000  # characters of an upstream id


def _state_metadata(word: str) -> bytes:
    return pb.Task(metadata={states.UPSTREAM_STATE_KEY: word}).metadata.SerializeToString()


_UNKNOWN_STATE: Final = _state_metadata(states.UNKNOWN_STATE)


class TurnWriter:
    """Writes the events of one turn. New state of the upstream task is stored with the next event."""

    def __init__(self, turn_context: TurnContext, location: str, new_id: NewId) -> None:
        self.turn_context = turn_context
        self.location = location
        self.state = read_task_state(turn_context.task_state)
        self.task_known = asyncio.Event()  # set once the upstream task is known
        if self.state.task:
            self.task_known.set()
        self._new_id = new_id
        known = (message.message_id for message in turn_context.history if message.role == pb.ROLE_AGENT)
        self._written_message_ids = set(known)  # of messages that our task has already
        self._last_digest: tuple[int, bytes] | None = None
        self.may_change_task = False
        """Whether a message was just sent: some servers start a new task for each message, even if it names one."""
        self.event_count = 0  # events written
        self._written_state = self.state
        self._task_metadata = b""  # changes that are not written yet: a serialized Struct
        self.artifacts = ArtifactSync(new_id)
        self.held_status: StatusChange | None = None  # AUTH_REQUIRED: a stream that ends with it ends the turn
        self._answered_digest = self.state.interrupted_digest
        shown = struct_of(turn_context.task_metadata).fields.get(states.UPSTREAM_STATE_KEY)
        self._shows_unknown = shown is not None and shown.string_value == states.UNKNOWN_STATE

    async def apply(self, event: pb.StreamResponse, last_message_id: str, *, polled: bool = False) -> TurnResult | None:
        """Writes one event, and returns the result if it ends the turn. Raises ProtocolError, InvalidAgentResponse.

        last_message_id: the last message that the agent has received. polled: the event is the response to a call, and
        no more events follow by themselves.
        """
        match event.WhichOneof("payload"):
            case "message":
                await self.flush_held()
                reply = message_of(event.message, self._new_id, self.turn_context)
                completed = StatusChange(states.COMPLETED, reply.SerializeToString())
                reply.ClearField("task_id")  # a direct reply has no task
                return TurnResult(completed, (), reply)
            case "task":
                task = event.task
                self._record_ids(task.id, task.context_id, last_message_id)
                self._read_metadata(task.metadata)
                for change in self.artifacts.snapshot(task):
                    await self._put(change)
                return await self._apply_status(task.status, polled=polled)
            case "status_update":
                update = event.status_update
                self._record_ids(update.task_id, update.context_id, last_message_id)
                self._read_metadata(update.metadata)
                has_metadata = update.HasField("metadata")
                metadata = checked_metadata("metadata of a status", update.metadata) if has_metadata else b""
                return await self._apply_status(update.status, metadata)
            case "artifact_update":
                self._record_ids(event.artifact_update.task_id, event.artifact_update.context_id, last_message_id)
                added = self.artifacts.update(event.artifact_update)
                if added is not None:
                    await self._put(added)
                return None
        raise ProtocolError(f"{self.location}: an event is empty")

    async def flush_held(self) -> None:
        held, self.held_status = self.held_status, None
        if held is not None:
            await self._put(held)

    def take_held_result(self) -> TurnResult | None:
        """The result with the status that was held back; None when there is none."""
        held, self.held_status = self.held_status, None
        return TurnResult(held) if held is not None else None

    async def continue_after(self, result: TurnResult) -> None:
        """Writes the result of one message as an update, because the turn continues with another."""
        await self._put(StatusChange(states.WORKING, result.status.message, result.status.metadata))
        if states.is_terminal(result.status.state):
            self.forget_task()
        self._answered_digest = self.state.interrupted_digest

    def forget_task(self) -> None:
        """Lets the next message start another upstream task in the same context."""
        self.state = replace(self.state, task="")

    async def store_unsent(self, unsent: bool) -> None:
        """Stores whether the message of this turn was not sent, and waits for the commit."""
        self.state = self._written_state = replace(self.state, unsent=unsent)
        await self.turn_context.store(StateUpdate(self.state.to_json()))

    def state_update(self) -> StateUpdate:
        """The state and metadata that are not stored yet."""
        task_state = None if self.state == self._written_state else self.state.to_json()
        if task_state is None and not self._task_metadata:
            return NO_CHANGE
        return StateUpdate(task_state, task_metadata=self._task_metadata)

    def failed_result(self, text: str, state: int = states.FAILED, failure: bytes = b"") -> TurnResult:
        """The result of a failed turn. `text` begins with the reason and a colon. `failure`: see `StatusChange`."""
        message = message_of(text, self._new_id, self.turn_context)
        message.metadata.update({"reason": text.partition(":")[0]})
        change = StatusChange(state, message.SerializeToString(), failure=failure)
        return TurnResult(change, state_update=self.state_update())

    async def _apply_status(
        self, status: pb.TaskStatus, metadata: bytes = b"", *, polled: bool = False
    ) -> TurnResult | None:
        change, waits = self._to_change(status, metadata), status.state in states.INTERRUPTED
        if waits and status_digest(status) == self._answered_digest:
            return None  # the status that the message has answered
        if waits:
            self.state = replace(self.state, interrupted_digest=status_digest(status))
        if states.is_terminal(status.state) or (waits and (polled or status.state == states.INPUT_REQUIRED)):
            await self.flush_held()
            return TurnResult(change)
        if waits:
            if self._is_new(status):
                self.held_status = change
                self._mark_written(status)
            return None
        if self._is_new(status) or metadata or self.state_update() is not NO_CHANGE:
            self._mark_written(status)
            await self._put(change)
        return None

    def _to_change(self, status: pb.TaskStatus, metadata: bytes = b"") -> StatusChange:
        """The status change for an upstream status.

        States that no task may have become WORKING, with `upstreamState: unknown` in the metadata of the update and of
        the task: the upstream task goes on, and what it says next decides.
        """
        state = status.state
        is_unknown = state not in states.STORED_STATES
        if is_unknown:
            metadata += _UNKNOWN_STATE  # serialized maps merge when concatenated
        if is_unknown != self._shows_unknown:
            self._shows_unknown = is_unknown
            shown = _UNKNOWN_STATE if is_unknown else _state_metadata(states.word(state))
            self._task_metadata = merge_metadata(self._task_metadata, shown)
        if state not in states.STORED_STATES - {states.SUBMITTED}:
            state = states.WORKING
        message = b""
        if status.HasField("message") and status.message.parts:
            message = message_of(status.message, self._new_id, self.turn_context).SerializeToString()
        return StatusChange(state, message, metadata)

    def _is_new(self, status: pb.TaskStatus) -> bool:
        if status.HasField("message") and status.message.message_id:
            return status.message.message_id not in self._written_message_ids
        return self._last_digest != content_digest(status)

    def _mark_written(self, status: pb.TaskStatus) -> None:
        if status.HasField("message") and status.message.message_id:
            self._written_message_ids.add(status.message.message_id)
        self._last_digest = content_digest(status)

    async def _put(self, change: StatusChange | ArtifactChange) -> None:
        await self.flush_held()
        self.event_count += 1
        state_update = self.state_update()
        self._written_state, self._task_metadata = self.state, b""
        await self.turn_context.put(change, state_update=state_update)

    def _read_metadata(self, metadata: struct_pb2.Struct) -> None:
        """Keeps the metadata of a Task or of a status update, which other servers merge into their Task, for ours.

        Usage is reported, not kept. Raises InvalidAgentResponse beyond the limits of metadata.
        """
        if not metadata.fields:
            return
        self._count_usage(usage_from_metadata(metadata))
        known = merge_metadata(self.turn_context.task_metadata, self._task_metadata)
        known_fields, update = struct_of(known).fields, struct_of(b"")
        for key, value in metadata.fields.items():
            if key != USAGE_METADATA_KEY and (key not in known_fields or known_fields[key] != value):
                update.fields[key].CopyFrom(value)
        if update.fields:
            changed = check_task_metadata("Task.metadata", known, update)
            self._task_metadata = merge_metadata(self._task_metadata, changed)

    def _count_usage(self, usage: Usage) -> None:
        """Reports the usage of the upstream task since its last event."""
        tokens, cost = usage.tokens - self.state.tokens, usage.cost - self.state.cost
        if tokens <= 0 and cost <= 0:
            return
        # With the key, one for each total, the attempt after a crash does not count the same usage again.
        key = str(uuid5(_ID_NAMESPACE, f"usage\n{self.state.task}\n{usage.tokens}\n{usage.cost}"))
        self.turn_context.report_usage(UsageReport(max(tokens, 0), max(cost, 0), key))
        tokens, cost = max(usage.tokens, self.state.tokens), max(usage.cost, self.state.cost)
        self.state = replace(self.state, tokens=tokens, cost=cost)

    def _record_ids(self, task_id: str, context_id: str, last_message_id: str) -> None:
        """Records the upstream ids. Raises ProtocolError for missing ids, and for those of another task."""
        if not task_id or len(task_id) > MAX_UPSTREAM_ID_CHARS or len(context_id) > MAX_UPSTREAM_ID_CHARS:
            raise ProtocolError(f"{self.location}: an event has no task id, or a very long one")
        if self.state.task and task_id != self.state.task and not self.may_change_task:
            answered = f"it responded with task {task_id[:100]} when asked about {self.state.task}"
            raise ProtocolError(f"{self.location}: {answered}")
        self.may_change_task = False
        if task_id != self.state.task:
            self.state = replace(self.state, tokens=0, cost=0)
        location, context = self.location, context_id or self.state.context
        self.state = replace(
            self.state, location=location, task=task_id, context=context, last_message_id=last_message_id, unsent=False
        )
        self.task_known.set()


_ID_NAMESPACE = UUID("5c0d3a0e-6f0b-4b6e-9a52-8f6a7c1d2e41")  # of ids that we choose for upstream agents


@dataclass(frozen=True, slots=True)
class UpstreamTaskState:
    """The upstream side of one of our tasks, stored as its state."""

    location: str = ""  # the URL of the agent, without secrets
    task: str = ""  # the id of the upstream task; empty while unknown
    context: str = ""  # the id of the upstream context
    last_message_id: str = ""  # the id of the last message that the agent is known to have
    interrupted_digest: str = ""  # the `status_digest` of the last interrupted status
    unsent: bool = False  # the turn was returned to the queue before its message can have been delivered
    tokens: int = 0  # the usage of the upstream task that was reported already
    cost: int = 0  # in billionths

    def to_json(self) -> bytes:
        return state_document("upstream", {name: value for name, value in asdict(self).items() if value})


def read_task_state(data: bytes) -> UpstreamTaskState:
    """Parses a stored state. Returns an empty one for no data and for data in another form."""
    stored = stored_fields(data, "upstream")
    known: dict[str, Any] = {
        one.name: value for one in fields(UpstreamTaskState) if type(value := stored.get(one.name)) is type(one.default)
    }
    return UpstreamTaskState(**known)


def upstream_context_id(owner: Owner, context_id: str) -> str:
    """The upstream context of one of ours: the same for all of its tasks, and for no other context.

    Upstream all our callers are one caller. Clients may choose context ids, and two may choose the same one; so the id
    is not passed on unchanged.
    """
    return str(
        uuid5(_ID_NAMESPACE, f"{len(owner.scope)}:{owner.scope}{len(owner.principal)}:{owner.principal}{context_id}")
    )


def upstream_task_id(task_id: str, message_id: str) -> str:
    """The id of the upstream task that a message starts, where clients choose it (0.1); the same each time."""
    return str(uuid5(_ID_NAMESPACE, f"{task_id}\n{message_id}"))


def idempotency_key(task_id: str, message_id: str) -> str:
    return str(uuid5(_ID_NAMESPACE, f"key\n{task_id}\n{message_id}"))
