"""History of a chaos run: observations of clients in order, one JSON object per line, for the checkers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final

from tests.load.requests import RESUME

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One observation; `at` is in seconds since the run began."""

    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent(Entry):
    """A message is sent. `how`: at once, blocking, stream. `task`: set for a follow-up. `hook`: the number of the
    webhook of the new task, 0 for none. `message`: empty for MCP, where the server makes the id."""

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
    """A webhook request arrived. `done`: the time of the response with `status`; 0 for no response.

    `digest`: of its event. `body`: of its bytes.
    """

    done: float
    hook: int
    task: str
    sequence: int
    digest: str
    status: int
    body: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged(Entry):
    """The response to a send named this task."""

    op: int
    task: str
    state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied(Entry):
    """The response to a send was a Message; `digest` of its bytes."""

    op: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Entry):
    """The server rejected a send."""

    op: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(Entry):
    """A follower connects; `after` is the sequence from which it resumes."""

    follower: int
    task: str
    binding: str
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen(Entry):
    """A follower received an event. `sequence` is None on servers without cursors; `shape` is set for a Task."""

    follower: int
    sequence: int | None
    digest: str
    state: int = 0
    shape: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed(Entry):
    """A follower has finished: `end` if the server ended its stream, otherwise the reason."""

    follower: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Entry):
    """The server ended a follower's stream without an error before the task had ended, as during a shutdown."""

    follower: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelSent(Entry):
    """A cancel is sent, in a run whose checker needs to know when."""

    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Canceled(Entry):
    """The response to a cancel: a state, or the reason of a rejection."""

    task: str
    state: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Got(Entry):
    """The response to GetTask: a state, or the reason of an error."""

    task: str
    state: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Entry):
    """The server was killed, paused, or drained; `seconds` later it worked again.

    `part`: the affected part of a cluster.
    """

    how: str
    seconds: float = 0.0
    part: str = "server"
    task: str = ""
    """Set where it struck a write of one task only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled(Entry):
    """A sample of the store, `up` seconds after the server last recovered.

    orphans: tasks claimed by an expired session. stuck: active tasks that are neither claimed nor ready.
    """

    up: float
    orphans: list[str]
    stuck: list[str]
    waiting: int
    running: int
    slots: int
    elsewhere: int = 0
    """Number of tasks that wait for workers."""
    such: list[str] = field(default_factory=list)
    """Some tasks that run or wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(Entry):
    """A task asked, and is left unanswered until the end of the run."""

    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign(Entry):
    """Another principal named this task in an operation; `reason` of its rejection, empty if it was served."""

    task: str
    operation: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reused(Entry):
    """A key was sent with another message; `reason` of its rejection, empty if it was served."""

    key: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOpened(Entry):
    """A call of MCP connects. `how`: call, repeat, retry with answers, resume, poll, listen.

    `task`: that of its tool, empty until it is known.
    """

    call: int
    task: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed(Entry):
    """A call received a progress notification. `cursor`: the sequence in its `dragoman/cursor`."""

    call: int
    task: str
    sequence: int
    cursor: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult(Entry):
    """A call received its result (`final`), `unfinished`, a `question`, or an `error`."""

    call: int
    task: str
    kind: str
    state: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLeft(Entry):
    """A client gave up a call. `cancels`: by closing the stream of a call without a key, which cancels its task."""

    call: int
    task: str
    cancels: bool = False


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
        CancelSent,
        Canceled,
        Got,
        Fault,
        Sampled,
        Left,
        Delivered,
        Foreign,
        Replied,
        Reused,
        CallOpened,
        Progressed,
        CallResult,
        CallLeft,
    )
}


EventKeys = Set[tuple[str, int]]
"""Events, by task and sequence."""


def shown_tasks(entries: Iterable[Entry]) -> EventKeys:
    """Returns the events at which followers have received a Task."""
    tasks: dict[int, str] = {}
    found = set()
    for entry in entries:
        if isinstance(entry, Opened):
            tasks[entry.follower] = entry.task
        elif isinstance(entry, Seen) and entry.shape and entry.sequence is not None:
            found.add((tasks[entry.follower], entry.sequence))
    return found


class Recorder:
    """Appends entries in memory and on disk."""

    def __init__(self, file: IO[str]) -> None:
        self.entries: list[Entry] = []
        self._file = file

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._file.write(line_of(entry))


class LateRecorder(Recorder):
    """Appends entries in memory, and writes them on request: a line takes longer than the event that it records."""

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)

    def write(self) -> None:
        """Writes all entries. Called once."""
        self._file.writelines(map(line_of, self.entries))


def line_of(entry: Entry) -> str:
    """Returns an entry as a line."""
    return json.dumps({"what": type(entry).__name__, **asdict(entry)}) + "\n"


def load(path: Path) -> list[Entry]:
    """Reads the entries of a file."""
    with path.open(encoding="utf-8") as lines:
        return [_entry(json.loads(line)) for line in lines]


def _entry(values: dict[str, Any]) -> Entry:
    return KINDS[values.pop("what")](**values)


# Comparing events ----------------------------------------------------------------------------------------------


def digest(event: pb.StreamResponse) -> str:
    """Returns a digest of an event that ignores its encoding and cursor."""
    bare = pb.StreamResponse()
    bare.CopyFrom(event)
    payload = getattr(bare, bare.WhichOneof("payload") or "task")
    if RESUME in payload.metadata:
        del payload.metadata[RESUME]
    if not payload.metadata:
        payload.ClearField("metadata")
    return body_digest(bare.SerializeToString(deterministic=True))


def shape(task: pb.Task) -> str:
    """Returns a digest of a task's state and artifact texts that ignores chunk boundaries."""
    texts = [f"{artifact.artifact_id}={''.join(part.text for part in artifact.parts)}" for artifact in task.artifacts]
    return body_digest("\n".join((str(task.status.state), *texts)).encode())


def body_digest(data: bytes) -> str:
    """Returns a digest of bytes."""
    return sha256(data).hexdigest()[:16]


def of_kind(entries: Iterable[Entry], kind: type[Entry]) -> int:
    """Counts the entries of a kind."""
    return sum(isinstance(entry, kind) for entry in entries)
