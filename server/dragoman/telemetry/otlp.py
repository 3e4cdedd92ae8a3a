"""OTLP exporter: sends spans in batches to a collector, over HTTP or gRPC, from its own thread.

A request costs a hundred times as much as one of its spans, so spans are collected for a second. Failed requests are
retried; meanwhile spans wait in a bounded queue.
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

from dragoman.core.durations import Backoff
from dragoman.supervision import Background, start_thread
from dragoman.telemetry import spans as messages
from dragoman.telemetry.spans import EXPORT_BATCH_SIZE, SpanRecorder
from dragoman.version import __version__

log = logging.getLogger("dragoman.telemetry")

EXPORT_INTERVAL: Final = 1.0  # seconds to collect spans, unless a batch is full before
EXPORT_TIMEOUT: Final = 10.0  # seconds for one request
FINAL_EXPORT_TIMEOUT: Final = 3.0  # seconds for a request during shutdown

EXPORT_RETRY_BACKOFF: Final = Backoff(1.0, 30.0)
"""Delay before a failed request is retried: initial and maximal seconds."""

EXPORT_METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
TRACES_PATH: Final = "/v1/traces"


class ExportFailed(Exception):
    """The collector did not accept a request; the text explains why."""


class OtlpTransport(Protocol):
    """A connection to a collector."""

    def send(self, message: bytes, timeout: float) -> None:
        """Sends an ExportTraceServiceRequest. Raises ExportFailed."""

    def close(self) -> None:
        """Closes the connection."""


class OtlpHttpTransport:
    """OTLP over HTTP in protobuf, over one keep-alive connection."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port)
        path = parts.path.rstrip("/")
        self._path = path if path.endswith(TRACES_PATH) else path + TRACES_PATH
        self._headers = {**headers, "Content-Type": "application/x-protobuf"}

    def send(self, message: bytes, timeout: float) -> None:
        was_open = self._connection.sock is not None
        try:
            status, reason = self._post(message, timeout)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            if not was_open or not isinstance(error, ConnectionError):
                raise ExportFailed(str(error) or type(error).__name__) from error
            self.send(message, timeout)  # the collector has closed the idle connection
        else:
            if status >= 300:
                raise ExportFailed(f"{status} {reason}")

    def close(self) -> None:
        self._connection.close()

    def _post(self, message: bytes, timeout: float) -> tuple[int, str]:
        self._connection.timeout = timeout
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        self._connection.request("POST", self._path, message, self._headers)
        response = self._connection.getresponse()
        response.read()
        return response.status, response.reason


class OtlpGrpcTransport:
    """OTLP over gRPC."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        if parts.scheme == "grpcs":
            self._channel = grpc.secure_channel(parts.netloc, grpc.ssl_channel_credentials())
        else:
            self._channel = grpc.insecure_channel(parts.netloc)
        self._call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(EXPORT_METHOD)
        self._metadata = tuple((name.lower(), value) for name, value in headers.items())

    def send(self, message: bytes, timeout: float) -> None:
        try:
            self._call(message, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise ExportFailed(f"{error.code().name}: {error.details()}") from error

    def close(self) -> None:
        self._channel.close()


def otlp_transport(url: str, headers: Mapping[str, str]) -> OtlpTransport:
    """The transport for a URL: http, https, grpc or grpcs."""
    return OtlpGrpcTransport(url, headers) if url.startswith("grpc") else OtlpHttpTransport(url, headers)


class SpanExporter:
    """Sends the spans of a recorder until closed."""

    def __init__(
        self,
        recorder: SpanRecorder,
        transport: OtlpTransport,
        resource: Mapping[str, str],
        *,
        interval: float = EXPORT_INTERVAL,
        retry: Backoff = EXPORT_RETRY_BACKOFF,
    ) -> None:
        """interval: seconds between two exports of fewer spans than a batch. retry: after a failed export."""
        self._interval = interval
        self._retry = retry
        self._recorder = recorder
        self._transport = transport
        self._resource = messages.encode_resource(resource)
        self._stop = threading.Event()
        self.is_failing = False  # whether the last request failed
        self.sent = 0
        self._thread = start_thread(Background.TRACES, self._run)

    def close(self) -> None:
        """Sends the remaining spans, with FINAL_EXPORT_TIMEOUT per request, and stops. Blocks."""
        self._stop.set()
        self._recorder.batch_ready.set()
        self._thread.join()
        self._transport.close()

    def _run(self) -> None:
        spans: list[bytes] = []
        failures = 0
        while True:
            stopping = self._stop.is_set()
            spans = spans or self._recorder.take(EXPORT_BATCH_SIZE)
            if spans and not self._send(spans, FINAL_EXPORT_TIMEOUT if stopping else EXPORT_TIMEOUT):
                if stopping:
                    return
                failures += 1
                self._stop.wait(self._retry.delay(failures))
                continue
            queue_empty = len(spans) < EXPORT_BATCH_SIZE
            spans, failures = [], 0
            if stopping and queue_empty:
                return
            if not stopping and self._recorder.queued < EXPORT_BATCH_SIZE:
                self._recorder.batch_ready.wait(self._interval)
                self._recorder.batch_ready.clear()

    def _send(self, batch: Sequence[bytes], timeout: float) -> bool:
        """Returns whether the collector accepted the batch."""
        try:
            self._transport.send(messages.encode_export_request(self._resource, batch), timeout)
        except ExportFailed as error:
            if not self.is_failing:
                log.warning("traces cannot be sent (%s); retrying, new spans are dropped if the queue is full", error)
            self.is_failing = True
            return False
        self.sent += len(batch)
        self.is_failing = False
        return True


def resource_attributes(role: str) -> dict[str, str]:
    """Resource attributes of this process; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence."""
    attributes = {
        "service.name": role,
        "service.version": __version__,
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
    }
    for item in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        name, equals, value = item.partition("=")
        if equals:
            attributes[name.strip()] = value.strip()
    return attributes | ({"service.name": name} if (name := os.environ.get("OTEL_SERVICE_NAME", "")) else {})
