"""What a task did, in a file: what its caller sent, turn for turn, and what the agent answered.

A recording has no ids, no times and no borders of chunks, so one that is made again differs only where the agent does.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from dragoman.agents.values import fill_struct, fill_value, struct_to_json, value_to_json
from dragoman.core.task import states
from dragoman.core.task.projection import fold
from dragoman.testing.kit.story import Exchange, PartsView, Step, Story, state_name
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

RECORDING_FORMAT: Final = 1
"""The number of this form."""

MAX_LAST_TEXT_CHARS: Final = 60
"""Characters of what was said last before a message came in the midst of a turn."""


@dataclass
class Recording:
    """A task: the id of its agent, and its turns as JSON.

    Each turn has `send` (the message), `meanwhile` (messages that came while the agent worked; `after`:
    what it had
    said last by then), `state`, `reports`, `says` (the status at its end), `artifacts` by id or name; or
    `reply`.
    """

    agent: str
    turns: list[dict[str, Any]] = field(default_factory=list)

    def write(self, path: Path | str) -> None:
        """Writes it to a file."""
        values = {"recording": RECORDING_FORMAT, "agent": self.agent, "turns": self.turns}
        Path(path).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path | str) -> Recording:
        """Reads one. Raises ValueError for a file that is none."""
        try:
            value = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: is no JSON: {error}") from None
        if not isinstance(value, dict) or value.get("recording") != RECORDING_FORMAT:
            raise ValueError(
                f'{path}: is no recording ("recording" must be {RECORDING_FORMAT}); make one with dragoman record'
            )
        if not value.get("turns"):
            raise ValueError(f"{path}: has no turns")
        return cls(str(value.get("agent", "")), list(value["turns"]))


def record(story: Story, path: Path | str | None = None) -> Recording:
    """What happened to a task so far; with `path`, written there too."""
    recording = recorded(story.agent, story.events, story.exchange, story.reply)
    if path is not None:
        recording.write(path)
    return recording


def recording_of_export(entries: Iterable[ops.ExportTaskResponse]) -> Recording:
    """Of what `dragoman export` gives. Raises ValueError when that is not all of a task."""
    agent, events, exchange, task = "", list[Step](), list[Exchange](), pb.Task()
    for entry in entries:
        match entry.WhichOneof("entry"):
            case "header":
                agent = entry.header.agent
            case "task":
                task = entry.task
            case "event":
                events.append(Step(entry.event.sequence, entry.event.event))
            case "message":
                request = pb.SendMessageRequest()
                if entry.message.HasField("metadata"):
                    request.metadata.CopyFrom(entry.message.metadata)
                request.configuration.accepted_output_modes.extend(entry.message.accepted_output_modes)
                exchange.append(Exchange(entry.message.number, entry.message.message, request))
    if not events or events[0].sequence != 1:
        raise ValueError(f"task {task.id}: its log was cut (--cut-after), so what it did is not known any more")
    return recorded(agent, events, exchange)


def recorded(
    agent: str, events: Sequence[Step], exchange: Sequence[Exchange], reply: pb.Message | None = None
) -> Recording:
    """A recording of these events and messages."""
    clean = make_cleaner(_known_ids(events))
    if reply is not None:
        turn = {"send": _message_json(exchange[0]), "reply": _content_json(PartsView(reply.parts), clean)}
        return Recording(agent, [turn])
    turns = _turns(events, exchange)
    ends = {one[-1].message.message_id for one in turns[:-1]}
    parts: list[list[Step]] = [[]]
    for step in events:
        parts[-1].append(step)
        if step.proto.status_update.status.message.message_id in ends:
            parts.append([])
    return Recording(agent, [_turn(exchanges, done, clean) for exchanges, done in zip(turns, parts, strict=False)])


def send_arguments(entry: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `AgentUnderTest.send` for a message that was recorded."""
    message = pb.Message(role=pb.ROLE_USER, parts=parts_from_json(entry["parts"]))
    message.extensions.extend(entry.get("extensions", ()))
    if "metadata" in entry:
        fill_struct(message.metadata, entry["metadata"])
    return {
        "message": message,
        "metadata": entry.get("requestMetadata"),
        "accepts": entry.get("acceptedOutputModes", ()),
    }


