"""Converts upstream tasks and events to changes of our log, each written once.

Streams contain additions; a Task read afterwards repeats everything. The count and digest of the written parts of each
artifact are kept, not their content: a Task then adds only the new parts, or replaces the artifact if it has changed
(`dragoman.core.task.projection`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dragoman.agents.values import (
    NewId,
    artifact_change,
    check_json_value,
    checked_metadata,
    checked_part,
    encode_artifact_head,
)
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.task.log import ArtifactChange
from dragoman.core.task.projection import ArtifactDigest, is_plain_text
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_TASK_ARTIFACTS = 10_000  # artifacts of one task; their ids stay in memory during the turn

MAX_CHUNK_CHARS = 64 * 1024
"""Characters of one text chunk, at most 256 KiB: a longer text of a Task is written as several."""


class ArtifactSync:
    """The written artifacts of one upstream task. Raises InvalidAgentResponse for invalid ones."""

    def __init__(self, new_id: NewId) -> None:
        self._new_id = new_id
        self.contents: dict[str, ArtifactDigest] = {}  # the written artifacts by id

    def snapshot(self, task: pb.Task) -> list[ArtifactChange]:
        """The changes in a Task that are not written yet."""
        return [change for artifact in task.artifacts for change in self._compare(artifact)]

    def update(self, update: pb.TaskArtifactUpdateEvent) -> ArtifactChange | None:
        """The change of a stream event; None when there is none."""
        artifact = self._check_artifact(update.artifact)
        if not artifact.parts:  # some servers end an artifact with an empty last chunk
            if not (update.last_chunk and artifact.artifact_id in self.contents):
                return None
            return ArtifactChange(
                artifact.artifact_id, encode_artifact_head(artifact.artifact_id), append=True, last_chunk=True
            )
        known = self.contents.get(artifact.artifact_id)
        append = update.append and known is not None
        content = known if append and known is not None else ArtifactDigest.of(artifact)
        content.add(artifact.parts)
        self.contents[artifact.artifact_id] = content
        change = artifact_change(artifact, append=append, last=update.last_chunk)
        if not update.HasField("metadata"):
            return change
        return replace(change, metadata=checked_metadata("metadata of an artifact update", update.metadata))

    def _compare(self, received: pb.Artifact) -> Sequence[ArtifactChange]:
        artifact = self._check_artifact(received)
        if not artifact.parts:
            return ()
        known = self.contents.get(artifact.artifact_id)
        rest = known.remaining_parts(artifact) if known is not None else None
        if known is None or rest is None:
            content = self.contents[artifact.artifact_id] = ArtifactDigest.of(artifact)
            content.add(artifact.parts)
            if len(artifact.parts) == 1 and is_plain_text(artifact.parts[0]):
                # A single text may grow: written as a text chunk, it stays one text part when it does.
                content.may_grow = True
                first, *more = _slices(artifact.parts[0].text)
                change = replace(artifact_change(artifact), parts=b"", text=first)
                return [change, *_text_chunks(artifact.artifact_id, more)]
            return [artifact_change(artifact)]
        if not rest:
            return ()
        known.add(rest)
        id = artifact.artifact_id
        if known.may_grow and len(rest) == 1 and is_plain_text(rest[0]):
            return _text_chunks(id, _slices(rest[0].text))
        known.may_grow = False
        return [artifact_change(pb.Artifact(artifact_id=id, parts=rest), append=True)]

    def _check_artifact(self, artifact: pb.Artifact) -> pb.Artifact:
        """The artifact, with a new id if it has none. Raises InvalidAgentResponse."""
        for part in artifact.parts:
            checked_part(part)
        check_json_value("metadata of an Artifact", artifact.metadata)
        if not artifact.artifact_id:
            artifact.artifact_id = self._new_id()
        if artifact.artifact_id not in self.contents and len(self.contents) >= MAX_TASK_ARTIFACTS:
            raise InvalidAgentResponse(f"the task has more than {MAX_TASK_ARTIFACTS} artifacts")
        return artifact


def _slices(text: str) -> list[str]:
    """A text in pieces of up to MAX_CHUNK_CHARS; one empty piece for an empty text."""
    return [text[start : start + MAX_CHUNK_CHARS] for start in range(0, len(text), MAX_CHUNK_CHARS)] or [""]


def _text_chunks(artifact_id: str, texts: Iterable[str]) -> list[ArtifactChange]:
    head = encode_artifact_head(artifact_id)
    return [ArtifactChange(artifact_id, head, text=text, append=True) for text in texts]


def status_digest(status: pb.TaskStatus) -> str:
    """Identifies a status by all of its fields, also the timestamp."""
    return hashlib.blake2b(status.SerializeToString(deterministic=True), digest_size=12).hexdigest()


def content_digest(status: pb.TaskStatus) -> tuple[int, bytes]:
    """Identifies a status by its state and message."""
    message = status.message.SerializeToString(deterministic=True) if status.HasField("message") else b""
    return status.state, hashlib.blake2b(message, digest_size=12).digest()
