"""Where in a connection a request and its answer begin, as far as that can be seen from outside.

HTTP/1 and whatever else is not known: with the first byte that the client says, and the first that comes back. HTTP/2
without encryption (gRPC): with the first HEADERS of either side, since both greet each other before (RFC 9113
§3.4, §4.1). TLS: a guess by the types of its records (RFC 8446 §5.1); what is in them is nobody's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

_HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HTTP2_HEADERS: Final = 1
"""Of HTTP/2's frames."""
_TLS_CHANGE_CIPHER_SPEC, _TLS_HANDSHAKE, _TLS_APPLICATION_DATA = 20, 22, 23
"""Of TLS's records."""


class ExchangeDetector:
    """One connection, as the bytes of its two sides go by."""

    def __init__(self) -> None:
        self.request_started = False
        """Whether a request has begun."""
        self.response_started = False
        """Whether its answer has."""
        self._early_server_bytes = b""
        self._client_frames: _FrameScanner | None = None
        self._server_frames: _FrameScanner | None = None
        self._protocol_known = False
        self._tls = False
        self._cipher_changed = False
        self._encrypted_records = 0

    def observe_client(self, data: bytes) -> None:
        """Takes what the client says."""
        if self.request_started or not data:
            return
        if not self._protocol_known:
            self._detect_protocol(data)
        if self._client_frames is None:
            self.request_started = True
            return
        for kind, _ in self._client_frames.scan(data):
            self.request_started = self.request_started or (
                self._is_past_handshake(kind) if self._tls else kind == _HTTP2_HEADERS
            )

    def observe_server(self, data: bytes) -> int | None:
        """Takes what the server says; gives where in it the answer begins, 0 when it had begun before, or None."""
        if self.response_started:
            return 0
        if not self._protocol_known:  # a server that speaks first
            self._early_server_bytes += data
            return None
        before = self.request_started  # what is walked through below may be from before
        begins = None
        if self._server_frames is None:
            begins = 0 if before else None
        else:
            wanted = _TLS_APPLICATION_DATA if self._tls else _HTTP2_HEADERS
            for kind, at in self._server_frames.scan(data):
                if before and kind == wanted and begins is None:
                    begins = at
        self.response_started = begins is not None
        return begins

    def _detect_protocol(self, first: bytes) -> None:
        self._protocol_known = True
        if first[0] == _TLS_HANDSHAKE:
            self._tls = True
            self._client_frames, self._server_frames = _FrameScanner(5, _tls_record), _FrameScanner(5, _tls_record)
        elif first.startswith(_HTTP2_PREFACE[: len(first)]):
            self._client_frames, self._server_frames = (
                _FrameScanner(9, _http2_frame, skip=len(_HTTP2_PREFACE)),
                _FrameScanner(9, _http2_frame),
            )
        if self._server_frames is not None:
            for _ in self._server_frames.scan(self._early_server_bytes):
                pass
        self._early_server_bytes = b""

    def _is_past_handshake(self, kind: int) -> bool:
        """Whether a record of the client is past its handshake. TLS 1.2 ends that with a sealed handshake record;
        in 1.3 the end of it looks like data, and the next one is the request."""
        self._cipher_changed = self._cipher_changed or kind == _TLS_CHANGE_CIPHER_SPEC
        self._encrypted_records += kind == _TLS_APPLICATION_DATA or (kind == _TLS_HANDSHAKE and self._cipher_changed)
        return self._encrypted_records > 1


class _FrameScanner:
    """A side that is made of pieces with a header each, which holds the kind and the length of what follows."""

    def __init__(self, header: int, read: Callable[[bytes], tuple[int, int]], *, skip: int = 0) -> None:
        self._header_size = header
        self._read = read
        self._header_bytes = b""
        self._remaining = skip

    def scan(self, data: bytes) -> Iterator[tuple[int, int]]:
        """The kind of each piece whose header ends in `data`, and where in `data` it begins."""
        at = 0
        while at < len(data):
            if self._remaining:
                step = min(self._remaining, len(data) - at)
                self._remaining -= step
                at += step
                continue
            begins = max(at - len(self._header_bytes), 0)
            taken = data[at : at + self._header_size - len(self._header_bytes)]
            self._header_bytes += taken
            at += len(taken)
            if len(self._header_bytes) == self._header_size:
                kind, self._remaining = self._read(self._header_bytes)
                self._header_bytes = b""
                yield kind, begins


def _http2_frame(head: bytes) -> tuple[int, int]:
    return head[3], int.from_bytes(head[:3], "big")


def _tls_record(head: bytes) -> tuple[int, int]:
    return head[0], int.from_bytes(head[3:5], "big")
