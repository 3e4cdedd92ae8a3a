"""What clients saw, written down as it happened: one JSON object a line, so that a run can be judged afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

RESUME: Final = "urn:dragoman:resume:v1"
"""The extension that puts `cursor` and `sequence` into the metadata of events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something that happened; `at` is in seconds since the run began."""

    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent(Entry):
    """A message is on its way. `how`: at once, blocking, stream. `task` is set in a follow-up; `hook` is the webhook to
    which the task that it makes is to be pushed, 0 for none."""

    op: int
    message: str
    binding: str
    how: str
    text: str
    key: str = ""
    task: str = ""
    hook: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(Entry):
    """A letter came to a webhook. `done` is when it was answered, with `status`; 0 is no answer."""

    done: float
    hook: int
    task: str
    sequence: int
    digest: str
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged(Entry):
    """The answer to a send named this task."""

    op: int
    task: str
    state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Entry):
    """The server said no to a send."""

    op: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(Entry):
    """A follower connects; `after` is the sequence it asks to go on from."""

    follower: int
    task: str
    binding: str
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen(Entry):
    """An event reached a follower. `sequence` is None on servers without cursors; `shape` is set for a Task."""

    follower: int
    sequence: int | None
    digest: str
    state: int = 0
    shape: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed(Entry):
    """A follower is done: `end` when the server ended its stream, otherwise why there was no more to follow."""

    follower: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Entry):
    """The server ended a follower's stream without a word before the task had ended, as one does that stops."""

    follower: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Canceled(Entry):
    """The answer to a cancel: a state, or a reason why not."""

    task: str
    state: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Got(Entry):
    """The answer to GetTask: a state, or the reason why there is none."""

    task: str
    state: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Entry):
    """The server was killed, held still, or asked to end (`drain`); so many seconds later it was well again.

    `part`: of several, what was struck.
    """

    how: str
    seconds: float = 0.0
    part: str = "server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled(Entry):
    """A look into the store while the server had been up and moving for `up` seconds.

    orphans: claimed by a session that is over. stuck: SUBMITTED, claimed by nobody, and not to be claimed.
    """

    up: float
    orphans: list[str]
    stuck: list[str]
    waiting: int
    running: int
    slots: int
    elsewhere: int = 0
    """Tasks that wait for workers."""
    such: list[str] = field(default_factory=list)
    """Some of those that run or wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(Entry):
    """A task asked, and is left alone from here until the end; then it is answered."""

    task: str


KINDS: Final = {
    kind.__name__: kind
    for kind in (
        Sent,
        Acknowledged,
        Rejected,
        Opened,
        Seen,
        Closed,
        Cut,
        Canceled,
        Got,
        Fault,
        Sampled,
        Left,
        Delivered,
    )
}


class Recorder:
    """Takes entries in order, in memory and on disk."""

    def __init__(self, file: IO[str]) -> None:
        self.entries: list[Entry] = []
        self._file = file

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._file.write(line_of(entry))


def line_of(entry: Entry) -> str:
    """One entry as a line."""
    return json.dumps({"what": type(entry).__name__, **asdict(entry)}) + "\n"


def load(path: Path) -> list[Entry]:
    """The entries of a file."""
    with path.open(encoding="utf-8") as lines:
        return [_entry(json.loads(line)) for line in lines]


def _entry(values: dict[str, Any]) -> Entry:
    return KINDS[values.pop("what")](**values)


# Comparing events ----------------------------------------------------------------------------------------------


def digest(event: pb.StreamResponse) -> str:
    """The same for the same event, however it came, and whether or not it carries its cursor."""
    bare = pb.StreamResponse()
    bare.CopyFrom(event)
    payload = getattr(bare, bare.WhichOneof("payload") or "task")
    if RESUME in payload.metadata:
        del payload.metadata[RESUME]
    if not payload.metadata:
        payload.ClearField("metadata")
    return _hash(bare.SerializeToString(deterministic=True))


def shape(task: pb.Task) -> str:
    """The same for the same task: its state and what its artifacts say, however that is cut into parts."""
    texts = [f"{one.artifact_id}={''.join(part.text for part in one.parts)}" for one in task.artifacts]
    return _hash("\n".join((str(task.status.state), *texts)).encode())


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]


def of_kind(entries: Iterable[Entry], kind: type[Entry]) -> int:
    """How many entries are of a kind."""
    return sum(isinstance(entry, kind) for entry in entries)
