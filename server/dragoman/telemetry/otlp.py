"""Spans on the wire: OTLP over HTTP or gRPC, some at a time, from a thread of its own.

The messages are written by hand (opentelemetry/proto/trace/v1/trace.proto): with the SDK a span would cost several
times what a request's own accounting does. A collector that is away is tried again; meanwhile spans wait, as many as
there is room for.
"""

from __future__ import annotations

import http.client
import logging
import os
import socket
import struct
import threading
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, Protocol
from urllib.parse import urlsplit

import grpc

from dragoman.core import frames
from dragoman.release import version
from dragoman.telemetry.spans import Recorded, Recorder

log = logging.getLogger("dragoman.telemetry")

EVERY: Final = 1.0
"""Seconds between two looks for what is to be sent."""

BATCH: Final = 512
"""Spans in one message."""

PATIENCE: Final = 10.0
"""Seconds for one message."""

LAST: Final = 3.0
"""The same once the process stops."""

AGAIN: Final = (1.0, 30.0)
"""Seconds until a message that failed is sent again: at first, and at most."""

EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PATH: Final = "/v1/traces"

_KINDS: Final = {"internal": 1, "server": 2, "client": 3, "consumer": 5}
_TIMES: Final = struct.Struct("<BQBQ")


class Failed(Exception):
    """The collector did not take a message; the text says why."""


class Road(Protocol):
    """A way to a collector."""

    def send(self, message: bytes, patience: float) -> None:
        """Sends an ExportTraceServiceRequest. Raises Failed."""
        ...


class OverHttp:
    """OTLP over HTTP, in protobuf."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self._tls = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        path = parts.path.rstrip("/")
        self._path = path if path.endswith(PATH) else path + PATH
        self._headers = {**headers, "Content-Type": "application/x-protobuf"}

    def send(self, message: bytes, patience: float) -> None:
        kind = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=patience)
        try:
            connection.request("POST", self._path, message, self._headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status >= 300:
                raise Failed(f"{answer.status} {answer.reason}")
        except (OSError, http.client.HTTPException) as error:
            raise Failed(str(error) or type(error).__name__) from error
        finally:
            connection.close()


class OverGrpc:
    """OTLP over gRPC."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        if parts.scheme == "grpcs":
            channel = grpc.secure_channel(parts.netloc, grpc.ssl_channel_credentials())
        else:
            channel = grpc.insecure_channel(parts.netloc)
        self._call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(EXPORT)
        self._metadata = tuple((name.lower(), value) for name, value in headers.items())

    def send(self, message: bytes, patience: float) -> None:
        try:
            self._call(message, timeout=patience, metadata=self._metadata)
        except grpc.RpcError as error:
            raise Failed(f"{error.code().name}: {error.details()}") from error


def road(url: str, headers: Mapping[str, str]) -> Road:
    """The way that a URL means: http, https, grpc or grpcs."""
    return OverGrpc(url, headers) if url.startswith("grpc") else OverHttp(url, headers)


class Exporter:
    """Sends what a recorder has, until it is closed."""

    def __init__(self, recorder: Recorder, to: Road, resource: Mapping[str, str]) -> None:
        self._recorder = recorder
        self._to = to
        self._head = _resource(resource)
        self._stop = threading.Event()
        self._told = False
        self.sent = 0
        self.failed = 0
        """Messages that were not taken; they are sent again."""
        self._thread = threading.Thread(target=self._run, name="dragoman-traces", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Sends what is left, if it is taken soon. Blocks."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        wait, patience = AGAIN[0], PATIENCE
        spans: list[Recorded] = []
        while True:
            stopping = self._stop.is_set()
            patience = LAST if stopping else PATIENCE
            spans = spans or self._recorder.take(BATCH)
            if not spans:
                if stopping:
                    return
                self._stop.wait(EVERY)
                continue
            try:
                self._to.send(message(self._head, spans), patience)
            except Failed as error:
                self._fail(str(error))
                if stopping:
                    return
                self._stop.wait(wait)
                wait = min(2 * wait, AGAIN[1])
                continue
            self.sent += len(spans)
            self._told, wait, spans = False, AGAIN[0], []

    @property
    def is_failing(self) -> bool:
        """Whether the collector did not take what it was sent last."""
        return self._told

    def _fail(self, why: str) -> None:
        self.failed += 1
        if not self._told:
            self._told = True
            log.warning("traces cannot be sent (%s); they wait, and the oldest are kept", why)


# The messages ------------------------------------------------------------------------------------------------------


def message(head: bytes, spans: Iterable[Recorded]) -> bytes:
    """An ExportTraceServiceRequest."""
    body = b"".join([_SCOPE, *(frames.frame(2, encode(span)) for span in spans)])
    return frames.frame(1, head + frames.frame(2, body))


def encode(span: Recorded) -> bytes:
    """A Span."""
    parts = [
        b"\x0a\x10", span.trace, b"\x12\x08", span.id,
        frames.submessage(4, span.parent), frames.text(5, span.name), frames.integer(6, _KINDS[span.kind]),
        _TIMES.pack(0x39, span.began, 0x41, span.ended),
    ]  # fmt: skip
    for name, value in span.attributes.items():
        if value != "":
            parts.append(_unlike(name, value) if name in _EACH_ITS_OWN else _alike(name, value))
    if span.link is not None:
        parts.append(frames.frame(13, frames.frame(1, span.link.trace) + frames.frame(2, span.link.span)))
    if span.error:
        parts.append(frames.frame(15, frames.text(2, span.error) + frames.integer(3, 2)))
    return b"".join(parts)


_EACH_ITS_OWN: Final = frozenset(("dragoman_task", "dragoman_event", "dragoman_request"))
"""Attributes whose values are hardly ever met again."""


def _unlike(name: str, value: str | int) -> bytes:
    return frames.frame(9, attribute(name.replace("_", "."), value))


_alike = lru_cache(4096)(_unlike)


def attribute(name: str, value: str | int) -> bytes:
    """A KeyValue."""
    told = frames.frame(1, value.encode()) if isinstance(value, str) else frames.varint(3 << 3) + frames.varint(value)
    return frames.text(1, name) + frames.frame(2, told)


def _resource(attributes: Mapping[str, str]) -> bytes:
    return frames.frame(1, b"".join(frames.frame(1, attribute(*each)) for each in attributes.items()))


_SCOPE: Final = frames.frame(1, frames.text(1, "dragoman") + frames.text(2, version()))


def resource(role: str) -> dict[str, str]:
    """What is said of this process, as OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have it, or as it is."""
    said = {
        "service.name": role,
        "service.version": version(),
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
    }
    for item in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        name, equals, value = item.partition("=")
        if equals:
            said[name.strip()] = value.strip()
    return said | ({"service.name": name} if (name := os.environ.get("OTEL_SERVICE_NAME", "")) else {})
