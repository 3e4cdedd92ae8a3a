"""A Task is the fold of its events.

`fold` is the definition that stores are checked against, and what a client does with a stream (A2A 1.0 §7.2:
`append` adds parts to the artifact of that id, otherwise the artifact is put in place).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, Self

from dragoman.core.task import frames
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def fold(task: pb.Task, event: pb.StreamResponse) -> None:
    """Applies one event of a stream to `task`, in place. A Message is no part of a task and changes nothing."""
    match event.WhichOneof("payload"):
        case "task":
            task.CopyFrom(event.task)
        case "status_update":
            if task.status.HasField("message"):
                task.history.append(task.status.message)
            task.status.CopyFrom(event.status_update.status)
        case "artifact_update":
            _fold_artifact(task, event.artifact_update)


def _fold_artifact(task: pb.Task, update: pb.TaskArtifactUpdateEvent) -> None:
    for known in task.artifacts:
        if known.artifact_id == update.artifact.artifact_id:
            if update.append:
                known.parts.extend(update.artifact.parts)
                if update.artifact.HasField("metadata"):
                    known.metadata.MergeFrom(update.artifact.metadata)
                known.extensions.extend(update.artifact.extensions)
            else:
                known.CopyFrom(update.artifact)
            return
    task.artifacts.append(update.artifact)


def join_artifact_rows(rows: Iterable[tuple[str, bytes, int, bytes]]) -> Iterator[bytes]:
    """The framed artifacts of a Task from their chunks: artifact id, its head, whether it is text, and the data.

    Neighbouring texts are shown as one text part.
    """
    for _, chunks in groupby(rows, key=lambda row: row[0]):
        body: list[bytes] = []
        for text, run in groupby(chunks, key=lambda row: row[2]):
            held = list(run)
            body = body or [held[0][1]]
            data = b"".join([chunk[3] for chunk in held])
            body.append(frames.frame(4, frames.frame(1, data)) if text else data)
        yield frames.frame(4, b"".join(body))


def event_state(payload: bytes) -> int:
    """The state that a serialized StreamResponse brings; 0 for an artifact."""
    if payload[:1] == b"\x22":  # artifact_update: no need to parse what may be large
        return 0
    response = pb.StreamResponse.FromString(payload)
    return response.task.status.state if response.HasField("task") else response.status_update.status.state


def unframe_message(row: bytes) -> bytes:
    """The message in a row of the history."""
    return next(frames.undelimited(row[1:]))


MAX_CACHED_ENCODINGS: Final = 3
"""Forms of one answer that are kept: readers of one task rarely speak more dialects than that."""


class CachedResponse(bytes):
    """A serialized answer as a store keeps it for the next who asks. Its forms live and end with it."""

    encodings: dict[Hashable, bytes]
    dialect: str = ""
    """The dialect in which its task was made."""


def cached_response(data: bytes, dialect: str = "") -> CachedResponse:
    """These bytes, to be given to several."""
    made = CachedResponse(data)
    made.encodings, made.dialect = {}, dialect
    return made


def cached_encoding(response: bytes, key: Hashable, encode: Callable[[], bytes]) -> bytes:
    """A form of an answer: the one that was made before, if the answer is shared."""
    if not isinstance(response, CachedResponse):
        return encode()
    found = response.encodings.get(key)
    if found is None:
        found = encode()
        if len(response.encodings) < MAX_CACHED_ENCODINGS:
            response.encodings[key] = found
    return found


@dataclass(slots=True)
class ArtifactDigest:
    """How much of one artifact was taken: whole units, and how much of a last text that may go on."""

    header_digest: bytes
    """A digest of what it is besides its parts."""
    unit_count: int = 0
    units_digest: Any = field(default_factory=hashlib.blake2b)
    """Of the units before the open text."""
    open_text_length: int = -1
    """Length of the open text; -1 when the last unit is no text."""
    open_text_digest: Any = field(default_factory=hashlib.blake2b)
    """Of the open text."""
    may_grow: bool = False
    """It is one text, told as one that may go on."""

    @classmethod
    def of(cls, artifact: pb.Artifact) -> Self:
        """Nothing yet of this artifact, whose parts do not count."""
        return cls(_header_digest(artifact))

    def add(self, parts: Sequence[pb.Part]) -> None:
        """More parts were taken."""
        for part in parts:
            if is_plain_text(part):
                self.open_text_length = max(self.open_text_length, 0) + len(part.text)
                self.open_text_digest.update(_utf8(part.text))
                continue
            self._close_text()
            self.units_digest.update(_length_prefixed(part.SerializeToString(deterministic=True)))
            self.unit_count += 1

    def _close_text(self) -> None:
        if self.open_text_length >= 0:
            self.units_digest.update(_length_prefixed(self.open_text_digest.digest()))
            self.unit_count += 1
            self.open_text_length, self.open_text_digest = -1, hashlib.blake2b()

    def remaining_parts(self, artifact: pb.Artifact) -> list[pb.Part] | None:
        """The parts that come after what was taken; None when the artifact does not begin with that."""
        if _header_digest(artifact) != self.header_digest:
            return None
        units = join_texts(artifact.parts)
        if len(units) < self.unit_count + (self.open_text_length >= 0):
            return None
        digest = hashlib.blake2b()
        for unit in units[: self.unit_count]:
            if is_plain_text(unit):
                digest.update(_length_prefixed(hashlib.blake2b(_utf8(unit.text)).digest()))
            else:
                digest.update(_length_prefixed(unit.SerializeToString(deterministic=True)))
        if digest.digest() != self.units_digest.digest():
            return None
        after = units[self.unit_count :]
        if self.open_text_length < 0:
            return after
        if not is_plain_text(after[0]):
            return None
        text = after[0].text
        begun = text[: self.open_text_length]
        if (
            len(begun) < self.open_text_length
            or hashlib.blake2b(_utf8(begun)).digest() != self.open_text_digest.digest()
        ):
            return None
        left = text[self.open_text_length :]
        return [*([pb.Part(text=left)] if left else []), *after[1:]]


def is_plain_text(part: pb.Part) -> bool:
    """Whether a part is a text and nothing else."""
    return part.WhichOneof("content") == "text" and not (
        part.media_type or part.filename or (part.HasField("metadata") and part.metadata.fields)
    )


def join_texts(parts: Sequence[pb.Part]) -> list[pb.Part]:
    """The parts, each run of plain texts as one."""
    units: list[pb.Part] = []
    run: list[str] = []
    for part in parts:
        if is_plain_text(part):
            run.append(part.text)
            continue
        if run:
            units.append(pb.Part(text="".join(run)))
            run = []
        units.append(part)
    if run:
        units.append(pb.Part(text="".join(run)))
    return units


def _header_digest(artifact: pb.Artifact) -> bytes:
    rest = pb.Artifact(
        name=artifact.name, description=artifact.description, extensions=artifact.extensions
    ).SerializeToString()
    rest += artifact.metadata.SerializeToString(deterministic=True)
    return hashlib.blake2b(rest).digest()


def _length_prefixed(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
