"""Events and result of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dragoman.calling.errors import ClientError
from dragoman.client import content as files
from dragoman.core.names import ContextId, TaskId
from dragoman.core.task import states
from dragoman.wire.dialects import json_proto
from dragoman.wire.json import protojson
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_PART_CODEC: protojson.Codec[Any] = protojson.compile(pb.Part, json_proto.PROTOJSON_V1)


@dataclass(slots=True, kw_only=True)
class _TaskEvent:
    """The fields that every event has."""

    task_id: str = field(default="", compare=False)
    cursor: str = field(default="", repr=False, compare=False)
    """Resumes the task after this event (`follow(after=...)`); empty where the server has no cursors."""
    raw: pb.StreamResponse = field(default_factory=pb.StreamResponse, repr=False, compare=False)
    """The A2A 1.0 event that contained this one."""


@dataclass(slots=True)
class Status(_TaskEvent):
    """The state of the task, with the agent's message if it sent one."""

    state: str
    """The name in 1.0 without its prefix: `SUBMITTED`, `WORKING`, `COMPLETED`, ..."""
    text: str = ""


@dataclass(slots=True)
class Artifact(_TaskEvent):
    """An artifact begins; its content follows as Text, Data and File. With `replaces`, discard its earlier content."""

    id: str
    name: str = ""
    description: str = ""
    replaces: bool = False


@dataclass(slots=True)
class Text(_TaskEvent):
    """A piece of text: of the artifact with this id, or of a message when the id is empty."""

    text: str
    artifact_id: str = ""


@dataclass(slots=True)
class Data(_TaskEvent):
    """A JSON value."""

    value: Any
    artifact_id: str = ""


@dataclass(slots=True)
class File(_TaskEvent):
    """A file: its content, or its URL."""

    name: str
    media_type: str
    content: bytes | None = field(default=None, repr=False)
    url: str = ""
    artifact_id: str = ""

    def save(self, folder: Path | str) -> Path:
        """Writes the file into a folder under a safe name, and returns its path. Overwrites nothing. Raises ValueError
        for a file that is only a URL, and OSError."""
        if self.content is None:
            raise ValueError(f"{self.name or 'the file'} has no content here; download it from {self.url}")
        return files.write_file(folder, self.name, self.content)


@dataclass(slots=True)
class Question(_TaskEvent):
    """The agent waits for the caller. `answer` continues the run with the same task; without an answer the run ends."""

    text: str  # the question, with its links, such as the URL of a sign-in page
    wants_credentials: bool = False  # the agent requires authentication (AUTH_REQUIRED), not text
    message: pb.Message = field(default_factory=pb.Message, repr=False)
    reply: tuple[str, tuple[files.FileInput, ...]] | None = field(default=None, repr=False)

    @property
    def links(self) -> list[str]:
        """The URLs that the agent sent as links with the question."""
        return [part.url for part in self.message.parts if part.WhichOneof("content") == "url"]

    def answer(self, text: str = "", *, files: Iterable[files.FileInput] = ()) -> None:
        """Sets the reply. It is sent when the next event is requested."""
        self.reply = (text, tuple(files))


@dataclass(slots=True)
class Finished(_TaskEvent):
    """The task has ended, in any terminal state; or the agent responded with a message and no task."""

    result: Result

    @property
    def ok(self) -> bool:
        """Whether the task is COMPLETED, or a message was returned."""
        return self.result.ok


Event = Status | Artifact | Text | Data | File | Question | Finished

MAX_REPR_TEXT: Final = 80  # characters of the text of a result


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """The result of a run: the task as last seen, or the message returned instead."""

    task: pb.Task = field(default_factory=pb.Task)
    """The task, as A2A 1.0 has it; empty when a message was returned."""
    message: pb.Message | None = None
    cursor: str = field(default="", repr=False, compare=False)

    def __repr__(self) -> str:
        """State, id and the beginning of the text: a task may have megabytes."""
        text = self.text if len(self.text) <= MAX_REPR_TEXT else f"{self.text[:MAX_REPR_TEXT]}…"
        return f"Result(state={self.state!r}, task_id={str(self.task_id)!r}, text={text!r})"

    @property
    def task_id(self) -> TaskId:
        """The task's id, to continue it; empty when there is no task."""
        return TaskId(self.task.id)

    @property
    def context_id(self) -> ContextId:
        """The context's id, to start another task in it."""
        return ContextId(self.message.context_id if self.message is not None else self.task.context_id)

    @property
    def state(self) -> str:
        """`COMPLETED`, `INPUT_REQUIRED`, `WORKING` and so on."""
        return states.short_name(states.COMPLETED if self.message is not None else self.task.status.state)

    @property
    def ok(self) -> bool:
        """Whether the task is COMPLETED, or a message was returned."""
        return self.message is not None or self.task.status.state == states.COMPLETED

    @property
    def is_over(self) -> bool:
        """Whether the task has ended, or a message was returned."""
        return self.message is not None or self.task.status.state in states.TERMINAL

    @property
    def text(self) -> str:
        """The texts of the artifacts, joined by line breaks; `message_text` if there are none."""
        text = "\n".join(filter(None, (text_of(artifact.parts) for artifact in self.task.artifacts)))
        return text or self.message_text

    @property
    def message_text(self) -> str:
        """The text of the returned message or of the last status, such as a question or the reason of a failure."""
        return text_of(self.message.parts if self.message is not None else self.task.status.message.parts)

    @property
    def question(self) -> str:
        """The agent's open question, with its links; empty if it asks nothing."""
        return question_text(self.task.status.message) if self.task.status.state in states.INTERRUPTED else ""

    @property
    def files(self) -> list[File]:
        """The files of the artifacts."""
        return [content for content in self._contents() if isinstance(content, File)]

    @property
    def data(self) -> Any:
        """The JSON value of the result; a list for several values, None for none."""
        values = [content.value for content in self._contents() if isinstance(content, Data)]
        return values[0] if len(values) == 1 else values or None

    def save(self, folder: Path | str) -> list[Path]:
        """Writes the files that have content into a folder, and returns their paths. Raises OSError."""
        return [file.save(folder) for file in self.files if file.content is not None]

    def raise_for_state(self) -> Result:
        """Returns this result unless the task ended FAILED, REJECTED or CANCELED. Raises TaskFailed."""
        if self.is_over and not self.ok:
            raise TaskFailed(self)
        return self

    def _contents(self) -> Iterator[Text | Data | File]:
        for artifact in self.task.artifacts:
            yield from contents(artifact.parts, artifact.artifact_id)
        yield from contents(self.message.parts if self.message is not None else self.task.status.message.parts)


class TaskFailed(ClientError):
    """A task ended FAILED, REJECTED or CANCELED. `result` holds the task."""

    def __init__(self, result: Result) -> None:
        fields = result.task.status.message.metadata.fields
        reason = fields["reason"].string_value if "reason" in fields else ""
        message = result.message_text or "no reason given"
        super().__init__(result.state, f"task {result.task_id}: {message}", reason=reason)
        self.result = result


def contents(parts: Iterable[pb.Part], artifact: str = "") -> Iterator[Text | Data | File]:
    """Yields the contents of parts as events."""
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
    return "".join(part.text for part in parts if part.WhichOneof("content") == "text")


def question_text(message: pb.Message) -> str:
    """The text of a question, and each of its links on a line."""
    links = [part.url for part in message.parts if part.WhichOneof("content") == "url"]
    return "\n".join(filter(None, (text_of(message.parts), *links)))
