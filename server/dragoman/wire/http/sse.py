"""Server-sent events: framing and an incremental parser (WHATWG HTML §9.2, "Server-sent events").

A frame is one event. Its payload is one line of JSON and never empty: some clients treat every `data:` line as an
event, and fail on an empty one.
"""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.core.errors import ParseError, PayloadTooLarge

KEEP_ALIVE = b": keep-alive\n\n"  # a comment, which clients skip and which shows proxies that the connection is alive

MAX_EVENT_BYTES = 32 * 1024 * 1024  # default for the largest event that an `SseParser` accepts


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One received event. `id` is the last id seen on the stream, "" before the first."""

    data: bytes
    event: str = "message"
    id: str = ""


def frame(data: bytes, *, id: str | None = None, event: str | None = None) -> bytes:
    """Encodes one event.

    `data` is the payload: one line, not empty. Raises ValueError for text that would break the framing.
    """
    if not data or b"\n" in data or b"\r" in data:
        raise ValueError("the payload of an event is one line and not empty")
    head = b""
    if id is not None:
        head = b"id: " + _line(id, "id") + b"\n"
    if event is not None:
        head += b"event: " + _line(event, "event") + b"\n"
    # The space after the colon is needed: some clients look for the six characters `data: `.
    return b"%bdata: %b\n\n" % (head, data)


def comment(text: str) -> bytes:
    """Encodes a comment, which clients skip. Raises ValueError if `text` contains a line break."""
    return b": " + _line(text, "comment") + b"\n\n"


def _line(text: str, field: str) -> bytes:
    if "\n" in text or "\r" in text or "\0" in text:
        raise ValueError(f"the {field} of an event is one line without NUL")
    return text.encode()


class SseParser:
    """Incremental parser: turns chunks of any size into events.

    An incomplete event at the end of the stream is dropped, as the standard requires.
    """

    __slots__ = ("_after_cr", "_data", "_event", "_first", "_held", "_id", "_limit", "_pieces")

    def __init__(self, *, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []  # the incomplete line, in chunks as received
        self._held = 0  # bytes in _pieces and _data
        self._data: list[bytes] = []
        self._event = ""
        self._id = ""
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Returns the events that `chunk` completes, in order.

        Raises PayloadTooLarge for an event over the limit, and ParseError for an id or event name that is not UTF-8
        (payloads are not decoded).
        """
        if self._after_cr and chunk:
            # CR LF is one line end, even across a chunk boundary.
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        self._after_cr = self._after_cr or chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = chunk.split(b"\n")
        events: list[SseEvent] = []
        for line in lines:
            if self._pieces:
                self._pieces.append(line)
                self._held -= sum(map(len, self._pieces[:-1]))
                line = b"".join(self._pieces)
                self._pieces.clear()
            self._take(line, events)
        if rest:
            self._pieces.append(rest)
            self._hold(len(rest))
        return events

    def _take(self, line: bytes, events: list[SseEvent]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._data:
                events.append(SseEvent(b"\n".join(self._data), self._event or "message", self._id))
                self._held -= sum(map(len, self._data))
                self._data.clear()
            self._event = ""
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
                self._hold(len(value))
            case b"event":
                self._event = _text(value)
            case b"id" if b"\0" not in value:
                self._id = _text(value)
            case _:  # comments (an empty name), `retry`, and fields of later standards
                pass

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > self._limit:
            raise PayloadTooLarge(f"an event of the stream is larger than {self._limit} bytes")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ParseError("the stream holds an id or event name that is not UTF-8") from None
