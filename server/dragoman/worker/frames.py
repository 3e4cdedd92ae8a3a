"""What a turn produces, as frames for the server."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from google.protobuf.json_format import ParseDict

from dragoman.core.cards.agent_spec import AgentSpec, Skill
from dragoman.core.task import states
from dragoman.core.task.log import ArtifactChange, StatusChange
from dragoman.core.task.maintenance import RETENTION_STATES
from dragoman.ports import NO_CHANGE, StateUpdate, TurnResult
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_FRAME_EVENTS: Final = 256
TARGET_FRAME_BYTES: Final = 1024 * 1024
"""About as much as one frame of events holds; a single event may be larger."""

FRAME_OVERHEAD_BYTES: Final = 256
"""Bytes of a frame beside its events."""


class EventTooLarge(ValueError):
    """An event is larger than a frame may be."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"an event of {size} bytes is more than this server takes at once, {limit - FRAME_OVERHEAD_BYTES}: "
            "give it in several chunks, or have the server run with a larger --message-bytes"
        )


def encode_events(
    turn_id: str,
    number: int,
    changes: Sequence[StatusChange | ArtifactChange],
    state_update: StateUpdate,
    max_frame_bytes: int,
) -> list[wk.Events]:
    """Frames with these changes, from `number` on; the notes are in the last one.

    `limit`: bytes of a frame. Raises EventTooLarge, and then nothing may be sent.
    """
    found = [
        wk.Events(turn_id=turn_id, number=number + index, events=few)
        for index, few in enumerate(_split_events([encode_event(change) for change in changes], max_frame_bytes))
    ]
    if state_update is not NO_CHANGE:
        found[-1].notes.CopyFrom(encode_state_update(state_update))
        if found[-1].ByteSize() > max_frame_bytes:
            raise EventTooLarge(found[-1].ByteSize(), max_frame_bytes)
    return found


def _split_events(events: list[wk.Event], max_frame_bytes: int) -> Iterator[list[wk.Event]]:
    few: list[wk.Event] = []
    bytes = 0
    for one in events:
        size = one.ByteSize()
        if size > max_frame_bytes - FRAME_OVERHEAD_BYTES:
            raise EventTooLarge(size, max_frame_bytes)
        if few and (
            len(few) == MAX_FRAME_EVENTS
            or bytes + size > min(TARGET_FRAME_BYTES, max_frame_bytes - FRAME_OVERHEAD_BYTES)
        ):
            yield few
            few, bytes = [], 0
        few.append(one)
        bytes += size + 8
    yield few


def encode_event(change: StatusChange | ArtifactChange) -> wk.Event:
    """One event."""
    if isinstance(change, StatusChange):
        return wk.Event(status=encode_status(change))
    if change.text is not None and not change.metadata:
        text = wk.TextChunk(
            artifact_id=change.artifact_id, text=change.text, append=change.append, last_chunk=change.last_chunk
        )
        return wk.Event(text=text)
    return wk.Event(artifact=encode_artifact(change))


def encode_status(change: StatusChange) -> wk.StatusChange:
    """A change of state."""
    made = wk.StatusChange(state=pb.TaskState.Name(change.state))
    if change.message:
        made.message.MergeFromString(change.message)
    if change.metadata:
        made.metadata.MergeFromString(change.metadata)
    return made


def encode_artifact(change: ArtifactChange) -> wk.ArtifactChange:
    """An artifact or a piece of one."""
    made = wk.ArtifactChange(append=change.append, last_chunk=change.last_chunk)
    made.artifact.MergeFromString(change.head + change.parts + change.tail)
    if change.text is not None:
        made.artifact.parts.add(text=change.text)
    if change.metadata:
        made.metadata.MergeFromString(change.metadata)
    return made


def encode_turn_end(turn_id: str, result: TurnResult, max_frame_bytes: int) -> wk.TurnEnd:
    """How a turn ended. Raises EventTooLarge."""
    made = wk.TurnEnd(turn_id=turn_id, artifacts=map(encode_artifact, result.artifacts))
    if result.reply is not None:
        made.reply.CopyFrom(result.reply)
    else:
        made.status.CopyFrom(encode_status(result.status))
    if result.state_update is not NO_CHANGE:
        made.notes.CopyFrom(encode_state_update(result.state_update))
    if made.ByteSize() > max_frame_bytes - FRAME_OVERHEAD_BYTES:
        raise EventTooLarge(made.ByteSize(), max_frame_bytes)
    return made


def failed_turn_end(turn_id: str, text: str) -> wk.TurnEnd:
    """The end of a turn whose own end cannot be told."""
    message = pb.Message(parts=[pb.Part(text=text)])
    return wk.TurnEnd(turn_id=turn_id, status=wk.StatusChange(state=pb.TaskState.Name(states.FAILED), message=message))


def encode_state_update(state_update: StateUpdate) -> wk.Notes:
    """What the agent keeps."""
    made = wk.Notes()
    if state_update.task_state is not None:
        made.task_state = state_update.task_state.decode()
    if state_update.context_state is not None:
        made.context_state = state_update.context_state.decode()
    return made


log = logging.getLogger("dragoman.worker")


def encode_registration(spec: AgentSpec, turns: int) -> wk.AgentRegistration:
    """The agent of this spec, of which so many turns are taken.

    Security and `default` are the server's business; a line in the log says so.
    """
    if spec.security_schemes or spec.default:
        said = "security" if spec.security_schemes else "default"
        log.info("agent %s: what it says of %s is not told; that is the server's", spec.id, said)
    card = pb.AgentCard(
        name=spec.name,
        description=spec.description,
        version=spec.version,
        documentation_url=spec.documentation_url,
        default_input_modes=spec.input_modes,
        default_output_modes=spec.output_modes,
        skills=_encode_skills(spec.skills),
        capabilities=pb.AgentCapabilities(streaming=spec.streaming),
    )
    if spec.icon_url:
        card.icon_url = spec.icon_url
    if spec.provider:
        card.provider.organization, card.provider.url = spec.provider.organization, spec.provider.url
    for extension in spec.extensions:
        told = card.capabilities.extensions.add(
            uri=extension.uri, description=extension.description, required=extension.required
        )
        if extension.params:
            ParseDict(dict(extension.params), told.params)
    made = wk.AgentRegistration(
        id=spec.id,
        card=card,
        extended_skills=_encode_skills(spec.extended_skills),
        direct=spec.direct,
        uncancelable=not spec.cancelable,
        refuses_messages=spec.while_working == "refuse",
        retries=spec.retries,
        turns=turns,
    )
    for limit in ("idle_limit", "time_limit"):
        if seconds := getattr(spec, limit):
            getattr(made, limit).FromNanoseconds(round(seconds * 1e9))
    for name, state in RETENTION_STATES.items():
        if state in spec.retention:
            made.retention[name].FromMilliseconds(spec.retention[state])
    return made


def _encode_skills(skills: Iterable[Skill]) -> list[pb.AgentSkill]:
    return [
        pb.AgentSkill(
            id=skill.id,
            name=skill.name,
            description=skill.description,
            tags=skill.tags,
            examples=skill.examples,
            input_modes=skill.input_modes,
            output_modes=skill.output_modes,
        )
        for skill in skills
    ]
