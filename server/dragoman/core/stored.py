"""What rows of framed bytes say: the same for every store that keeps a task as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from dragoman.core import frames
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def artifacts_of(rows: Iterable[tuple[str, bytes, int, bytes]]) -> Iterator[bytes]:
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


def state_of(payload: bytes) -> int:
    """The state that a serialized StreamResponse brings; 0 for an artifact."""
    if payload[:1] == b"\x22":  # artifact_update: no need to parse what may be large
        return 0
    response = pb.StreamResponse.FromString(payload)
    return response.task.status.state if response.HasField("task") else response.status_update.status.state


def unframed(row: bytes) -> bytes:
    """The message in a row of the history."""
    return next(frames.undelimited(row[1:]))