def _turns(events: Sequence[Step], exchange: Sequence[Exchange]) -> list[list[Exchange]]:
    """The messages of each turn; all but the last end with what the agent asked."""
    texts = {
        step.proto.status_update.status.message.message_id
        for step in events
        if step.proto.status_update.status.state in states.INTERRUPTED
    }
    turns: list[list[Exchange]] = [[]]
    for one in exchange:
        if turns[-1] and turns[-1][-1].message.message_id in texts:
            turns.append([])
        turns[-1].append(one)
    return turns


def _turn(exchanges: Sequence[Exchange], steps: Sequence[Step], clean: Cleaner) -> dict[str, Any]:
    mine = [one for one in exchanges if one.message.role == pb.ROLE_USER]
    turn: dict[str, Any] = {"send": _message_json(mine[0])}
    reports, words, before, late, task = list[Any](), "", "", list[str](), pb.Task()
    last = pb.TaskStatus()
    for step in steps:
        if step.artifact:
            fold(task, step.proto)
            words = step.text or words
            continue
        update = step.proto.status_update
        last = update.status if step.proto.HasField("status_update") else step.proto.task.status
        if step.state == "WORKING":
            if step.content.parts:
                words = step.text
                reports.append(_content_json(step.content, clean))
            elif before == "WORKING" and "attempt" not in step.metadata:
                late.append(words)  # a message reached the agent in the midst of its work
        before = step.state
    if mine[1:]:
        turn["meanwhile"] = [
            {"after": clean(after.strip("\n")[-MAX_LAST_TEXT_CHARS:]), **_message_json(one)}
            for one, after in zip(mine[1:], [*late, *[""] * len(mine)], strict=False)
        ]
    turn["state"] = state_name(last.state)
    if reports:
        turn["reports"] = reports
    if last.state != states.WORKING and last.message.parts:
        turn["says"] = _content_json(PartsView(last.message.parts), clean)
    if task.artifacts:
        turn["artifacts"] = _artifacts_json(task.artifacts, clean)
    return turn


def _message_json(exchange: Exchange) -> dict[str, Any]:
    values: dict[str, Any] = {"parts": parts_as_json(exchange.message.parts, unchanged, with_bytes=True)}
    if exchange.message.extensions:
        values["extensions"] = list(exchange.message.extensions)
    if exchange.message.HasField("metadata"):
        values["metadata"] = struct_to_json(exchange.message.metadata)
    if exchange.request.HasField("metadata") and (metadata := struct_to_json(exchange.request.metadata)):
        values["requestMetadata"] = metadata
    if modes := list(exchange.request.configuration.accepted_output_modes):
        values["acceptedOutputModes"] = modes
    return values


def _content_json(content: PartsView, clean: Cleaner) -> Any:
    """A message as its text, or as parts where it has others."""
    parts = parts_as_json(content.parts, clean, with_bytes=False)
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"text"} else parts


def _artifacts_json(artifacts: Iterable[pb.Artifact], clean: Cleaner) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, one in enumerate(artifacts, 1):
        own = "" if RANDOM_ID.fullmatch(one.artifact_id) else one.artifact_id
        key = own or one.name or f"#{number}"
        about: dict[str, Any] = {}
        if own and one.name:
            about["name"] = one.name
        if one.description:
            about["description"] = lines(clean(one.description))
        about["parts"] = parts_as_json(one.parts, clean, with_bytes=False)
        if one.HasField("metadata"):
            about["metadata"] = clean_json(struct_to_json(one.metadata), clean)
        found[key if key not in found else f"{key} #{number}"] = about
    return found


def _known_ids(events: Sequence[Step]) -> list[tuple[str, str]]:
    """The ids that a task is known by."""
    if not events:
        return []
    task = events[0].proto.task
    return [(task.id, "<task>"), (task.context_id, "<context>")]


MAX_READABLE_BYTES: Final = 64 * 1024
"""Bytes of a text file that stand in a recording."""

