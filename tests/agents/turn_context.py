"""A recording turn context: an agent's output as bytes, as events, and as the task that a client sees."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from typing import Any

from dragoman.agents.values import struct_of, struct_to_json
from dragoman.core.limits.quotas import UsageReport
from dragoman.core.names import Owner
from dragoman.core.task import projection, states
from dragoman.core.task.log import Append, ArtifactChange, IncomingMessage, New, NewTask, StatusChange, TaskRef
from dragoman.core.task.plan import plan
from dragoman.core.task.projection import merge_metadata
from dragoman.core.task.steps import StepJournal, StepRecord
from dragoman.ids import now_ms
from dragoman.ports import NO_CHANGE, Agent, StateUpdate, TurnResult
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class CountingAwaitable:
    """An awaitable that counts how often it is awaited."""

    def __init__(self) -> None:
        self.waits = 0

    def __await__(self) -> Generator[Any, None, None]:
        self.waits += 1
        yield from ()


class RecordingTurnContext:
    """Implements `dragoman.ports.TurnContext` in memory."""

    def __init__(
        self,
        *parts: pb.Part | str,
        history: Sequence[pb.Message] = (),
        question: pb.Message | None = None,
        references: Sequence[pb.Task] = (),
        task_state: bytes = b"",
        envelope: pb.SendMessageRequest | None = None,
    ) -> None:
        self.task_id = "task-1"
        self.context_id = "context-1"
        self.owner = Owner("default", "anonymous")
        self.principal = "anonymous"
        self.now: Callable[[], int] = now_ms
        self.shows_error_texts = True
        self.message = pb.Message(message_id="question-1", role=pb.ROLE_USER)
        self.message.parts.extend([pb.Part(text=part) if isinstance(part, str) else part for part in parts])
        self.envelope = envelope or pb.SendMessageRequest()
        self.history: Sequence[pb.Message] = history
        self.question = question
        self.references = references
        self.task_state = task_state
        self.context_state = b""
        self.task_metadata = b""
        self.metadata_updates: list[dict[str, Any]] = []
        self.attempt = 1
        self.waiting_messages = 0
        self.previous_artifacts: Sequence[pb.Artifact] = ()
        self.stopping = False
        self.cancel_reason = ""
        self.cancel_metadata = b""
        self.refusal = ""
        self.canceled = False
        self.changes: list[StatusChange | ArtifactChange] = []
        self.task_states: list[bytes] = [task_state]
        self.room = CountingAwaitable()
        self.event_put = asyncio.Event()
        self.flushes = 0
        self.steps: list[StepRecord] = []
        self.journal = StepJournal((), "task-1")
        self.used: list[UsageReport] = []
        self.put_error: Exception | None = None
        self.queued_messages: asyncio.Queue[pb.Message] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()

    def refuse_cancel(self, reason: str) -> None:
        self.refusal = reason

    def put(self, change: StatusChange | ArtifactChange, *, state_update: StateUpdate = NO_CHANGE) -> Awaitable[None]:
        with self._lock:
            if self.put_error is not None:
                raise self.put_error
            self.changes.append(change)
            if state_update.task_state is not None:
                self.task_states.append(state_update.task_state)
            if state_update.task_metadata:
                self.metadata_updates.append(struct_to_json(struct_of(state_update.task_metadata)))
            self.task_metadata = merge_metadata(self.task_metadata, state_update.task_metadata)
        self._loop.call_soon_threadsafe(self.event_put.set)
        return self.room

    def store(self, state_update: StateUpdate) -> Awaitable[None]:
        if state_update.task_state is not None:
            self.task_states.append(state_update.task_state)
        self.steps += state_update.steps
        return self.room

    async def flush(self) -> None:
        self.flushes += 1

    async def call(self, call: wk.TaskCall) -> wk.TaskCallResult:
        raise NotImplementedError

    def report_usage(self, used: UsageReport) -> None:
        self.used.append(used)

    async def incoming(self) -> AsyncIterator[tuple[pb.Message, pb.SendMessageRequest]]:
        while True:
            yield await self.queued_messages.get(), pb.SendMessageRequest()

    # What a client would see ------------------------------------------------------------------------------------

    def events(self, result: TurnResult | None = None) -> list[pb.StreamResponse]:
        """The task and all events, in the form of the store."""
        ref = TaskRef(Owner("default", "anonymous"), bytes(16))
        inbound = IncomingMessage(self.message.SerializeToString())
        created = plan(
            None, Append(task=ref, guard=New(), create=NewTask("a", "task-1", "context-1"), message=inbound), 0
        )
        changes = list(self.changes)
        if result is not None:
            changes += [*result.artifacts, result.status]
        written = plan(created.record, Append(task=ref, guard=NoGuard(), events=changes), 0)
        return [pb.StreamResponse.FromString(event.data) for event in (*created.events, *written.events)]

    def task(self, result: TurnResult | None = None) -> pb.Task:
        """The task after all events."""
        task = pb.Task()
        for event in self.events(result):
            projection.fold(task, event)
        return task


class NoGuard:
    def rejection(self, record: object) -> None:
        return None


async def run_turn(agent: Agent, *parts: pb.Part | str) -> tuple[pb.Task, TurnResult]:
    """Runs one turn of `agent` on these parts. Returns the task that its caller sees, and the result."""
    turn_context = RecordingTurnContext(*parts)
    result = await agent.take_turn(turn_context)
    return turn_context.task(result), result


def state_of(task: pb.Task) -> str:
    return states.name(task.status.state).removeprefix("TASK_STATE_")


def status_text(task: pb.Task) -> str:
    """The text of the task's status message."""
    return "".join(part.text for part in task.status.message.parts)
