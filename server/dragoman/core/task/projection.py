"""Folds events into a Task, and compares artifacts with a digest of what was received.

`fold` is the definition that stores are tested against, and what a client does with a stream (A2A 1.0 §7.2: `append`
adds parts to the artifact of that id, otherwise the artifact is replaced).
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
    """Applies one event of a stream to `task`, in place. A Message changes nothing."""
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


MAX_SUMMARY: Final = 200
MAX_STATUS_TEXT: Final = 500
"""Characters that the store keeps beside a task of its first message, and of an error or question."""


def summary_of(message: pb.Message, limit: int = MAX_SUMMARY) -> str:
    """The beginning of a message in one line: its first text, or else what its first part is."""
    for part in message.parts:
        if part.text:
            # Blanks are joined only within what can be shown: a text may be large.
            return " ".join(part.text[: 4 * limit].split())[:limit]
    for part in message.parts:
        if part.HasField("data"):
            return "(data)"
        return f"({part.filename or part.media_type or 'file'})"[:limit]
    return ""


def merge_metadata(metadata: bytes, update: bytes) -> bytes:
    """Merges two serialized Structs by key: the values of `update` replace those of `metadata`."""
    if not metadata or not update:
        return metadata or update
    merged = pb.Task()
    merged.metadata.MergeFromString(metadata)
    merged.metadata.MergeFromString(update)
    return merged.metadata.SerializeToString(deterministic=True)


def join_artifact_rows(rows: Iterable[tuple[str, bytes, int, bytes]]) -> Iterator[bytes]:
    """The framed artifacts of a Task from their chunks: artifact id, head, whether the chunk is text, and the data.

    Adjacent text chunks become one text part.
    """
    for _, chunks in groupby(rows, key=lambda row: row[0]):
        body: list[bytes] = []
        for text, run in groupby(chunks, key=lambda row: row[2]):
            same_kind = list(run)
            body = body or [same_kind[0][1]]
            data = b"".join([chunk[3] for chunk in same_kind])
            body.append(frames.frame(4, frames.frame(1, data)) if text else data)
        yield frames.frame(4, b"".join(body))


def event_state(payload: bytes) -> int:
    """The task state in a serialized StreamResponse; 0 for an artifact."""
    if payload[:1] == b"\x22":  # artifact_update, which may be large: not parsed
        return 0
    response = pb.StreamResponse.FromString(payload)
    return response.task.status.state if response.HasField("task") else response.status_update.status.state


def unframe_message(row: bytes) -> bytes:
    """The serialized message in a history row."""
    return next(frames.undelimited(row[1:]))


MAX_CACHED_ENCODINGS: Final = 3
"""Encodings cached for one response: the readers of a task rarely use more dialects."""


class CachedResponse(bytes):
    """A serialized response in a store's read cache, with its encodings."""

    encodings: dict[Hashable, bytes]
    dialect: str = ""  # the dialect of the request that created its task


def cached_response(data: bytes, dialect: str = "") -> CachedResponse:
    """A response that several readers may share."""
    response = CachedResponse(data)
    response.encodings, response.dialect = {}, dialect
    return response


def cached_encoding(response: bytes, key: Hashable, encode: Callable[[], bytes]) -> bytes:
    """An encoding of a response; taken from the cache, if the response has one."""
    if not isinstance(response, CachedResponse):
        return encode()
    encoding = response.encodings.get(key)
    if encoding is None:
        encoding = encode()
        if len(response.encodings) < MAX_CACHED_ENCODINGS:
            response.encodings[key] = encoding
    return encoding


@dataclass(slots=True)
class ArtifactDigest:
    """Digest of the part of an artifact that was received: complete units, and a last text that may grow.

    A unit is one part, or a run of adjacent plain texts.
    """

    header_digest: bytes  # digest of all fields but the parts
    unit_count: int = 0
    units_digest: Any = field(default_factory=hashlib.blake2b)  # digest of the units before the open text
    open_text_length: int = -1  # characters of the open text; -1 when the last unit is not text
    open_text_digest: Any = field(default_factory=hashlib.blake2b)  # digest of the open text
    may_grow: bool = False  # whether the artifact is one text that was sent as one that may grow

    @classmethod
    def of(cls, artifact: pb.Artifact) -> Self:
        """The digest of an artifact of which no part was received."""
        return cls(_header_digest(artifact))

    def add(self, parts: Sequence[pb.Part]) -> None:
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
        """The parts after those received; None when the artifact does not begin with them."""
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
        received = text[: self.open_text_length]
        if (
            len(received) < self.open_text_length
            or hashlib.blake2b(_utf8(received)).digest() != self.open_text_digest.digest()
        ):
            return None
        rest = text[self.open_text_length :]
        return [*([pb.Part(text=rest)] if rest else []), *after[1:]]


def is_plain_text(part: pb.Part) -> bool:
    """Whether a part is text without media type, file name and metadata."""
    return part.WhichOneof("content") == "text" and not (
        part.media_type or part.filename or (part.HasField("metadata") and part.metadata.fields)
    )


def join_texts(parts: Sequence[pb.Part]) -> list[pb.Part]:
    units: list[pb.Part] = []
    for is_text, run in groupby(parts, is_plain_text):
        same_kind = list(run)
        units += [pb.Part(text="".join(part.text for part in same_kind))] if is_text else same_kind
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
