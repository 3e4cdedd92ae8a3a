"""What a run tells its caller: a handful of kinds of events, and the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragoman.calling.errors import ClientError
from dragoman.client import content as files
from dragoman.core.task import states
from dragoman.wire.dialects import json_proto
from dragoman.wire.json import protojson
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_PART_CODEC: protojson.Codec[Any] = protojson.compile(pb.Part, json_proto.PROTOJSON_V1)


@dataclass(slots=True, kw_only=True)
class _TaskEvent:
    """What every event has."""

    task_id: str = field(default="", compare=False)
    cursor: str = field(default="", repr=False, compare=False)
    """Where to take the task up again after this event (`follow(after=...)`); empty where the server has no cursors."""
    raw: pb.StreamResponse = field(default_factory=pb.StreamResponse, repr=False, compare=False)
    """The event of A2A 1.0 that this came from."""


@dataclass(slots=True)
class Status(_TaskEvent):
    """The task is in a state, and its agent may say something about it."""

    state: str
    """As 1.0 has it, without its prefix: `SUBMITTED`, `WORKING`, `COMPLETED`, ..."""
    text: str = ""


@dataclass(slots=True)
class Artifact(_TaskEvent):
    """An artifact begins; its content follows as Text, Data and File. With `replaces` it begins anew, and what came of
    it before counts no more."""

    id: str
    name: str = ""
    description: str = ""
    replaces: bool = False


@dataclass(slots=True)
class Text(_TaskEvent):
    """A piece of text: of the artifact with this id, or of a message when it is empty."""

    text: str
    artifact_id: str = ""


@dataclass(slots=True)
class Data(_TaskEvent):
    """A value: what JSON can hold."""

    value: Any
    artifact_id: str = ""


@dataclass(slots=True)
class File(_TaskEvent):
    """A file, with its content or the URL where it is."""

    name: str
    media_type: str
    content: bytes | None = field(default=None, repr=False)
    url: str = ""
    artifact_id: str = ""

    def save(self, folder: Path | str) -> Path:
        """Writes it into a folder, under a name that is safe there, and over nothing. Gives its path. Raises
        ValueError for a file that is only a URL, and OSError."""
        if self.content is None:
            raise ValueError(f"{self.name or 'the file'} is at {self.url}; fetch it from there")
        return files.write_file(folder, self.name, self.content)


@dataclass(slots=True)
class Question(_TaskEvent):
    """The agent asks, and waits. `answer` it, and the run goes on with the same task; else the run ends here."""

    text: str
    wants_credentials: bool = False
    """It asks for authentication (AUTH_REQUIRED) and not for words."""
    message: pb.Message = field(default_factory=pb.Message, repr=False)
    reply: tuple[str, tuple[files.FileInput, ...]] | None = field(default=None, repr=False)

    def answer(self, text: str = "", *, files: Iterable[files.FileInput] = ()) -> None:
        """What to tell the agent. It is sent when the next event is asked for."""
        self.reply = (text, tuple(files))


@dataclass(slots=True)
class Finished(_TaskEvent):
    """The task has ended, well or not; or it was answered with a message and never was a task."""

    result: Result

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.result.ok


Event = Status | Artifact | Text | Data | File | Question | Finished


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run: the task as it is now, or the message that answered."""

    task: pb.Task = field(default_factory=pb.Task)
    """The task, in the messages of A2A 1.0; empty when a message answered."""
    message: pb.Message | None = None
    cursor: str = field(default="", repr=False, compare=False)

    @property
    def task_id(self) -> str:
        """The task's id, to go on with it; empty when there is none."""
        return self.task.id

    @property
    def context_id(self) -> str:
        """The conversation, to begin another task in it."""
        return self.message.context_id if self.message is not None else self.task.context_id

    @property
    def state(self) -> str:
        """`COMPLETED`, `INPUT_REQUIRED`, `WORKING` and so on."""
        return state_name(states.COMPLETED if self.message is not None else self.task.status.state)

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.message is not None or self.task.status.state == states.COMPLETED

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.message is not None or self.task.status.state in states.TERMINAL

    @property
    def text(self) -> str:
        """What the agent wrote: the texts of its artifacts, one artifact after the other; without any, what it says."""
        wrote = "\n".join(filter(None, (text_of(artifact.parts) for artifact in self.task.artifacts)))
        return wrote or self.message_text

    @property
    def message_text(self) -> str:
        """What the agent says with its answer or its last status: the reason of a failure, the words of a question."""
        return text_of(self.message.parts if self.message is not None else self.task.status.message.parts)

    @property
    def question(self) -> str:
        """What the agent asks and waits to hear; empty when it asks nothing."""
        return self.message_text if self.task.status.state in states.INTERRUPTED else ""

    @property
    def files(self) -> list[File]:
        """The files that it gave."""
        return [one for one in self._contents() if isinstance(one, File)]

    @property
    def data(self) -> Any:
        """The value that it gave; a list where it gave several, None where it gave none."""
        found = [one.value for one in self._contents() if isinstance(one, Data)]
        return found[0] if len(found) == 1 else found or None

    def save(self, folder: Path | str) -> list[Path]:
        """Writes the files that came with their content into a folder; gives their paths. Raises OSError."""
        return [file.save(folder) for file in self.files if file.content is not None]

    def raise_for_state(self) -> Result:
        """This result, if the task goes on or ended well. Raises TaskFailed."""
        if self.is_over and not self.ok:
            raise TaskFailed(self)
        return self

    def _contents(self) -> Iterator[Text | Data | File]:
        for artifact in self.task.artifacts:
            yield from contents(artifact.parts, artifact.artifact_id)
        yield from contents(self.message.parts if self.message is not None else self.task.status.message.parts)


class TaskFailed(ClientError):
    """A task ended FAILED, REJECTED or CANCELED. `result` is all there is of it."""

    def __init__(self, result: Result) -> None:
        said = result.task.status.message
        reason = said.metadata.fields["reason"].string_value if "reason" in said.metadata.fields else ""
        told = result.message_text or "no reason given"
        super().__init__(result.state, f"task {result.task_id}: {told}", reason=reason)
        self.result = result


def contents(parts: Iterable[pb.Part], artifact: str = "") -> Iterator[Text | Data | File]:
    """Parts as what they hold."""
    for part in parts:
        match part.WhichOneof("content"):
            case "text" if part.text:
                yield Text(part.text, artifact)
            case "data":
                yield Data(_PART_CODEC.to_dict(part)["data"], artifact)
            case "raw":
                kind = part.media_type or "application/octet-stream"
                yield File(part.filename or "file", kind, part.raw, artifact_id=artifact)
            case "url":
                yield File(part.filename, part.media_type, url=part.url, artifact_id=artifact)


def text_of(parts: Iterable[pb.Part]) -> str:
    """The texts among parts, as one."""
    return "".join(part.text for part in parts if part.WhichOneof("content") == "text")


def state_name(state: int) -> str:
    """The state without its prefix: `COMPLETED`."""
    return states.name(state).removeprefix("TASK_STATE_")
