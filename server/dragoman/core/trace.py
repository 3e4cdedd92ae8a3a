"""Trace contexts and delegation metadata of requests (W3C Trace Context, level 1).

A trace context is the text of a `traceparent`: version, trace, span, and whether the trace is recorded. It is stored
with the message, so that the process that runs the task later continues the same trace.
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
"""The current trace context; empty when there is none. Outbound calls carry it."""

_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)

_TRACEPARENT_LENGTH: Final = 55
_TRACE_FIELD: Final = frames.frame(1000, b"-" * _TRACEPARENT_LENGTH)[:-_TRACEPARENT_LENGTH]
"""The bytes before the text in an envelope: the key of a field that SendMessageRequest does not have, and which parsers
skip."""

_ENVELOPE_WITH_TRACE: Final = re.compile(
    re.escape(_TRACE_FIELD) + rb"(00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-0[01])\Z"
)
"""The end of an envelope with a trace. Matched strictly: without tracing, a caller may have put anything there."""


def format_traceparent(trace_id: str, span_id: str, *, recorded: bool) -> str:
    """The trace context of a span. The ids are in hexadecimal: 32 digits, and 16."""
    return f"00-{trace_id}-{span_id}-01" if recorded else f"00-{trace_id}-{span_id}-00"


def parse_traceparent(text: str) -> str:
    """Parses a `traceparent`; empty for an invalid one. Later versions and flags are reduced to level 1."""
    match = _TRACEPARENT.fullmatch(text)
    if match is None or (text.startswith("00-") and match[4]):
        return ""
    return format_traceparent(match[1], match[2], recorded=bool(int(match[3], 16) & 1))


def is_recorded(context: str) -> bool:
    return context.endswith("01")


def add_trace(envelope: bytes, context: str) -> bytes:
    """Appends our trace context to an envelope (a serialized SendMessageRequest)."""
    return envelope + _TRACE_FIELD + context.encode()


def trace_of(envelope: bytes) -> str:
    """The trace context of `add_trace` in an envelope; empty for none."""
    match = _ENVELOPE_WITH_TRACE.match(envelope, len(envelope) - len(_TRACE_FIELD) - _TRACEPARENT_LENGTH)
    return match[1].decode() if match else ""


def trace_id_of(context: str) -> str:
    """The trace id, for people and logs; empty for none."""
    return context[3:35]


DELEGATION_URI: Final = "urn:dragoman:delegation:v1"
"""The metadata key of a delegation, whose value is `{"agent": "desk", "task": "01a1fb2a-..."}`."""

CURRENT_DELEGATION: Final[ContextVar[Callable[[], Mapping[str, Mapping[str, str]]] | None]] = ContextVar(
    "dragoman-delegation", default=None
)
"""Returns the metadata for requests sent during a turn; None outside of turns."""

CURRENT_TURN: Final[ContextVar[tuple[str, str] | None]] = ContextVar("dragoman-turn", default=None)
"""Task id and agent of the turn that the current code belongs to, for log lines of the agent; None outside of turns."""


class ParentTask(NamedTuple):
    """The parent task of a delegated task, as its caller knows it."""

    agent: str
    task: str


def delegation(agent: str, task: str) -> dict[str, dict[str, str]]:
    """The metadata that names the parent task of a request."""
    return {DELEGATION_URI: {"agent": agent, "task": task}}


def add_delegation(request: pb.SendMessageRequest) -> None:
    """Adds the current turn's task to a request as its parent, if there is one."""
    current = CURRENT_DELEGATION.get()
    if current is not None and DELEGATION_URI not in request.metadata.fields:
        request.metadata.update({name: dict(value) for name, value in current().items()})


def parent_task_of(request: pb.SendMessageRequest) -> ParentTask | None:
    """The parent task in a request; None for none, and for metadata of another form."""
    if not request.HasField("metadata"):
        return None
    metadata = request.metadata.fields
    if DELEGATION_URI not in metadata:
        return None
    fields = metadata[DELEGATION_URI].struct_value.fields
    agent, task = (fields[name].string_value if name in fields else "" for name in ("agent", "task"))
    return ParentTask(agent, task) if agent and task else None
