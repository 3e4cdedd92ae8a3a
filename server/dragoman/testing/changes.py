"""Short spellings of the changes that contract suites make."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from dragoman.core import frames, states
from dragoman.core.log import (
    Append,
    Appended,
    ArtifactChange,
    Inbound,
    New,
    NewTask,
    NotTerminal,
    Runner,
    StatusChange,
    TaskRef,
)
from dragoman.core.names import Owner, id_of, new_key
from dragoman.ports import Store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

OWNER: Final = Owner("default", "anonymous")
AGENT: Final = "echo"
SESSION: Final = 7

_count = itertools.count(1)


def message(text: str, role: int = pb.ROLE_USER) -> bytes:
    """A serialized Message of one text part."""
    return pb.Message(message_id=f"m-{text}", role=pb.Role.Name(role), parts=[pb.Part(text=text)]).SerializeToString()


def new_ref(owner: Owner = OWNER) -> TaskRef:
    """A task that no store has yet; later ones sort after earlier ones."""
    return TaskRef(owner, new_key(next(_count) * 1_000_000, bytes(8)))


def created(
    ref: TaskRef,
    *,
    text: str = "hello",
    agent: str = AGENT,
    context: str = "context",
    claim: int = 0,
    visible: bool = True,
) -> Append:
    """A new task with one message."""
    new = NewTask(agent, id_of(ref.key), context, visible=visible)
    return Append(task=ref, guard=New(), create=new, message=Inbound(message(text)), claim=claim)


def status(state: int, text: str = "") -> StatusChange:
    """A status, with a message of the agent if there is a text."""
    return StatusChange(state, message(text, pb.ROLE_AGENT) if text else b"")


def artifact(name: str, *texts: str, append: bool = False) -> ArtifactChange:
    """An artifact, or an addition to it, with a text part for each text."""
    parts = b"".join(frames.frame(4, pb.Part(text=text).SerializeToString()) for text in texts)
    return ArtifactChange(name, frames.text(1, name), parts, append=append)


def chunk(name: str, text: str, *, append: bool = True) -> ArtifactChange:
    """A text chunk of the kind that Dragoman makes itself."""
    return ArtifactChange(name, frames.text(1, name), text=text, append=append)


def file(name: str, content: bytes, *, append: bool = False) -> ArtifactChange:
    """An artifact, or an addition to it, with a file of these bytes."""
    part = pb.Part(raw=content, filename="f", media_type="text/x-test")
    return ArtifactChange(name, frames.text(1, name), frames.frame(4, part.SerializeToString()), append=append)


def file_message(name: str, content: bytes, role: int = pb.ROLE_USER) -> bytes:
    """A serialized Message with a file of these bytes."""
    parts = [pb.Part(raw=content, filename="f", media_type="text/x-test")]
    return pb.Message(message_id=f"m-{name}", role=pb.Role.Name(role), parts=parts).SerializeToString()


def by_runner(claimed: Appended, *events: StatusChange | ArtifactChange, taken: int = 1, end: bool = False) -> Append:
    """What whoever holds the claim of `claimed` appends; `end` ends the turn."""
    guard = Runner(claimed.head.session, claimed.head.token)
    return Append(task=claimed.head.ref, guard=guard, events=events, taken=taken, release=end)


def follow_up(ref: TaskRef, text: str, *, claim: int = 0) -> Append:
    """Another message of the user."""
    return Append(task=ref, guard=NotTerminal(), message=Inbound(message(text)), claim=claim)


def cancel(ref: TaskRef) -> Append:
    """A cancel of a task that nobody runs, or a fence around one that somebody does."""
    return Append(task=ref, guard=NotTerminal(), events=[StatusChange(states.CANCELED)], release=True)


async def running(store: Store, **details: str) -> Appended:
    """A new task, claimed by SESSION."""
    return await store.append(created(new_ref(), claim=SESSION, **details))  # type: ignore[arg-type]  # only texts


async def finished(store: Store, *events: StatusChange | ArtifactChange, state: int = states.COMPLETED) -> Appended:
    """A task that has ended in `state`, after these events."""
    claimed = await running(store)
    return await store.append(by_runner(claimed, *events, StatusChange(state), end=True))


def texts(parts: Sequence[pb.Part]) -> list[str]:
    """The text of each part."""
    return [part.text for part in parts]
