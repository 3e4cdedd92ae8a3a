"""Which trace something belongs to, as callers say it and as it is handed on (W3C Trace Context, level 1).

A trace context is the text of a `traceparent`: version, trace, span, and whether the trace is recorded. It is kept with
the message that began something, so that whoever runs the task later, perhaps elsewhere, goes on with the same trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Final, NamedTuple

from dragoman.core.task import frames
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

TRACE_HEADER: Final = "traceparent"

CURRENT_TRACE: Final[ContextVar[str]] = ContextVar("dragoman-trace", default="")
"""The trace context that whatever runs now belongs to; empty where nothing is traced. Calls to others carry it."""

_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)

_TRACEPARENT_LENGTH: Final = 55
_TRACE_FIELD: Final = frames.frame(1000, b"-" * _TRACEPARENT_LENGTH)[:-_TRACEPARENT_LENGTH]
"""What stands before the text in an envelope: the key of a field that SendMessageRequest does not have, and never
will, which parsers pass over."""

_ENVELOPE_WITH_TRACE: Final = re.compile(
    re.escape(_TRACE_FIELD) + rb"(00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-0[01])\Z"
)
"""The end of an envelope that was stamped. A caller of a server that traces nothing may have put anything there."""


def format_traceparent(trace_id: str, span_id: str, *, recorded: bool) -> str:
    """The trace context of a span. The ids are in hexadecimal: 32 digits, and 16."""
    return f"00-{trace_id}-{span_id}-01" if recorded else f"00-{trace_id}-{span_id}-00"


def parse_traceparent(text: str) -> str:
    """The trace context that a `traceparent` says; empty for one that is none. Of versions to come, and of flags, what
    this version knows."""
    if not text:
        return ""
    found = _TRACEPARENT.fullmatch(text)
    if found is None or (text.startswith("00-") and found[4]):
        return ""
    return format_traceparent(found[1], found[2], recorded=bool(int(found[3], 16) & 1))


def is_recorded(context: str) -> bool:
    """Whether somebody records the trace of a trace context."""
    return context.endswith("01")


def add_trace(envelope: bytes, context: str) -> bytes:
    """An envelope (a serialized SendMessageRequest) with a trace context of ours."""
    return envelope + _TRACE_FIELD + context.encode()


def trace_of(envelope: bytes) -> str:
    """The trace context that an envelope was stamped with, which is ours; empty for none."""
    found = _ENVELOPE_WITH_TRACE.match(envelope, len(envelope) - len(_TRACE_FIELD) - _TRACEPARENT_LENGTH)
    return found[1].decode() if found else ""


def trace_id_of(context: str) -> str:
    """The id of the trace, for people and logs; empty for none."""
    return context[3:35]


DELEGATION_URI: Final = "urn:dragoman:delegation:v1"
"""The key in the metadata: `{"agent": "desk", "task": "01a1fb2a-..."}`."""

CURRENT_DELEGATION: Final[ContextVar[Callable[[], Mapping[str, Mapping[str, str]]] | None]] = ContextVar(
    "dragoman-delegation", default=None
)
"""Gives the metadata of whatever is sent from here; None where no agent is at work."""


class ParentTask(NamedTuple):
    """The task that another one works for, as its caller knows it."""

    agent: str
    task: str


def add_delegation(request: pb.SendMessageRequest) -> None:
    """Says in a request in whose turn it is made, if in any."""
    current = CURRENT_DELEGATION.get()
    if current is not None and DELEGATION_URI not in request.metadata.fields:
        request.metadata.update({name: dict(value) for name, value in current().items()})


def parent_task_of(request: pb.SendMessageRequest) -> ParentTask | None:
    """What a request says of that; None for nothing, and for what has another form."""
    if not request.HasField("metadata"):
        return None
    fields = request.metadata.fields
    if DELEGATION_URI not in fields:
        return None
    said = fields[DELEGATION_URI].struct_value.fields
    agent, task = (said[name].string_value if name in said else "" for name in ("agent", "task"))
    return ParentTask(agent, task) if agent and task else None
