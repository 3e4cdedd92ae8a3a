"""What a task did, in a file: what its caller sent, turn for turn, and what the agent answered.

A recording has no ids, no times and no borders of chunks, so one that is made again differs only where the agent does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dragoman.agents.plain import fill_object, read_object
from dragoman.core import states
from dragoman.core.fold import fold
from dragoman.testing.plain_parts import (
    RANDOM_ID,
    Cleaned,
    as_is,
    cleaned,
    cleaner,
    lines,
    parts_as_json,
    parts_from_json,
)
from dragoman.testing.story import Exchange, Said, Step, Story, state_name
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

FORM: Final = 1
"""The number of this form."""

LAST_WORDS: Final = 60
"""Characters of what was said last before a message came in the midst of a turn."""


@dataclass
class Recording:
    """A task: the id of its agent, and its turns as JSON.

    Each turn has `send` (the message), `meanwhile` (messages that came while the agent worked; `after`: what it had
    said last by then), `state`, `reports`, `says` (the status at its end), `artifacts` by id or name; or `reply`.
    """

    agent: str
    turns: list[dict[str, Any]] = field(default_factory=list)

    def write(self, path: Path | str) -> None:
        """Writes it to a file."""
        told = {"recording": FORM, "agent": self.agent, "turns": self.turns}
        Path(path).write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path | str) -> Recording:
        """Reads one. Raises ValueError for a file that is none."""
        try:
            told = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: is no JSON: {error}") from None
        if not isinstance(told, dict) or told.get("recording") != FORM:
            raise ValueError(f'{path}: is no recording ("recording" must be {FORM}); make one with dragoman record')
        if not told.get("turns"):
            raise ValueError(f"{path}: has no turns")
        return cls(str(told.get("agent", "")), list(told["turns"]))


def record(story: Story, path: Path | str | None = None) -> Recording:
    """What happened to a task so far; with `path`, written there too."""
    made = recorded(story.agent, story.events, story.exchange, story.reply)
    if path is not None:
        made.write(path)
    return made


def of_export(entries: Iterable[ops.ExportTaskResponse]) -> Recording:
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
    clean = cleaner(_known(events))
    if reply is not None:
        turn = {"send": _sent(exchange[0]), "reply": _said(Said(reply.parts), clean)}
        return Recording(agent, [turn])
    turns = _turns(events, exchange)
    ends = {one[-1].message.message_id for one in turns[:-1]}
    parts: list[list[Step]] = [[]]
    for step in events:
        parts[-1].append(step)
        if step.proto.status_update.status.message.message_id in ends:
            parts.append([])
    return Recording(agent, [_turn(said, done, clean) for said, done in zip(turns, parts, strict=False)])


def message_of(told: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `AgentUnderTest.send` for a message that was recorded."""
    made = pb.Message(role=pb.ROLE_USER, parts=parts_from_json(told["parts"]))
    made.extensions.extend(told.get("extensions", ()))
    if "metadata" in told:
        fill_object(made.metadata, told["metadata"])
    return {
        "message": made,
        "metadata": told.get("requestMetadata"),
        "accepts": told.get("acceptedOutputModes", ()),
    }


def _turns(events: Sequence[Step], exchange: Sequence[Exchange]) -> list[list[Exchange]]:
    """The messages of each turn; all but the last end with what the agent asked."""
    asked = {
        step.proto.status_update.status.message.message_id
        for step in events
        if step.proto.status_update.status.state in states.INTERRUPTED
    }
    turns: list[list[Exchange]] = [[]]
    for one in exchange:
        if turns[-1] and turns[-1][-1].message.message_id in asked:
            turns.append([])
        turns[-1].append(one)
    return turns


def _turn(said: Sequence[Exchange], done: Sequence[Step], clean: Cleaned) -> dict[str, Any]:
    mine = [one for one in said if one.message.role == pb.ROLE_USER]
    turn: dict[str, Any] = {"send": _sent(mine[0])}
    reports, words, before, late, task = list[Any](), "", "", list[str](), pb.Task()
    last = pb.TaskStatus()
    for step in done:
        if step.artifact:
            fold(task, step.proto)
            words = step.text or words
            continue
        update = step.proto.status_update
        last = update.status if step.proto.HasField("status_update") else step.proto.task.status
        if step.state == "WORKING":
            if step.said.parts:
                words = step.text
                reports.append(_said(step.said, clean))
            elif before == "WORKING" and "attempt" not in step.metadata:
                late.append(words)  # a message reached the agent in the midst of its work
        before = step.state
    if mine[1:]:
        turn["meanwhile"] = [
            {"after": clean(after.strip("\n")[-LAST_WORDS:]), **_sent(one)}
            for one, after in zip(mine[1:], [*late, *[""] * len(mine)], strict=False)
        ]
    turn["state"] = state_name(last.state)
    if reports:
        turn["reports"] = reports
    if last.state != states.WORKING and last.message.parts:
        turn["says"] = _said(Said(last.message.parts), clean)
    if task.artifacts:
        turn["artifacts"] = _artifacts(task.artifacts, clean)
    return turn


def _sent(one: Exchange) -> dict[str, Any]:
    told: dict[str, Any] = {"parts": parts_as_json(one.message.parts, as_is, whole=True)}
    if one.message.extensions:
        told["extensions"] = list(one.message.extensions)
    if one.message.HasField("metadata"):
        told["metadata"] = read_object(one.message.metadata)
    if one.request.HasField("metadata") and (metadata := read_object(one.request.metadata)):
        told["requestMetadata"] = metadata
    if modes := list(one.request.configuration.accepted_output_modes):
        told["acceptedOutputModes"] = modes
    return told


def _said(said: Said, clean: Cleaned) -> Any:
    """A message as its text, or as parts where it has others."""
    parts = parts_as_json(said.parts, clean, whole=False)
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"text"} else parts


def _artifacts(artifacts: Iterable[pb.Artifact], clean: Cleaned) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, one in enumerate(artifacts, 1):
        own = "" if RANDOM_ID.fullmatch(one.artifact_id) else one.artifact_id
        key = own or one.name or f"#{number}"
        about: dict[str, Any] = {}
        if own and one.name:
            about["name"] = one.name
        if one.description:
            about["description"] = lines(clean(one.description))
        about["parts"] = parts_as_json(one.parts, clean, whole=False)
        if one.HasField("metadata"):
            about["metadata"] = cleaned(read_object(one.metadata), clean)
        found[key if key not in found else f"{key} #{number}"] = about
    return found


def _known(events: Sequence[Step]) -> list[tuple[str, str]]:
    """The ids that a task is known by."""
    if not events:
        return []
    task = events[0].proto.task
    return [(task.id, "<task>"), (task.context_id, "<context>")]
