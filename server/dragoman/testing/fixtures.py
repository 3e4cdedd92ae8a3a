"""Changes and records for the contract suites, and deterministic clocks and ids."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from dragoman.core.names import Owner, make_task_key, task_id_of
from dragoman.core.task import frames, states
from dragoman.core.task.log import (
    Append,
    Appended,
    ArtifactChange,
    ClaimHeld,
    Exists,
    IncomingMessage,
    New,
    NewTask,
    StatusChange,
    TaskRef,
)
from dragoman.ports import Store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

OWNER: Final = Owner("default", "anonymous")
AGENT: Final = "echo"
SESSION: Final = 7

_count = itertools.count(1)


def message(text: str, role: int = pb.ROLE_USER) -> bytes:
    """Returns a serialized Message with one text part."""
    return pb.Message(message_id=f"m-{text}", role=pb.Role.Name(role), parts=[pb.Part(text=text)]).SerializeToString()


def new_ref(owner: Owner = OWNER) -> TaskRef:
    """Returns a new task reference; references sort in order of creation."""
    return TaskRef(owner, make_task_key(next(_count) * 1_000_000, bytes(8)))


def created(
    ref: TaskRef,
    *,
    text: str = "hello",
    agent: str = AGENT,
    context: str = "context",
    claim: int = 0,
    visible: bool = True,
) -> Append:
    """Returns a change that creates a task with one message."""
    new = NewTask(agent, task_id_of(ref.key), context, visible=visible, summary=text)
    return Append(task=ref, guard=New(), create=new, message=IncomingMessage(message(text)), claim_session=claim)


def status(state: int, text: str = "") -> StatusChange:
    """Returns a status, with an agent message if `text` is not empty."""
    return StatusChange(state, message(text, pb.ROLE_AGENT) if text else b"")


def artifact(name: str, *texts: str, append: bool = False) -> ArtifactChange:
    """Returns an artifact, or an addition to it, with one text part per text."""
    parts = b"".join(frames.frame(4, pb.Part(text=text).SerializeToString()) for text in texts)
    return ArtifactChange(name, frames.text(1, name), parts, append=append)


def chunk(name: str, text: str, *, append: bool = True) -> ArtifactChange:
    """Returns a text chunk in the form that the runtime writes."""
    return ArtifactChange(name, frames.text(1, name), text=text, append=append)


def file(name: str, content: bytes, *, append: bool = False) -> ArtifactChange:
    """Returns an artifact, or an addition to it, with a file."""
    part = pb.Part(raw=content, filename="f", media_type="text/x-test")
    return ArtifactChange(name, frames.text(1, name), frames.frame(4, part.SerializeToString()), append=append)


def file_message(name: str, content: bytes, role: int = pb.ROLE_USER) -> bytes:
    parts = [pb.Part(raw=content, filename="f", media_type="text/x-test")]
    return pb.Message(message_id=f"m-{name}", role=pb.Role.Name(role), parts=parts).SerializeToString()


def by_runner(
    claimed: Appended, *events: StatusChange | ArtifactChange, last_delivered: int = 1, end: bool = False
) -> Append:
    """Returns an append by the holder of the claim in `claimed`; `end` ends the turn."""
    guard = ClaimHeld(claimed.record.session, claimed.record.token)
    return Append(task=claimed.record.ref, guard=guard, events=events, last_delivered=last_delivered, release=end)


def follow_up(ref: TaskRef, text: str, *, claim: int = 0) -> Append:
    return Append(task=ref, guard=Exists(), message=IncomingMessage(message(text)), claim_session=claim)


def cancel(ref: TaskRef) -> Append:
    """Returns a change that cancels a task, and fences its runner if it has one."""
    return Append(task=ref, guard=Exists(), events=[StatusChange(states.CANCELED)], release=True)


async def running(store: Store, **details: str) -> Appended:
    """Creates a task that is claimed by SESSION."""
    return await store.append(created(new_ref(), claim=SESSION, **details))  # type: ignore[arg-type]  # only texts


async def finished(store: Store, *events: StatusChange | ArtifactChange, state: int = states.COMPLETED) -> Appended:
    """Creates a task that has these events and ended in `state`."""
    claimed = await running(store)
    return await store.append(by_runner(claimed, *events, StatusChange(state), end=True))


def texts(parts: Sequence[pb.Part]) -> list[str]:
    return [part.text for part in parts]


class Clock:
    """Clock in milliseconds since the epoch that only the test advances."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += round(seconds * 1000)


class Ids:
    """Deterministic ids: the first task is `00000000-0000-7000-8000-000000000001`, the first context `context-1`.

    Messages and artifacts of agents are `id-1` and so on, in order of creation.
    """

    def __init__(self) -> None:
        self._tasks = itertools.count(1)
        self._contexts = itertools.count(1)
        self._others = itertools.count(1)
        self._messages = itertools.count(1)

    def key(self) -> bytes:
        """Returns a task key: 16 bytes in the form of a UUID version 7 that sort in order of creation."""
        return bytes.fromhex("00000000000070008000") + next(self._tasks).to_bytes(6, "big")

    def context(self) -> str:
        return f"context-{next(self._contexts)}"

    def message(self) -> str:
        return f"message-{next(self._messages)}"

    def other(self) -> str:
        return f"id-{next(self._others)}"
