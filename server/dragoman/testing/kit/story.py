"""Observed state of one task, for assertions in tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dragoman.agents.functions.turn import ReceivedFile
from dragoman.agents.values import struct_to_json, value_to_json
from dragoman.client.events import question_text
from dragoman.core.limits.message_checks import media_type_of
from dragoman.core.limits.quotas import NO_USAGE, Usage
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_REPR_CHARS: Final = 60  # of a text in a repr


def state_name(state: int) -> str:
    """Returns the name of a state without its prefix (`WORKING`); empty for none."""
    return states.short_name(state) if state else ""


class PartsView:
    """Read access to the parts of a message or an artifact."""

    def __init__(self, parts: Sequence[pb.Part]) -> None:
        self.parts = list(parts)

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.parts if part.WhichOneof("content") == "text")

    @property
    def data(self) -> list[Any]:
        """The JSON values of the data parts."""
        return [value_to_json(part.data) for part in self.parts if part.WhichOneof("content") == "data"]

    @property
    def files(self) -> list[ReceivedFile]:
        """The parts with bytes or a URL."""
        return [
            ReceivedFile(part.filename, media_type_of(part), part.raw, part.url)
            for part in self.parts
            if part.WhichOneof("content") in ("raw", "url")
        ]


class GivenArtifact(PartsView):
    """Current state of one artifact of a task."""

    def __init__(self, artifact: pb.Artifact) -> None:
        super().__init__(artifact.parts)
        self.proto = artifact
        self.id = artifact.artifact_id
        self.name = artifact.name
        self.description = artifact.description
        self.metadata = struct_to_json(artifact.metadata)

    def __repr__(self) -> str:
        return f"<artifact {self.name or self.id}: {_short(_summary(self))}>"


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a task."""

    sequence: int
    proto: pb.StreamResponse = field(repr=False)

    @property
    def state(self) -> str:
        """The state in the event, such as `WORKING`; empty for an artifact event."""
        holder = self.proto.task if self.proto.HasField("task") else self.proto.status_update
        return state_name(holder.status.state)

    @property
    def artifact(self) -> str:
        """The id of the artifact in the event; empty for a status."""
        return self.proto.artifact_update.artifact.artifact_id

    @property
    def appends(self) -> bool:
        """Whether the event appends to an existing artifact."""
        return self.proto.artifact_update.append

    @property
    def content(self) -> PartsView:
        """The message of the status, or the new parts of the artifact."""
        if self.artifact:
            return PartsView(self.proto.artifact_update.artifact.parts)
        return PartsView(self.proto.status_update.status.message.parts)

    @property
    def text(self) -> str:
        """The text of `content`."""
        return self.content.text

    @property
    def metadata(self) -> dict[str, Any]:
        update = self.proto.artifact_update if self.artifact else self.proto.status_update
        return struct_to_json(update.metadata)

    def __str__(self) -> str:
        text = _summary(self.content)
        if self.artifact:
            return f"{self.artifact}{'+' if self.appends else ':'} {text}"
        if "attempt" in self.metadata:
            return f"{self.state} (attempt {self.metadata['attempt']})"
        return f"{self.state}: {text}" if text else self.state


@dataclass(frozen=True, slots=True)
class Exchange:
    """One message of a task. For messages of the caller, `request` is the request without the message."""

    number: int
    message: pb.Message
    request: pb.SendMessageRequest = field(default_factory=pb.SendMessageRequest)


