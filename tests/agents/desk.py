"""A desk that remembers: everything an agent puts, as bytes, as events and as the task a client would see."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Generator, Sequence
from typing import Any

from dragoman.core import fold, states
from dragoman.core.log import Append, ArtifactChange, Inbound, New, NewTask, StatusChange, TaskRef
from dragoman.core.names import Owner
from dragoman.core.plan import plan
from dragoman.core.usage import Used
from dragoman.ports import NOTHING, Agent, Ending, Notes
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class Room:
    """Counts how often somebody waited for room."""

    def __init__(self) -> None:
        self.waits = 0

    def __await__(self) -> Generator[Any, None, None]:
        self.waits += 1
        yield from ()


class RecordingDesk:
    """Implements `dragoman.ports.Desk` in memory."""

    def __init__(
        self,
        *parts: pb.Part | str,
        history: Sequence[pb.Message] = (),
        asked: pb.Message | None = None,
        references: Sequence[pb.Task] = (),
        memory: bytes = b"",
        envelope: pb.SendMessageRequest | None = None,
    ) -> None:
        self.task_id = "task-1"
        self.context_id = "context-1"
        self.owner = Owner("default", "anonymous")
        self.principal = "anonymous"
        self.message = pb.Message(message_id="question-1", role=pb.ROLE_USER)
        self.message.parts.extend([pb.Part(text=part) if isinstance(part, str) else part for part in parts])
        self.envelope = envelope or pb.SendMessageRequest()
        self.history: Sequence[pb.Message] = history
        self.asked = asked
        self.references = references
        self.memory = memory
        self.context_memory = b""
        self.attempt = 1
        self.waiting = 0
        self.previous_artifacts: Sequence[pb.Artifact] = ()
        self.stopping = False
        self.cancel_reason = ""
        self.refusal = ""
        self.cancelled = False
        self.changes: list[StatusChange | ArtifactChange] = []
        self.memories: list[bytes] = [memory]
        self.room = Room()
        self.put_something = asyncio.Event()
        self.flushes = 0
        self.used: list[Used] = []
        self.refuses: Exception | None = None
        self.mail: asyncio.Queue[pb.Message] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()

    def refuse_cancel(self, why: str) -> None:
        self.refusal = why

    def put(self, change: StatusChange | ArtifactChange, *, notes: Notes = NOTHING) -> Awaitable[None]:
        with self._lock:
            if self.refuses is not None:
                raise self.refuses
            self.changes.append(change)
            if notes.task is not None:
                self.memories.append(notes.task)
        self._loop.call_soon_threadsafe(self.put_something.set)
        return self.room

    async def flush(self) -> None:
        self.flushes += 1

    def spend(self, used: Used) -> None:
        self.used.append(used)

    async def incoming(self) -> AsyncIterator[tuple[pb.Message, pb.SendMessageRequest]]:
        while True:
            yield await self.mail.get(), pb.SendMessageRequest()

    # What a client would see ------------------------------------------------------------------------------------

    def events(self, ending: Ending | None = None) -> list[pb.StreamResponse]:
        """Every event as the store would write it, after the task itself."""
        ref = TaskRef(Owner("default", "anonymous"), bytes(16))
        inbound = Inbound(self.message.SerializeToString())
        created = plan(
            None, Append(task=ref, guard=New(), create=NewTask("a", "task-1", "context-1"), message=inbound), 0
        )
        changes = list(self.changes)
        if ending is not None:
            changes += [*ending.artifacts, ending.status]
        written = plan(created.head, Append(task=ref, guard=Anybody(), events=changes), 0)
        return [pb.StreamResponse.FromString(event.data) for event in (*created.events, *written.events)]

    def task(self, ending: Ending | None = None) -> pb.Task:
        """The fold of them."""
        task = pb.Task()
        for event in self.events(ending):
            fold.fold(task, event)
        return task


class Anybody:
    def refusal(self, head: object) -> None:
        return None


async def take(agent: Agent, *parts: pb.Part | str) -> tuple[pb.Task, Ending]:
    """One turn of `agent` on a message of these parts: the task as its caller sees it, and the ending."""
    desk = RecordingDesk(*parts)
    ending = await agent.take_turn(desk)
    return desk.task(ending), ending


def state_of(task: pb.Task) -> str:
    return states.name(task.status.state).removeprefix("TASK_STATE_")


def said(task: pb.Task) -> str:
    """The text of the task's status message."""
    return "".join(part.text for part in task.status.message.parts)
