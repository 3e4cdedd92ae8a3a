"""Spans on their way to a collector: OTLP over HTTP or gRPC, many at a time, from a thread of its own.

A message costs a hundred times what a span in it does, so they are gathered for a second. A collector that is away is
tried again; meanwhile spans wait, as many as there is room for.
"""

from __future__ import annotations

import http.client
import logging
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import urlsplit

import grpc

from dragoman.release import version
from dragoman.telemetry import messages
from dragoman.telemetry.spans import LOT, Recorder

log = logging.getLogger("dragoman.telemetry")

EVERY: Final = 1.0
"""Seconds in which spans are gathered, unless they are enough before."""

PATIENCE: Final = 10.0
"""Seconds for one message."""

LAST: Final = 3.0
"""The same once the process stops."""

AGAIN: Final = (1.0, 30.0)
"""Seconds until a message that failed is sent again: at first, and at most."""

EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PATH: Final = "/v1/traces"


class Failed(Exception):
    """The collector did not take a message; the text says why."""


class Road(Protocol):
    """A way to a collector."""

    def send(self, message: bytes, patience: float) -> None:
        """Sends an ExportTraceServiceRequest. Raises Failed."""
        ...

    def close(self) -> None:
        """Nothing more is sent."""
        ...


class OverHttp:
    """OTLP over HTTP, in protobuf, on one connection for as long as the collector keeps it."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port)
        path = parts.path.rstrip("/")
        self._path = path if path.endswith(PATH) else path + PATH
        self._headers = {**headers, "Content-Type": "application/x-protobuf"}

    def send(self, message: bytes, patience: float) -> None:
        was_open = self._connection.sock is not None
        try:
            status, reason = self._post(message, patience)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            if not was_open or not isinstance(error, ConnectionError):
                raise Failed(str(error) or type(error).__name__) from error
            self.send(message, patience)  # the collector has closed it since the last message
        else:
            if status >= 300:
                raise Failed(f"{status} {reason}")

    def close(self) -> None:
        self._connection.close()

    def _post(self, message: bytes, patience: float) -> tuple[int, str]:
        self._connection.timeout = patience
        if self._connection.sock is not None:
            self._connection.sock.settimeout(patience)
        self._connection.request("POST", self._path, message, self._headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status, answer.reason


class OverGrpc:
    """OTLP over gRPC."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        if parts.scheme == "grpcs":
            self._channel = grpc.secure_channel(parts.netloc, grpc.ssl_channel_credentials())
        else:
            self._channel = grpc.insecure_channel(parts.netloc)
        self._call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(EXPORT)
        self._metadata = tuple((name.lower(), value) for name, value in headers.items())

    def send(self, message: bytes, patience: float) -> None:
        try:
            self._call(message, timeout=patience, metadata=self._metadata)
        except grpc.RpcError as error:
            raise Failed(f"{error.code().name}: {error.details()}") from error

    def close(self) -> None:
        self._channel.close()


def road(url: str, headers: Mapping[str, str]) -> Road:
    """The way that a URL means: http, https, grpc or grpcs."""
    return OverGrpc(url, headers) if url.startswith("grpc") else OverHttp(url, headers)


class Exporter:
    """Sends what a recorder has, until it is closed."""

    def __init__(self, recorder: Recorder, to: Road, resource: Mapping[str, str]) -> None:
        self._recorder = recorder
        self._to = to
        self._head = messages.resource(resource)
        self._stop = threading.Event()
        self._enough = threading.Event()
        recorder.enough = self._enough.set
        self._told = False
        self.sent = 0
        self.failed = 0
        """Messages that were not taken; they are sent again."""
        self._thread = threading.Thread(target=self._run, name="dragoman-traces", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Sends what is left, if it is taken soon. Blocks."""
        self._stop.set()
        self._enough.set()
        self._thread.join()
        self._to.close()

    def _run(self) -> None:
        spans: list[bytes] = []
        wait = AGAIN[0]
        while True:
            stopping = self._stop.is_set()
            spans = spans or self._recorder.take(LOT)
            if spans and not self._send(spans, LAST if stopping else PATIENCE):
                if stopping:
                    return
                self._stop.wait(wait)
                wait = min(2 * wait, AGAIN[1])
                continue
            is_all = len(spans) < LOT
            spans, wait = [], AGAIN[0]
            if stopping and is_all:
                return
            if not stopping and self._recorder.waiting < LOT:
                self._enough.wait(EVERY)
                self._enough.clear()

    def _send(self, spans: Sequence[bytes], patience: float) -> bool:
        """Whether they were taken."""
        try:
            self._to.send(messages.request(self._head, spans), patience)
        except Failed as error:
            self._fail(str(error))
            return False
        self.sent += len(spans)
        self._told = False
        return True

    @property
    def is_failing(self) -> bool:
        """Whether the collector did not take what it was sent last."""
        return self._told

    def _fail(self, why: str) -> None:
        self.failed += 1
        if not self._told:
            self._told = True
            log.warning("traces cannot be sent (%s); they wait, and the oldest are kept", why)


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
