"""Access log, request metrics, spans, and the log of rejected requests."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import Message

from dragoman.core.access.identity import ANONYMOUS, Caller, Identity
from dragoman.core.counters import Histogram, MetricFamily, MetricSample
from dragoman.core.errors import AgentNotFound, ContentTypeNotSupported, PermissionDenied, RateLimited, Unauthenticated
from dragoman.core.limits.admission import TokenBuckets
from dragoman.core.names import ANONYMOUS_PRINCIPAL
from dragoman.core.trace import CURRENT_TRACE, is_recorded, parse_traceparent
from dragoman.ports.tracing import Tracer

if TYPE_CHECKING:  # commands that serve nothing do not import it
    from dragoman.runtime.observe.audit import Auditor

_ACCESS_LOG: Final = logging.getLogger("dragoman.access")


@dataclass(slots=True, eq=False)
class RequestLogEntry:
    """One request in the access log, metrics and traces. Costs little when the log is off."""

    metrics: RequestMetrics
    binding: str
    method: str
    dialect: str
    request_id: str = ""  # the caller's
    is_known_method: bool = field(default=True, kw_only=True)  # the method is in our tables, not a caller's text
    agent: str = field(default="", init=False)
    identity: Identity = field(default=ANONYMOUS, init=False)
    request: object = field(default=None, init=False)  # the 1.0 request, which may name a task
    _span: tuple[str, str, str] | None = field(default=None, init=False)  # its name, trace context and parent
    _started: float = field(default_factory=time.perf_counter, init=False)

    def start_trace(self, parent: str) -> None:
        """Continues the trace of the caller's `traceparent`, or starts one. Call it in the asyncio task that serves the
        request, if its metrics have a tracer."""
        tracer = self.metrics.tracer
        if tracer is not None:
            parent = parent and parse_traceparent(parent)
            context = tracer.start_span(parent)
            CURRENT_TRACE.set(context)
            if is_recorded(context):
                self._span = self.method, context, parent

    def set_caller(self, caller: Caller, request: object) -> None:
        self.agent, self.identity, self.request = caller.agent, caller.identity, request

    def finish(self, status: object) -> None:
        """Counts the request, records its span, and writes the log line."""
        seconds = time.perf_counter() - self._started
        self.metrics.count(
            self.binding, self.method if self.is_known_method else OTHER_METHOD_LABEL, self.dialect, status, seconds
        )
        if self._span is not None:
            self._record_span(*self._span, seconds, str(status))
        if not _ACCESS_LOG.isEnabledFor(logging.INFO):
            return
        fields = {
            "method": self.method,
            "dialect": self.dialect,
            "agent": self.agent,
            "principal": self.identity.principal if self.identity.is_authenticated else "",
            "task": request_task_id(self.request),
            "request": self.request_id,
            "status": str(status),
            "ms": round(seconds * 1000, 1),
        }
        _ACCESS_LOG.info("request", extra={name: value for name, value in fields.items() if value != ""})

    def _record_span(self, name: str, context: str, parent: str, seconds: float, status: str) -> None:
        tracer, self._span = self.metrics.tracer, None
        assert tracer is not None
        name, method = (self.method, self.method) if self.is_known_method else (name, OTHER_METHOD_LABEL)
        tracer.record_span(
            name, "server", context, parent, seconds, _SPAN_ATTRIBUTES,
            (self.binding, method, status, self.dialect, self.agent, request_task_id(self.request), self.request_id),
            f"answered with {status}" if status in _SERVER_FAULT_STATUSES or _HTTP_FAULT.fullmatch(status) else "",
        )  # fmt: skip


_SPAN_ATTRIBUTES: Final = (
    "rpc.system", "rpc.method", "rpc.response.status", "dragoman.dialect", "dragoman.agent", "dragoman.task",
    "dragoman.request",
)  # fmt: skip

# Statuses that mean a failure of the server, not of the caller.
_SERVER_FAULT_STATUSES: Final = frozenset(
    ("INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS", "DEADLINE_EXCEEDED", "-32603")
)
_HTTP_FAULT: Final = re.compile("5..")


def request_task_id(request: object) -> str:
    """The task id of a 1.0 request, empty for none. Push configuration requests have `task_id` and their own `id`."""
    message_type: Any = type(request)
    return _task_id_reader(message_type)(request)


@cache
def _task_id_reader(message_type: Any) -> Callable[[Any], str]:
    """Returns the reader for a message type: looking for an absent field costs more than writing the log line."""
    fields = message_type.DESCRIPTOR.fields_by_name if issubclass(message_type, Message) else ()
    if "message" in fields:
        return lambda request: str(request.message.task_id)
    if "task_id" in fields:
        return lambda request: str(request.task_id)
    return (lambda request: str(request.id)) if "id" in fields else (lambda request: "")


# Values of the label `binding`. `page`: cards, health, OpenAPI, not an operation.
GRPC_LABEL: Final = "grpc"
REST_LABEL: Final = "rest"
JSONRPC_LABEL: Final = "jsonrpc"
WEBSOCKET_LABEL: Final = "websocket"
PAGE_LABEL: Final = "page"
OTHER_METHOD_LABEL: Final = "other"


@dataclass(slots=True)
class RequestSeries:
    """Counters of requests with the same binding, method and dialect."""

    codes: dict[object, int] = field(default_factory=dict)  # counts by HTTP or gRPC status, or JSON-RPC code
    seconds: Histogram = field(default_factory=Histogram)


class RequestMetrics:
    """Counts requests and open streams, and holds the tracer."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self.tracer = tracer
        self._series: dict[tuple[str, str, str], RequestSeries] = {}
        self._stream_counts: list[tuple[str, Callable[[], int]]] = []

    def count(self, binding: str, method: str, dialect: str, code: object, seconds: float) -> None:
        series = self._series.get((binding, method, dialect))
        if series is None:
            series = self._series[binding, method, dialect] = RequestSeries()
        series.codes[code] = series.codes.get(code, 0) + 1
        series.seconds.add(seconds)

    def add_stream_count(self, binding: str, count_open: Callable[[], int]) -> None:
        """Adds a gauge; `count_open` returns the number of open streams."""
        self._stream_counts.append((binding, count_open))

    def families(self) -> Iterator[MetricFamily]:
        labels, series = ("binding", "method", "dialect"), sorted(self._series.items())
        counts = [
            MetricSample((*values, str(code)), count) for values, one in series for code, count in one.codes.items()
        ]
        help = "Finished requests. Requests for unknown methods and paths have the method `other`."
        yield MetricFamily("requests", "counter", help, (*labels, "code"), counts)
        durations = [MetricSample(values, one.seconds) for values, one in series]
        help = "Seconds from the start of a request to the end of its response; for streams, how long they were open."
        yield MetricFamily("request_duration_seconds", "histogram", help, labels, durations)
        streams = [MetricSample((binding,), count_open()) for binding, count_open in self._stream_counts]
        yield MetricFamily("open_streams", "gauge", "Open streams and WebSocket connections.", ("binding",), streams)


