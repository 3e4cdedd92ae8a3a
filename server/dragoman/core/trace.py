"""Which trace something belongs to, as callers say it and as it is handed on (W3C Trace Context, level 1).

A trace context is the text of a `traceparent`: version, trace, span, and whether the trace is recorded. It is kept with
the message that began something, so that whoever runs the task later, perhaps elsewhere, goes on with the same trace.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Final

from dragoman.core import frames

HEADER: Final = "traceparent"

CURRENT: Final[ContextVar[str]] = ContextVar("dragoman-trace", default="")
"""The trace context that whatever runs now belongs to; empty where nothing is traced. Calls to others carry it."""

_FORM: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

_LENGTH: Final = 55
_STAMP: Final = frames.frame(1000, b"-" * _LENGTH)[:-_LENGTH]
"""What stands before the text in an envelope: the key of a field that SendMessageRequest does not have, and never
will, which parsers pass over."""

_STAMPED: Final = re.compile(re.escape(_STAMP) + rb"(00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-0[01])\Z")
"""The end of an envelope that was stamped. A caller of a server that traces nothing may have put anything there."""


def written(trace: str, span: str, *, recorded: bool) -> str:
    """The trace context of a span. The ids are in hexadecimal: 32 digits, and 16."""
    return f"00-{trace}-{span}-01" if recorded else f"00-{trace}-{span}-00"


def read(text: str) -> str:
    """The trace context that a `traceparent` says; empty for one that is none. Of versions to come, and of flags, what
    this version knows."""
    if not text:
        return ""
    found = _FORM.fullmatch(text)
    if found is None or (text.startswith("00-") and found[4]):
        return ""
    return written(found[1], found[2], recorded=bool(int(found[3], 16) & 1))


def is_recorded(context: str) -> bool:
    """Whether somebody records the trace of a trace context."""
    return context.endswith("01")


def stamped(envelope: bytes, context: str) -> bytes:
    """An envelope (a serialized SendMessageRequest) with a trace context of ours."""
    return envelope + _STAMP + context.encode()


def of(envelope: bytes) -> str:
    """The trace context that an envelope was stamped with, which is ours; empty for none."""
    found = _STAMPED.match(envelope, len(envelope) - len(_STAMP) - _LENGTH)
    return found[1].decode() if found else ""


def id_of(context: str) -> str:
    """The id of the trace, for people and logs; empty for none."""
    return context[3:35]
