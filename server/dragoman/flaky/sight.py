"""Where in a connection a request and its answer begin, as far as that can be seen from outside.

HTTP/1 and whatever else is not known: with the first byte that the client says, and the first that comes back. HTTP/2
without encryption (gRPC): with the first HEADERS of either side, since both greet each other before (RFC 9113
§3.4, §4.1). TLS: a guess by the types of its records (RFC 8446 §5.1); what is in them is nobody's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS: Final = 1
"""Of HTTP/2's frames."""
_CHANGE, _HANDSHAKE, _DATA = 20, 22, 23
"""Of TLS's records."""


class Sight:
    """One connection, as the bytes of its two sides go by."""

    def __init__(self) -> None:
        self.asked = False
        """Whether a request has begun."""
        self.answered = False
        """Whether its answer has."""
        self._early = b""
        self._up: _Pieces | None = None
        self._down: _Pieces | None = None
        self._known = False
        self._tls = False
        self._changed = False
        self._sealed = 0

    def asks(self, data: bytes) -> None:
        """Takes what the client says."""
        if self.asked or not data:
            return
        if not self._known:
            self._know(data)
        if self._up is None:
            self.asked = True
            return
        for kind, _ in self._up.of(data):
            self.asked = self.asked or (self._seals(kind) if self._tls else kind == _HEADERS)

    def answers(self, data: bytes) -> int | None:
        """Takes what the server says; gives where in it the answer begins, 0 when it had begun before, or None."""
        if self.answered:
            return 0
        if not self._known:  # a server that speaks first
            self._early += data
            return None
        before = self.asked  # what is walked through below may be from before
        begins = None
        if self._down is None:
            begins = 0 if before else None
        else:
            wanted = _DATA if self._tls else _HEADERS
            for kind, at in self._down.of(data):
                if before and kind == wanted and begins is None:
                    begins = at
        self.answered = begins is not None
        return begins

    def _know(self, first: bytes) -> None:
        self._known = True
        if first[0] == _HANDSHAKE:
            self._tls = True
            self._up, self._down = _Pieces(5, _record), _Pieces(5, _record)
        elif first.startswith(_GREETING[: len(first)]):
            self._up, self._down = _Pieces(9, _frame, skip=len(_GREETING)), _Pieces(9, _frame)
        if self._down is not None:
            for _ in self._down.of(self._early):
                pass
        self._early = b""

    def _seals(self, kind: int) -> bool:
        """Whether a record of the client is past its handshake. TLS 1.2 ends that with a sealed handshake record;
        in 1.3 the end of it looks like data, and the next one is the request."""
        self._changed = self._changed or kind == _CHANGE
        self._sealed += kind == _DATA or (kind == _HANDSHAKE and self._changed)
        return self._sealed > 1


class _Pieces:
    """A side that is made of pieces with a header each, which holds the kind and the length of what follows."""

    def __init__(self, header: int, read: Callable[[bytes], tuple[int, int]], *, skip: int = 0) -> None:
        self._header = header
        self._read = read
        self._head = b""
        self._left = skip

    def of(self, data: bytes) -> Iterator[tuple[int, int]]:
        """The kind of each piece whose header ends in `data`, and where in `data` it begins."""
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            begins = max(at - len(self._head), 0)
            taken = data[at : at + self._header - len(self._head)]
            self._head += taken
            at += len(taken)
            if len(self._head) == self._header:
                kind, self._left = self._read(self._head)
                self._head = b""
                yield kind, begins


def _frame(head: bytes) -> tuple[int, int]:
    return head[3], int.from_bytes(head[:3], "big")


def _record(head: bytes) -> tuple[int, int]:
    return head[0], int.from_bytes(head[3:5], "big")