REJECTION_BURST: Final = 30
REJECTIONS_PER_MINUTE: Final = 30
"""Maximum log lines: at once, and on average. Each known principal has its own, all other callers share one."""

MAX_LOGGED_PRINCIPALS: Final = 1000  # with limits of their own; the one rejected least recently is forgotten
OTHER_CALLERS: Final = ""  # stands for all callers without valid credentials
LIMIT_LOG_INTERVAL: Final = 60.0  # seconds between two lines about the same caller and limit

MAX_LOGGED_FIELD_CHARS: Final = 200

_SECURITY_LOG: Final = logging.getLogger("dragoman.security")
_REQUEST_LOG: Final = logging.getLogger("dragoman.requests")


class RejectionLog:
    """Rate-limited log of rejections that an operator can do something about, shared by all bindings.

    These are failed authentication, exceeded limits, and content types that an agent does not accept. Never contains
    credentials.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, audit: Auditor | None = None) -> None:
        """`clock` returns monotonic seconds. The rate limit also bounds the entries of `audit`."""
        self._clock = clock
        self._audit = audit
        self._lines = TokenBuckets(MAX_LOGGED_PRINCIPALS)
        self._suppressed: Counter[str] = Counter()  # lines left out, by principal
        self._limits_logged = TokenBuckets()
        self._modes_logged: set[str] = set()

    def record(
        self, error: BaseException, *, peer: str, method: str, agent: str = "", identity: Identity = ANONYMOUS
    ) -> None:
        """Logs the rejection of a request, within the rate limit; ignores other errors."""
        if isinstance(error, AgentNotFound) and error.__cause__ is not None:  # an agent hidden from the caller
            error = error.__cause__
        if isinstance(error, Unauthenticated | PermissionDenied):
            # Calls without credentials may be harmless; invalid credentials are a mistake or an attack.
            level = logging.WARNING if isinstance(error, PermissionDenied) or error.error else logging.INFO
            fields = {"peer": peer, "method": method, **error.log_details}
            principal = error.log_details.get("principal", "") if isinstance(error, PermissionDenied) else ""
            if principal == ANONYMOUS_PRINCIPAL:  # without valid credentials
                principal = OTHER_CALLERS
            logged = self._write(level, f"request rejected: {error.message}", fields, principal=principal)
            if level == logging.WARNING and self._audit is not None:
                if logged:
                    self._audit.note_denied(error, peer, method)
                else:
                    self._audit.count_denied(error, principal)
        elif isinstance(error, RateLimited):
            self._record_limit(error, peer, method, identity)
        elif isinstance(error, ContentTypeNotSupported) and agent and agent not in self._modes_logged:
            self._modes_logged.add(agent)
            hint = "agent rejected a file; if it should read such files, add their type to @agent(input_modes=...)"
            self._write(logging.INFO, f"{hint}: {error.message.partition(';')[0]}", {"agent": agent}, _REQUEST_LOG)

    def _record_limit(self, error: RateLimited, peer: str, method: str, identity: Identity) -> None:
        """Logs the first of a caller's rejections for a limit in a minute: clients repeat what was rejected."""
        key, now = (identity.principal, error.metadata.get("limit")), self._clock()
        if self._limits_logged.delay(key, now, LIMIT_LOG_INTERVAL, 1):
            return
        self._limits_logged.take(key, now, LIMIT_LOG_INTERVAL)
        fields = {"principal": identity.principal} if identity.is_authenticated else {"peer": peer}
        fields["method"] = method
        self._write(logging.WARNING, f"request rejected: {error.message}", fields, _REQUEST_LOG)

    def record_invalid_http(self, reason: str, *, peer: str) -> None:
        """Logs bytes that are not a valid HTTP request, without quoting them: they may contain credentials."""
        self._write(logging.INFO, f"invalid HTTP request: {reason}", {"peer": peer})

    def _write(
        self,
        level: int,
        text: str,
        fields: dict[str, str],
        logger: logging.Logger = _SECURITY_LOG,
        *,
        principal: str = OTHER_CALLERS,
    ) -> bool:
        """Logs a line within the rate limit of a principal. Returns whether it did."""
        now, interval = self._clock(), 60 / REJECTIONS_PER_MINUTE
        if self._lines.delay(principal, now, interval, REJECTION_BURST):
            known = principal in self._suppressed or len(self._suppressed) < MAX_LOGGED_PRINCIPALS
            self._suppressed[principal if known else OTHER_CALLERS] += 1
            return False
        self._lines.take(principal, now, interval)
        suppressed = self._suppressed.pop(principal, 0)
        extra: dict[str, str | int] = {name: _single_line(value) for name, value in fields.items()}
        if suppressed:
            extra["others"] = suppressed
        logger.log(level, "%s", _single_line(text), extra=extra)
        return True


def _single_line(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:MAX_LOGGED_FIELD_CHARS])
