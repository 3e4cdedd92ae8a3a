"""Encodes registrations and the output of turns as frames for the server."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from dragoman.core.cards.agent_spec import AgentSpec, card_skills
from dragoman.core.task.log import ArtifactChange, StatusChange
from dragoman.core.task.maintenance import RETENTION_STATES
from dragoman.ports import NO_CHANGE, StateUpdate, TurnResult
from dragoman.ports.remote_agents import encode_step, oversized_event_text
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_FRAME_EVENTS: Final = 256
TARGET_FRAME_BYTES: Final = 1024 * 1024
"""Events per frame, and target bytes per frame. A single event may be larger."""

FRAME_OVERHEAD_BYTES: Final = 256  # bytes of a frame that are reserved for fields other than its events


class EventTooLarge(ValueError):
    """An event is larger than the maximum frame."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(oversized_event_text(size, limit - FRAME_OVERHEAD_BYTES))


def encode_events(
    turn_id: str,
    number: int,
    changes: Sequence[StatusChange | ArtifactChange],
    state_update: StateUpdate,
    max_frame_bytes: int,
) -> Iterator[wk.Events]:
    """Encodes changes as frames, numbered from `number`. The last frame has the state update.

    Raises EventTooLarge, after the frames of the events before it.
    """
    limit = max_frame_bytes - FRAME_OVERHEAD_BYTES
    frame, frame_bytes = wk.Events(turn_id=turn_id, number=number), 0
    for event in map(encode_event, changes):
        size = event.ByteSize()
        is_full = len(frame.events) == MAX_FRAME_EVENTS or frame_bytes + size > min(TARGET_FRAME_BYTES, limit)
        if frame.events and is_full:
            yield frame
            number += 1
            frame, frame_bytes = wk.Events(turn_id=turn_id, number=number), 0
        if size > limit:
            raise EventTooLarge(size, max_frame_bytes)
        frame.events.append(event)
        frame_bytes += size + 8
    if state_update is not NO_CHANGE:
        frame.state_update.CopyFrom(encode_state_update(state_update))
        if frame.ByteSize() > max_frame_bytes:
            raise EventTooLarge(frame.ByteSize(), max_frame_bytes)
    yield frame


def encode_event(change: StatusChange | ArtifactChange) -> wk.Event:
    """Encodes one event, text chunks in their short form."""
    if isinstance(change, StatusChange):
        return wk.Event(status=encode_status(change))
    if change.text is not None:
        text = wk.TextChunk(
            artifact_id=change.artifact_id, text=change.text, append=change.append, last_chunk=change.last_chunk
        )
        if change.metadata:
            text.metadata.MergeFromString(change.metadata)
        return wk.Event(text=text)
    return wk.Event(artifact=encode_artifact(change))


def encode_status(change: StatusChange) -> wk.StatusChange:
    encoded = wk.StatusChange(state=pb.TaskState.Name(change.state))
    if change.message:
        encoded.message.MergeFromString(change.message)
    if change.metadata:
        encoded.metadata.MergeFromString(change.metadata)
    if change.failure:
        encoded.failure.MergeFromString(change.failure)
    return encoded


def encode_artifact(change: ArtifactChange) -> wk.ArtifactChange:
    encoded = wk.ArtifactChange(append=change.append, last_chunk=change.last_chunk)
    encoded.artifact.MergeFromString(change.head + change.parts + change.tail)
    if change.text is not None:
        encoded.artifact.parts.add(text=change.text)
    if change.metadata:
        encoded.metadata.MergeFromString(change.metadata)
    return encoded


def encode_turn_end(turn_id: str, result: TurnResult, max_frame_bytes: int) -> wk.TurnEnd:
    """Encodes the result of a turn. Raises EventTooLarge."""
    encoded = wk.TurnEnd(turn_id=turn_id, artifacts=map(encode_artifact, result.artifacts))
    if result.pause is not None:
        encoded.pause.error = result.pause.error
        encoded.pause.until.FromMilliseconds(result.pause.until)
    elif result.reply is not None:
        encoded.reply.CopyFrom(result.reply)
    else:
        encoded.status.CopyFrom(encode_status(result.status))
    if result.state_update is not NO_CHANGE:
        encoded.state_update.CopyFrom(encode_state_update(result.state_update))
    if encoded.ByteSize() > max_frame_bytes - FRAME_OVERHEAD_BYTES:
        raise EventTooLarge(encoded.ByteSize(), max_frame_bytes)
    return encoded


def encode_state_update(state_update: StateUpdate) -> wk.StateUpdate:
    encoded = wk.StateUpdate()
    if state_update.task_state is not None:
        encoded.task_state = state_update.task_state.decode()
    if state_update.context_state is not None:
        encoded.context_state = state_update.context_state.decode()
    if state_update.task_metadata:
        encoded.task_metadata.MergeFromString(state_update.task_metadata)
    encoded.steps.extend(map(encode_step, state_update.steps))
    return encoded


log = logging.getLogger("dragoman.worker")


def encode_registration(spec: AgentSpec, turns: int) -> wk.AgentRegistration:
    """Encodes the registration of an agent with `turns` credits.

    Leaves out security schemes and `default`, which the server decides, and logs that.
    """
    if spec.security_schemes or spec.default:
        argument = "security" if spec.security_schemes else "default"
        log.info("agent %s: %s is ignored in a worker; set it at the server", spec.id, argument)
    card = pb.AgentCard(
        name=spec.name,
        description=spec.description,
        version=spec.version,
        documentation_url=spec.documentation_url,
        icon_url=spec.icon_url or None,
        provider=asdict(spec.provider) if spec.provider else None,
        default_input_modes=spec.input_modes,
        default_output_modes=spec.output_modes,
        skills=card_skills(spec.skills),
        capabilities={"streaming": spec.streaming, "extensions": map(asdict, spec.extensions)},
    )
    encoded = wk.AgentRegistration(
        id=spec.id,
        card=card,
        extended_skills=card_skills(spec.extended_skills),
        direct=spec.direct,
        uncancelable=not spec.cancelable,
        refuses_messages=spec.while_working == "refuse",
        crash_retries=spec.crash_retries,
        max_attempts=spec.max_attempts,
        turns=turns,
    )
    for limit in ("idle_limit", "time_limit"):
        if seconds := getattr(spec, limit):
            getattr(encoded, limit).FromNanoseconds(round(seconds * 1e9))
    for name, state in RETENTION_STATES.items():
        if state in spec.retention:
            encoded.retention[name].FromMilliseconds(spec.retention[state])
    return encoded
