"""Which trace something belongs to, as callers say it and as it is handed on (W3C Trace Context, level 1).

A trace context is the text of a `traceparent`: version, trace, span, and whether the trace is recorded. It is kept with
the message that began something, so that whoever runs the task later, perhaps elsewhere, goes on with the same trace.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Final, NamedTuple

from dragoman.core import frames

HEADER: Final = "traceparent"

CURRENT: Final[ContextVar[str]] = ContextVar("dragoman-trace", default="")
"""The trace context that whatever runs now belongs to; empty where nothing is traced. Calls to others carry it."""

_FORM: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

_LENGTH: Final = 55
_STAMP: Final = frames.frame(1000, b"-" * _LENGTH)[:-_LENGTH]
"""What stands before the text in an envelope: the key of a field that SendMessageRequest does not have, and never
will, which parsers pass over."""


class Context(NamedTuple):
    """A trace, the span in it that is the parent of what follows, and whether it is recorded."""

    trace: bytes
    span: bytes
    recorded: bool

    def __str__(self) -> str:
        return f"00-{self.trace.hex()}-{self.span.hex()}-{'01' if self.recorded else '00'}"


def parse(text: str) -> Context | None:
    """What a `traceparent` says; None for one that is none. Versions to come are read as far as this one goes."""
    found = _FORM.fullmatch(text)
    if found is None or (text.startswith("00-") and found[4]):
        return None
    return Context(bytes.fromhex(found[1]), bytes.fromhex(found[2]), bool(int(found[3], 16) & 1))


def stamped(envelope: bytes, context: str) -> bytes:
    """An envelope (a serialized SendMessageRequest) with a trace context of ours."""
    return envelope + _STAMP + context.encode()


def of(envelope: bytes) -> str:
    """The trace context that an envelope was stamped with, which is ours; empty for none."""
    begin = len(envelope) - _LENGTH
    if begin < len(_STAMP) or envelope[begin - len(_STAMP) : begin] != _STAMP:
        return ""
    return envelope[begin:].decode(errors="replace")


def is_declined(context: str) -> bool:
    """Whether a trace context of ours says that nobody records its trace."""
    return context.endswith("-00")


def id_of(context: str) -> str:
    """The id of the trace, for people and logs; empty for none."""
    return context[3:35]