class Story:
    """Everything known of one task, or the Message returned instead of a task (`reply`)."""

    def __init__(self, agent: str) -> None:
        RECENT.append(self)
        self.agent = agent
        """The id of the agent."""
        self.task = pb.Task()
        """The task as GetTask returns it, with its complete history."""
        self.events: list[Step] = []
        """All events of the task."""
        self.exchange: list[Exchange] = []
        """All messages in order, including the message of the current status."""
        self.reply: pb.Message | None = None
        """The Message of a `direct` agent that created no task."""
        self.error: BaseException | None = None
        """The exception of the agent's function that made the task fail."""
        self.failure = ""
        """Description of `error`, with file and line."""
        self.attempt = 1
        """Attempt number of the current turn: 2 after a crash."""
        self.usage: Usage = NO_USAGE
        """Sum of the reports by `turn.usage`."""

    @property
    def id(self) -> str:
        """The task's id; empty for a reply."""
        return self.task.id

    @property
    def context_id(self) -> str:
        return self.task.context_id or (self.reply.context_id if self.reply else "")

    @property
    def state(self) -> str:
        """The task's state, such as `COMPLETED`; empty for a reply."""
        return state_name(self.task.status.state)

    @property
    def states(self) -> list[str]:
        """The states in order, without repeats: `["SUBMITTED", "WORKING", "COMPLETED"]`."""
        found: list[str] = []
        for step in self.events:
            if step.state and step.state not in found[-1:]:
                found.append(step.state)
        return found

    @property
    def steps(self) -> list[str]:
        """The events as text: `WORKING: halfway`, `output: chunk 0`, `output+ chunk 1`, `COMPLETED`."""
        found: list[str] = []
        for step in self.events:
            text = str(step)
            # A message to a working agent repeats WORKING too; only the first WORKING is listed.
            if text != "WORKING" or not found or step.metadata or self._state_before(step) != "WORKING":
                found.append(text)
        return found

    def _state_before(self, step: Step) -> str:
        return next((earlier.state for earlier in reversed(self.events[: step.sequence - 1]) if earlier.state), "")

    @property
    def artifacts(self) -> list[GivenArtifact]:
        """The artifacts in their current state."""
        return [GivenArtifact(artifact) for artifact in self.task.artifacts]

    def artifact(self, id_or_name: str) -> GivenArtifact:
        """Returns the artifact with this id or name. Raises AssertionError that lists the artifacts."""
        for artifact in self.artifacts:
            if id_or_name in (artifact.id, artifact.name):
                return artifact
        known = ", ".join(f'"{artifact.name or artifact.id}"' for artifact in self.artifacts) or "none"
        raise AssertionError(f'{self!r} has no artifact "{id_or_name}"; its artifacts: {known}')

    @property
    def chunks(self) -> list[str]:
        """The text of each artifact event, over all artifacts."""
        return [step.text for step in self.events if step.artifact]

    @property
    def status_text(self) -> str:
        """The text of the status: the last report, question, or failure."""
        return PartsView(self.task.status.message.parts).text

    @property
    def question(self) -> str:
        """The agent's question, with its links, while the task waits for its caller; empty otherwise."""
        return question_text(self.task.status.message) if self.task.status.state in states.INTERRUPTED else ""

    @property
    def text(self) -> str:
        """The result of the last turn: the text of its artifacts, joined by line breaks; otherwise the text of the
        status or of the returned Message."""
        if self.reply is not None:
            return PartsView(self.reply.parts).text
        changed = {step.artifact for step in self.events[self.turn_began :] if step.artifact}
        texts = [artifact.text for artifact in self.artifacts if artifact.id in changed and artifact.text]
        return "\n".join(texts) if texts else self.status_text

    @property
    def data(self) -> list[Any]:
        """The JSON values of all artifacts, in order."""
        return [value for artifact in self.artifacts for value in artifact.data]

    @property
    def files(self) -> list[ReceivedFile]:
        """The files of all artifacts, in order."""
        return [file for artifact in self.artifacts for file in artifact.files]

    @property
    def reports(self) -> list[str]:
        """The agent's progress reports (`turn.status`)."""
        return [step.text for step in self.events if step.state == "WORKING" and step.text]

    @property
    def ended(self) -> bool:
        """Whether the task has ended, or a Message was returned."""
        return self.reply is not None or self.task.status.state in states.TERMINAL

    @property
    def turn_began(self) -> int:
        """Index of the first event of the last turn."""
        over = {state_name(state) for state in states.INTERRUPTED}
        last = len(self.events) - 1 if not self.ended and self.state in over else len(self.events)
        return next((place + 1 for place in reversed(range(last)) if self.events[place].state in over), 0)

    def __repr__(self) -> str:
        if self.reply is not None:
            return f"<reply of {self.agent}: {_short(self.text)}>"
        if self.failure:
            return f"<task of {self.agent}: {self.state}: {self.failure}>"
        text = self.status_text if self.status_text or not self.task.artifacts else self.text
        return f"<task of {self.agent}: {self.state}{': ' if text else ''}{_short(text)}>"


RECENT: Final[deque[Story]] = deque(maxlen=10)  # the last tasks of this process, which a failed test shows


def describe_recent() -> str:
    """The last tasks with their events, oldest first."""
    # A BlockingRun shares the task of its TaskRun.
    stories = {id(one.task if one.reply is None else one.reply): one for one in RECENT if one.task.id or one.reply}
    return "\n".join(line for one in stories.values() for line in (repr(one), *(f"  {step}" for step in one.steps)))


def _summary(content: PartsView) -> str:
    """Summarizes parts: their complete text, data, and names of files."""
    names = [file.name or file.media_type or file.url for file in content.files]
    pieces = [content.text, *(repr(value) for value in content.data), *(f"[{name}]" for name in names)]
    return " ".join(filter(None, pieces))


def _short(text: str) -> str:
    return repr(text if len(text) <= MAX_REPR_CHARS else f"{text[:MAX_REPR_CHARS]}…") if text else ""
