"""Recordings: the messages and results of a task, turn by turn, in a JSON file.

A recording contains no ids, timestamps or chunk boundaries, so two recordings differ only if the agent does.
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

from dragoman.agents.values import fill_value, struct_to_json, value_to_json
from dragoman.core.task import states
from dragoman.core.task.projection import fold
from dragoman.testing.kit.story import Exchange, PartsView, Step, Story, state_name
from dragoman_pb.dragoman.ops import v1 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

RECORDING_FORMAT: Final = 1  # version of the file format
MAX_LAST_TEXT_CHARS: Final = 60  # of the output before a message that arrived during a turn


@dataclass
class Recording:
    """A recorded task: the id of its agent, and its turns as JSON.

    Each turn has `send` (the message), `meanwhile` (messages received during the turn; `after`: the last output before
    them), `state`, `reports`, `says` (the final status), `artifacts` by id or name; or `reply`.
    """

    agent: str
    turns: list[dict[str, Any]] = field(default_factory=list)

    def write(self, path: Path | str) -> None:
        values = {"recording": RECORDING_FORMAT, "agent": self.agent, "turns": self.turns}
        Path(path).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path | str) -> Recording:
        """Reads a recording. Raises ValueError for another file."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: is not JSON: {error}") from None
        if not isinstance(document, dict) or document.get("recording") != RECORDING_FORMAT:
            raise ValueError(
                f'{path}: is not a recording ("recording" must be {RECORDING_FORMAT}); make one with dragoman record'
            )
        if not document.get("turns"):
            raise ValueError(f"{path}: has no turns")
        return cls(str(document.get("agent", "")), list(document["turns"]))


def record(story: Story, path: Path | str | None = None) -> Recording:
    """Records a task; with `path`, also writes the recording to that file."""
    recording = recorded(story.agent, story.events, story.exchange, story.reply)
    if path is not None:
        recording.write(path)
    return recording


def recording_of_export(entries: Iterable[ops.ExportTaskResponse]) -> Recording:
    """Converts an export (`dragoman export`). Raises ValueError for an incomplete one."""
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
        raise ValueError(
            f"task {task.id}: its log was truncated (--truncate-log-after), so its first events are missing"
        )
    return recorded(agent, events, exchange)


def recorded(
    agent: str, events: Sequence[Step], exchange: Sequence[Exchange], reply: pb.Message | None = None
) -> Recording:
    task = events[0].proto.task if events else pb.Task()
    clean = make_cleaner([(task.id, "<task>"), (task.context_id, "<context>")])
    if reply is not None:
        turn = {"send": _message_json(exchange[0]), "reply": _content_json(PartsView(reply.parts), clean)}
        return Recording(agent, [turn])
    turns = _turns(events, exchange)
    ends = {turn[-1].message.message_id for turn in turns[:-1]}
    parts: list[list[Step]] = [[]]
    for step in events:
        parts[-1].append(step)
        if step.proto.status_update.status.message.message_id in ends:
            parts.append([])
    return Recording(agent, [_turn(exchanges, done, clean) for exchanges, done in zip(turns, parts, strict=False)])


