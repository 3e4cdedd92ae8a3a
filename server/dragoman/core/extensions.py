"""The extensions of A2A that the server itself offers, for every agent (A2A 1.0 §4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dragoman.core import frames
from dragoman.core.card import Extension
from dragoman.core.log import Event
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

RESUME: Final = Extension(
    uri="urn:dragoman:resume:v1",
    description="Events carry cursors; a subscription after a cursor continues there, without a Task first.",
)
IDEMPOTENCY: Final = Extension(
    uri="urn:dragoman:idempotency:v1",
    description="A send with the key of an earlier one is answered as that one was, and runs nothing.",
)
SERVER: Final = (RESUME, IDEMPOTENCY)

_METADATA: Final = {1: 6, 3: 4, 4: 6}
"""The field `metadata` of each member of StreamResponse that has one."""


def stamped(event: Event) -> Event:
    """The event with its cursor in its metadata, made once and shared.

    Nothing is parsed: a serialized message followed by another of its kind is both merged (Protocol Buffers encoding,
    "Last One Wins"), so the metadata are put behind.
    """
    made = event.forms.get(stamped)
    if made is None:
        member = event.data[0] >> 3
        data = event.data
        if member in _METADATA and event.cursor:
            data += overlay(member, {"cursor": event.cursor, "sequence": event.sequence})
        made = event.forms[stamped] = Event(event.sequence, data, event.state, event.ends, event.cursor)
    assert isinstance(made, Event)
    return made


def overlay(member: int, values: Mapping[str, str | float | bool]) -> bytes:
    """A serialized StreamResponse with nothing but metadata of RESUME in one member, to be put behind another."""
    holder = pb.Task()
    holder.metadata.update({RESUME.uri: dict(values)})
    return frames.frame(member, frames.frame(_METADATA[member], holder.metadata.SerializeToString()))