RANDOM_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\b[0-9a-f]{32}\b|\bid-\d+\b")
"""A UUID, one without dashes, or what `dragoman.testing.Ids` counts."""

TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?")

Cleaner = Callable[[str], str]


def make_cleaner(known: Iterable[tuple[str, str]]) -> Cleaner:
    """Takes ids and times out of a text: those known by their own words, the others as `<id>` and `<time>`."""
    words = [(text, instead) for text, instead in known if text]

    def clean(text: str) -> str:
        for word, instead in words:
            text = text.replace(word, instead)
        return TIMESTAMP.sub("<time>", RANDOM_ID.sub("<id>", text))

    return clean


def unchanged(text: str) -> str:
    """Leaves a text alone: what callers said is sent again as it was."""
    return text


def lines(text: str) -> str | list[str]:
    """A text as JSON: one line, or a list of them."""
    return text.split("\n") if "\n" in text else text


def text_of(value: str | list[str]) -> str:
    """The text that `lines` made something of."""
    return value if isinstance(value, str) else "\n".join(value)


def parts_as_json(parts: Iterable[pb.Part], clean: Cleaner, *, with_bytes: bool) -> list[dict[str, Any]]:
    """Parts; `whole`: with the bytes of files, so that they can be sent again."""
    found: list[dict[str, Any]] = []
    for part in joined(parts):
        about: dict[str, Any] = {}
        match part.WhichOneof("content"):
            case "text":
                about["text"] = lines(clean(part.text))
            case "data":
                about["data"] = clean_json(value_to_json(part.data), clean)
            case "raw":
                about["file"] = clean(part.filename)
            case "url":
                about["url"] = clean(part.url)
                if part.filename:
                    about["file"] = clean(part.filename)
        if part.media_type:
            about["mediaType"] = part.media_type
        if part.WhichOneof("content") == "raw":
            about |= _content(part.raw, part.media_type, clean, with_bytes)
        if part.HasField("metadata"):
            about["metadata"] = clean_json(struct_to_json(part.metadata), clean)
        found.append(about)
    return found


def parts_from_json(entries: Iterable[dict[str, Any]]) -> list[pb.Part]:
    """What `parts_as_json` made whole."""
    parts = []
    for one in entries:
        part = pb.Part(media_type=one.get("mediaType", ""), filename=one.get("file", ""))
        if "base64" in one:
            part.raw = base64.b64decode(one["base64"])
        elif "url" in one:
            part.url = one["url"]
        elif "data" in one:
            fill_value(part.data, one["data"])
        elif "file" in one:
            part.raw = text_of(one["text"]).encode()
        else:
            part.text = text_of(one["text"])
        if "metadata" in one:
            fill_struct(part.metadata, one["metadata"])
        parts.append(part)
    return parts


def joined(parts: Iterable[pb.Part]) -> list[pb.Part]:
    """Parts, with neighbours of nothing but text joined."""
    found: list[pb.Part] = []
    for part in parts:
        if found and _only_text(part) and _only_text(found[-1]):
            found[-1] = pb.Part(text=found[-1].text + part.text)
        else:
            found.append(part)
    return found


def clean_json(value: Any, clean: Cleaner) -> Any:
    """JSON with its texts cleaned."""
    match value:
        case str():
            return clean(value)
        case list():
            return [clean_json(one, clean) for one in value]
        case dict():
            return {clean(name): clean_json(one, clean) for name, one in value.items()}
    return value


def _content(raw: bytes, media_type: str, clean: Cleaner, with_bytes: bool) -> dict[str, Any]:
    if len(raw) <= MAX_READABLE_BYTES and (media_type.startswith("text/") or media_type == "application/json"):
        try:
            return {"text": lines(clean(raw.decode()))}
        except UnicodeDecodeError:
            pass
    if with_bytes:
        return {"base64": base64.b64encode(raw).decode()}
    return {"bytes": len(raw), "sha256": sha256(raw).hexdigest()}


def _only_text(part: pb.Part) -> bool:
    return part.WhichOneof("content") == "text" and not (part.media_type or part.filename or part.HasField("metadata"))
