"""Answers that readers of two dialects take: for calls that do not say which of them their caller speaks.

`tasks/get`, `tasks/cancel` and `tasks/resubscribe` look the same in 0.1, 0.2, 0.3, fasta2a 2.x and a2a-rust. The task
remembers the dialect it was made in, but its reader may be of another. Readers of these dialects skip keys that they
do not know, so a task made in one of the others is said in its own words with 0.3's beside them: `sessionId` and
`contextId`, parts with `type` and `kind`. Where the two use one key for different values, the dialect of the task is
right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from dragoman.wire import flat_json, parts, protojson, v01_json, v03_json
from dragoman.wire.protojson_out import Encode
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_V03: Final = protojson.compile(pb.Task, v03_json.JSON)


def _flat_with_kind(encode: Encode) -> Encode:
    """A flat part with the words of 0.3 beside, where they agree: data that is no object is only said flat."""
    tagged = parts.writing("kind")

    def write(part: Any) -> dict[str, Any]:
        flat, old = encode(part), tagged(part)
        return {"kind": old["kind"], **flat} if old.get("data") != flat.get("data") else {**old, **flat}

    return write


_FASTA2A: Final = protojson.compile(
    pb.Task,
    replace(v03_json.JSON, name="0.3 and fasta2a", writes={**v03_json.JSON.writes, "lf.a2a.v1.Part": _flat_with_kind}),
)
_FASTA2A_EVENT: Final = protojson.compile(pb.StreamResponse, flat_json.FASTA2A)
_RUST: Final = protojson.compile(pb.Task, flat_json.RUST)
_RUST_EVENT: Final = protojson.compile(pb.StreamResponse, flat_json.RUST)


def merged(own: Any, other: Any) -> Any:
    """Both values in one: objects key by key, arrays item by item; where they differ otherwise, `own`."""
    if type(own) is dict and type(other) is dict:
        return {**other, **{key: merged(value, other[key]) if key in other else value for key, value in own.items()}}
    if type(own) is list and type(other) is list and len(own) == len(other):
        return [merged(mine, theirs) for mine, theirs in zip(own, other, strict=True)]
    return own


def write_v01_task(task: pb.Task) -> dict[str, Any]:
    """A task made in 0.1."""
    value: dict[str, Any] = merged(v01_json.write_task(task), _V03.to_dict(task))
    return value


def write_fasta2a_task(task: pb.Task) -> dict[str, Any]:
    """A task made in fasta2a 2.x."""
    return _FASTA2A.to_dict(task)


def write_rust_task(task: pb.Task) -> dict[str, Any]:
    """A task made in a2a-rust 0.3."""
    value: dict[str, Any] = merged(_RUST.to_dict(task), _V03.to_dict(task))
    return value


def v01_stream() -> Callable[[pb.StreamResponse, bool], list[dict[str, Any]]]:
    """A writer of one stream on a task made in 0.1. The stream has no Task in it, which no dialect asks for here."""
    stream = v01_json.Stream()

    def write(event: pb.StreamResponse, ends: bool) -> list[dict[str, Any]]:
        every = v01_json.updates(event)
        last = len(every) - 1
        return [
            merged(stream.write(update, ends and index == last), v03_json.write_event(update, ends and index == last))
            for index, update in enumerate(every)
        ]

    return write


def write_fasta2a_event(event: pb.StreamResponse, ends: bool) -> dict[str, Any]:
    """One event of a stream on a task made in fasta2a 2.x, whose readers look inside of a wrapper."""
    return {**v03_json.write_event(event, ends), **_FASTA2A_EVENT.to_dict(event)}


def write_rust_event(event: pb.StreamResponse, ends: bool) -> dict[str, Any]:
    """One event of a stream on a task made in a2a-rust 0.3, whose readers look inside of a wrapper too."""
    return {**v03_json.write_event(event, ends), **_RUST_EVENT.to_dict(event)}
