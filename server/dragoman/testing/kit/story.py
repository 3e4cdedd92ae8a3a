"""What happened to one task, so that plain asserts say what should have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dragoman.agents.functions.turn import ReceivedFile
from dragoman.agents.values import struct_to_json, value_to_json
from dragoman.core.limits.message_checks import media_type_of
from dragoman.core.limits.quotas import NO_USAGE, Usage
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_REPR_CHARS: Final = 60
"""Characters of a text that stand in a repr."""


def state_name(state: int) -> str:
    """A state without its prefix: `WORKING`; empty for none."""
    return pb.TaskState.Name(pb.TaskState.ValueType(state)).removeprefix("TASK_STATE_") if state else ""


class PartsView:
    """Parts, read: those of a message or an artifact."""

    def __init__(self, parts: Sequence[pb.Part]) -> None:
        self.parts = list(parts)

    @property
    def text(self) -> str:
        """Its text parts, joined."""
        return "".join(part.text for part in self.parts if part.WhichOneof("content") == "text")

    @property
    def data(self) -> list[Any]:
        """The JSON of its data parts."""
        return [value_to_json(part.data) for part in self.parts if part.WhichOneof("content") == "data"]

    @property
    def files(self) -> list[ReceivedFile]:
        """Its parts with bytes or a URL."""
        return [
            ReceivedFile(part.filename, media_type_of(part), part.raw, part.url)
            for part in self.parts
            if part.WhichOneof("content") in ("raw", "url")
        ]


class GivenArtifact(PartsView):
    """One artifact of a task, as it is now."""

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
        """The state that it brings, such as `WORKING`; empty for what an artifact got."""
        match self.proto.WhichOneof("payload"):
            case "task":
                return state_name(self.proto.task.status.state)
            case "status_update":
                return state_name(self.proto.status_update.status.state)
        return ""

    @property
    def artifact(self) -> str:
        """The id of the artifact that it is about; empty for a status."""
        return self.proto.artifact_update.artifact.artifact_id

    @property
    def appends(self) -> bool:
        """Whether it adds to an artifact that is there."""
        return self.proto.artifact_update.append

    @property
    def content(self) -> PartsView:
        """What it says: the status' message, or the artifact's new parts."""
        if self.artifact:
            return PartsView(self.proto.artifact_update.artifact.parts)
        return PartsView(self.proto.status_update.status.message.parts)

    @property
    def text(self) -> str:
        """The text of that."""
        return self.content.text

    @property
    def metadata(self) -> dict[str, Any]:
        """The event's metadata."""
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
    """One message of a task: the caller's with the request that it came in, less the message, or the agent's."""

    number: int
    message: pb.Message
    request: pb.SendMessageRequest = field(default_factory=pb.SendMessageRequest)


class Story:
    """Everything that is known of one task; or of the Message that came instead of one (`reply`)."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        """The id of the agent."""
        self.task = pb.Task()
        """The task as GetTask gives it, with all of its messages."""
        self.events: list[Step] = []
        """Its events from the first on."""
        self.exchange: list[Exchange] = []
        """All that was said, in order, the present status among it."""
        self.reply: pb.Message | None = None
        """The Message of a `direct` agent that needed no task."""
        self.error: BaseException | None = None
        """What the agent's function raised last, if its turn failed by that."""
        self.failure = ""
        """The same in words, with the author's file and line."""
        self.attempt = 1
        """How often its present turn was begun: 2 after a crash."""
        self.usage: Usage = NO_USAGE
        """All that the agent reported with `turn.usage`."""

    @property
    def id(self) -> str:
        """The task's id; empty for a reply."""
        return self.task.id

    @property
    def context_id(self) -> str:
        """The conversation it belongs to."""
        return self.task.context_id or (self.reply.context_id if self.reply else "")

    @property
    def state(self) -> str:
        """The task's state, such as `COMPLETED`; empty for a reply."""
        return state_name(self.task.status.state)

    @property
    def states(self) -> list[str]:
        """Its states in order, each once until another comes: `["SUBMITTED", "WORKING", "COMPLETED"]`."""
        found: list[str] = []
        for step in self.events:
            if step.state and step.state not in found[-1:]:
                found.append(step.state)
        return found

    @property
    def steps(self) -> list[str]:
        """Its events in words, such as `WORKING: halfway`, `output: chunk 0`, `output+ chunk 1`, `COMPLETED`."""
        found: list[str] = []
        for step in self.events:
            text = str(step)
            # A message that reaches a working agent is such an event, too.
            if text != "WORKING" or not found or step.metadata or self._state_before(step) != "WORKING":
                found.append(text)
        return found

    def _state_before(self, step: Step) -> str:
        return next((one.state for one in reversed(self.events[: step.sequence - 1]) if one.state), "")

    @property
    def artifacts(self) -> list[GivenArtifact]:
        """Its artifacts, as they are now."""
        return [GivenArtifact(one) for one in self.task.artifacts]

    def artifact(self, which: str) -> GivenArtifact:
        """The artifact of this id or name. Raises AssertionError that says which there are."""
        for one in self.artifacts:
            if which in (one.id, one.name):
                return one
        known = ", ".join(f'"{one.name or one.id}"' for one in self.artifacts) or "none"
        raise AssertionError(f'{self!r} gave no artifact "{which}"; there are: {known}')

    @property
    def chunks(self) -> list[str]:
        """The text of each event that brought some of an artifact, of all artifacts together."""
        return [step.text for step in self.events if step.artifact]

    @property
    def status_text(self) -> str:
        """The text of its status: what the agent reported, asked, or failed with last."""
        return PartsView(self.task.status.message.parts).text

    @property
    def question(self) -> str:
        """What the agent asks, while the task waits for its caller; empty otherwise."""
        return self.status_text if self.task.status.state in states.INTERRUPTED else ""

    @property
    def text(self) -> str:
        """What the agent answered in its last turn: the text of the artifacts that it gave, one under the other; where
        there is none, what its status says, or the Message that came instead of a task."""
        if self.reply is not None:
            return PartsView(self.reply.parts).text
        given = {step.artifact for step in self.events[self.turn_began :] if step.artifact}
        texts = [one.text for one in self.artifacts if one.id in given and one.text]
        return "\n".join(texts) if texts else self.status_text

    @property
    def data(self) -> list[Any]:
        """The JSON of all artifacts, in order."""
        return [value for one in self.artifacts for value in one.data]

    @property
    def files(self) -> list[ReceivedFile]:
        """The files of all artifacts, in order."""
        return [value for one in self.artifacts for value in one.files]

    @property
    def reports(self) -> list[str]:
        """What the agent said while it worked (`turn.status`)."""
        return [step.text for step in self.events if step.state == "WORKING" and step.text]

    @property
    def ended(self) -> bool:
        """Whether nothing can happen to it any more."""
        return self.reply is not None or self.task.status.state in states.TERMINAL

    @property
    def turn_began(self) -> int:
        """The place of the first event of the last turn."""
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


def _summary(content: PartsView) -> str:
    """Parts in few words, all of their text."""
    names = [file.name or file.media_type or file.url for file in content.files]
    found = [content.text, *(repr(value) for value in content.data), *(f"[{name}]" for name in names)]
    return " ".join(filter(None, found))


def _short(text: str) -> str:
    return repr(text if len(text) <= MAX_REPR_CHARS else f"{text[:MAX_REPR_CHARS]}…") if text else ""
