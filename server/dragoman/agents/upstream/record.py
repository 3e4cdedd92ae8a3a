"""What a turn upstream writes into our log, and what it knows of the task there."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from google.protobuf import struct_pb2

from dragoman.agents.upstream import memory
from dragoman.agents.upstream.mirror import Mirror
from dragoman.agents.upstream.road import Nonsense
from dragoman.agents.upstream.saying import Sayings, mark
from dragoman.agents.values import NewId
from dragoman.core import states
from dragoman.core.log import ArtifactChange, StatusChange
from dragoman.core.usage import Used, said
from dragoman.ports import NOTHING, Desk, Ending, Notes
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

LONGEST_ID = 1000
"""Characters of an id that upstream may give."""


class Record:
    """One turn at a desk, as far as it is written. What is learnt of the task upstream goes with the next event."""

    def __init__(self, desk: Desk, at: str, new_id: NewId) -> None:
        self.desk = desk
        self.at = at
        self.memory = memory.read(desk.memory)
        self.known = asyncio.Event()
        """Set once it is known which task upstream this is."""
        if self.memory.task:
            self.known.set()
        self.says = Sayings(desk, new_id)
        self.is_new = False
        """A message was just sent: some servers begin another task for each, whichever it names."""
        self.puts = 0
        """Events written."""
        self._kept = self.memory
        self._mirror = Mirror(new_id)
        self._held: StatusChange | None = None
        self._waited = self.memory.waited

    @property
    def holds(self) -> bool:
        """Whether AUTH_REQUIRED was said and is not written yet: a stream that ends with it ends the turn."""
        return self._held is not None

    @property
    def has_artifacts(self) -> bool:
        """Whether an artifact was seen in this turn."""
        return self._mirror.has_any

    async def take(self, event: pb.StreamResponse, heard: str, *, by_call: bool = False) -> Ending | None:
        """Writes one event; `heard` is the id of the message that upstream has then. The end of the turn, if it is
        that. `by_call`: nothing more comes by itself. Raises Nonsense, InvalidAgentResponse."""
        match event.WhichOneof("payload"):
            case "message":
                await self.put_held()
                return self.says.reply(event.message, NOTHING)
            case "task":
                task = event.task
                self._note(task.id, task.context_id, heard)
                self._count(task.metadata)
                for change in self._mirror.snapshot(task):
                    await self._put(change)
                return await self._status(task.status, by_call=by_call)
            case "status_update":
                update = event.status_update
                self._note(update.task_id, update.context_id, heard)
                self._count(update.metadata)
                metadata = update.metadata.SerializeToString() if update.HasField("metadata") else b""
                return await self._status(update.status, metadata)
            case "artifact_update":
                self._note(event.artifact_update.task_id, event.artifact_update.context_id, heard)
                added = self._mirror.update(event.artifact_update)
                if added is not None:
                    await self._put(added)
                return None
        raise Nonsense(f"{self.at}: an event says nothing")

    async def put_held(self) -> None:
        """Writes what was held back."""
        held, self._held = self._held, None
        if held is not None:
            await self._put(held)

    def end_held(self) -> Ending | None:
        """The end of the turn with what was held back; None when nothing was."""
        held, self._held = self._held, None
        return Ending(held) if held is not None else None

    async def go_on(self, ending: Ending) -> None:
        """Writes what would have ended the turn, which goes on with another message."""
        await self._put(StatusChange(states.WORKING, ending.status.message, ending.status.metadata))
        if states.is_terminal(ending.status.state):
            self.forget_task()
        self._waited = self.memory.waited

    def forget_task(self) -> None:
        """The next message begins another task there, in the same conversation."""
        self.memory = replace(self.memory, task="")

    def keep_unsent(self) -> None:
        """Writes that the message of this turn has not been sent."""
        self.memory = replace(self.memory, unsent=True)
        self.desk.put(StatusChange(states.WORKING), notes=self.notes())

    def notes(self) -> Notes:
        """What is to be kept and is not yet."""
        return NOTHING if self.memory == self._kept else Notes(task=self.memory.written())

    async def _status(self, status: pb.TaskStatus, metadata: bytes = b"", *, by_call: bool = False) -> Ending | None:
        change, waits = self.says.change(status, metadata), status.state in states.INTERRUPTED
        if waits and mark(status) == self._waited:
            return None  # as it was before the message came
        if waits:
            self.memory = replace(self.memory, waited=mark(status))
        if states.is_terminal(status.state) or (waits and (by_call or status.state == states.INPUT_REQUIRED)):
            await self.put_held()
            return Ending(change)
        if waits:
            if self.says.is_news(status):
                self._held = change
                self.says.noted(status)
            return None
        if self.says.is_news(status) or metadata or self._kept != self.memory:
            self.says.noted(status)
            await self._put(change)
        return None

    async def _put(self, change: StatusChange | ArtifactChange) -> None:
        await self.put_held()
        self.puts += 1
        notes = self.notes()
        self._kept = self.memory
        await self.desk.put(change, notes=notes)

    def _count(self, metadata: struct_pb2.Struct) -> None:
        """Counts here what the task there has used since it was heard of last, where upstream says it as we do."""
        told = said(metadata)
        tokens, cost = told.tokens - self.memory.tokens, told.cost - self.memory.cost
        if tokens <= 0 and cost <= 0:
            return
        # The key, so that an attempt that follows one which died, and hears the same, does not count it again.
        key = memory.usage_key_of(self.memory.task, told)
        self.desk.spend(Used(max(tokens, 0), max(cost, 0), key))
        self.memory = replace(
            self.memory, tokens=max(told.tokens, self.memory.tokens), cost=max(told.cost, self.memory.cost)
        )

    def _note(self, task: str, context: str, heard: str) -> None:
        """Which task and conversation it is there. Raises Nonsense for another one than it was."""
        if not task or len(task) > LONGEST_ID or len(context) > LONGEST_ID:
            raise Nonsense(f"{self.at}: what it says of a task has no id of that task, or a very long one")
        if self.memory.task and task != self.memory.task and not self.is_new:
            raise Nonsense(f"{self.at}: it speaks of task {task[:100]} when asked about {self.memory.task}")
        self.is_new = False
        if task != self.memory.task:
            self.memory = replace(self.memory, tokens=0, cost=0)
        self.memory = replace(
            self.memory, at=self.at, task=task, context=context or self.memory.context, heard=heard, unsent=False
        )
        self.known.set()