def send_arguments(entry: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `AgentUnderTest.send` for a recorded message."""
    message = pb.Message(role=pb.ROLE_USER, parts=parts_from_json(entry["parts"]))
    message.extensions.extend(entry.get("extensions", ()))
    if "metadata" in entry:
        message.metadata.update(entry["metadata"])
    return {
        "message": message,
        "metadata": entry.get("requestMetadata"),
        "accepts": entry.get("acceptedOutputModes", ()),
    }


def _turns(events: Sequence[Step], exchange: Sequence[Exchange]) -> list[list[Exchange]]:
    """Returns the messages of each turn; all but the last turn end with the agent's question."""
    question_ids = {
        step.proto.status_update.status.message.message_id
        for step in events
        if step.proto.status_update.status.state in states.INTERRUPTED
    }
    turns: list[list[Exchange]] = [[]]
    for entry in exchange:
        if turns[-1] and turns[-1][-1].message.message_id in question_ids:
            turns.append([])
        turns[-1].append(entry)
    return turns


def _turn(exchanges: Sequence[Exchange], steps: Sequence[Step], clean: Cleaner) -> dict[str, Any]:
    sent = [entry for entry in exchanges if entry.message.role == pb.ROLE_USER]
    turn: dict[str, Any] = {"send": _message_json(sent[0])}
    reports, output, before, late, task = list[Any](), "", "", list[str](), pb.Task()
    last = pb.TaskStatus()
    for step in steps:
        if step.artifact:
            fold(task, step.proto)
            output = step.text or output
            continue
        update = step.proto.status_update
        last = update.status if step.proto.HasField("status_update") else step.proto.task.status
        if step.state == "WORKING":
            if step.content.parts:
                output = step.text
                reports.append(_content_json(step.content, clean))
            elif before == "WORKING" and "attempt" not in step.metadata:
                late.append(output)  # a message arrived during the turn
        before = step.state
    if sent[1:]:
        turn["meanwhile"] = [
            {"after": clean(after.strip("\n")[-MAX_LAST_TEXT_CHARS:]), **_message_json(entry)}
            for entry, after in zip(sent[1:], [*late, *[""] * len(sent)], strict=False)
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
    # Not cleaned: messages of callers are replayed literally.
    values: dict[str, Any] = {"parts": parts_as_json(exchange.message.parts, str, with_bytes=True)}
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
    """Returns a message as its text if it has nothing else, otherwise as parts."""
    parts = parts_as_json(content.parts, clean, with_bytes=False)
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"text"} else parts


def _artifacts_json(artifacts: Iterable[pb.Artifact], clean: Cleaner) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for number, artifact in enumerate(artifacts, 1):
        stable_id = "" if RANDOM_ID.fullmatch(artifact.artifact_id) else artifact.artifact_id
        key = stable_id or artifact.name or f"#{number}"
        entry: dict[str, Any] = {}
        if stable_id and artifact.name:
            entry["name"] = artifact.name
        if artifact.description:
            entry["description"] = lines(clean(artifact.description))
        entry["parts"] = parts_as_json(artifact.parts, clean, with_bytes=False)
        if artifact.HasField("metadata"):
            entry["metadata"] = clean_json(struct_to_json(artifact.metadata), clean)
        entries[key if key not in entries else f"{key} #{number}"] = entry
    return entries


MAX_READABLE_BYTES: Final = 64 * 1024  # of a text file that is recorded as text

RANDOM_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\b[0-9a-f]{32}\b|\bid-\d+\b")
"""A UUID, with or without dashes, or an id of `dragoman.testing.Ids`."""

TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?")

Cleaner = Callable[[str], str]


def make_cleaner(known: Iterable[tuple[str, str]]) -> Cleaner:
    """Returns a function that replaces ids and times in a text: `known` ids by their placeholders, others by `<id>` and
    `<time>`."""
    placeholders = [(id, placeholder) for id, placeholder in known if id]

    def clean(text: str) -> str:
        for id, placeholder in placeholders:
            text = text.replace(id, placeholder)
        return TIMESTAMP.sub("<time>", RANDOM_ID.sub("<id>", text))

    return clean


def lines(text: str) -> str | list[str]:
    """Returns a text as JSON: a string, or a list of lines."""
    return text.split("\n") if "\n" in text else text


def text_of(recorded_lines: str | list[str]) -> str:
    """Reverses `lines`."""
    return recorded_lines if isinstance(recorded_lines, str) else "\n".join(recorded_lines)


def parts_as_json(parts: Iterable[pb.Part], clean: Cleaner, *, with_bytes: bool) -> list[dict[str, Any]]:
    """Returns parts as JSON. `with_bytes`: including the bytes of files, so that they can be sent again."""
    entries: list[dict[str, Any]] = []
    for part in joined(parts):
        entry: dict[str, Any] = {}
        match part.WhichOneof("content"):
            case "text":
                entry["text"] = lines(clean(part.text))
            case "data":
                entry["data"] = clean_json(value_to_json(part.data), clean)
            case "raw":
                entry["file"] = clean(part.filename)
            case "url":
                entry["url"] = clean(part.url)
                if part.filename:
                    entry["file"] = clean(part.filename)
        if part.media_type:
            entry["mediaType"] = part.media_type
        if part.WhichOneof("content") == "raw":
            entry |= _content(part.raw, part.media_type, clean, with_bytes)
        if part.HasField("metadata"):
            entry["metadata"] = clean_json(struct_to_json(part.metadata), clean)
        entries.append(entry)
    return entries


def parts_from_json(entries: Iterable[dict[str, Any]]) -> list[pb.Part]:
    """Reverses `parts_as_json` (with bytes)."""
    parts = []
    for entry in entries:
        part = pb.Part(media_type=entry.get("mediaType", ""), filename=entry.get("file", ""))
        if "base64" in entry:
            part.raw = base64.b64decode(entry["base64"])
        elif "url" in entry:
            part.url = entry["url"]
        elif "data" in entry:
            fill_value(part.data, entry["data"])
        elif "file" in entry:
            part.raw = text_of(entry["text"]).encode()
        else:
            part.text = text_of(entry["text"])
        if "metadata" in entry:
            part.metadata.update(entry["metadata"])
        parts.append(part)
    return parts


def joined(parts: Iterable[pb.Part]) -> list[pb.Part]:
    """Returns the parts, with adjacent plain text parts joined."""
    merged: list[pb.Part] = []
    for part in parts:
        fields = [field.name for one in (*merged[-1:], part) for field, _ in one.ListFields()]
        if fields == ["text", "text"]:
            merged[-1] = pb.Part(text=merged[-1].text + part.text)
        else:
            merged.append(part)
    return merged


def clean_json(value: Any, clean: Cleaner) -> Any:
    match value:
        case str():
            return clean(value)
        case list():
            return [clean_json(item, clean) for item in value]
        case dict():
            return {clean(name): clean_json(item, clean) for name, item in value.items()}
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
