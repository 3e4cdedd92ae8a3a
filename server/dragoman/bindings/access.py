"""The access log: one line for each request on `dragoman.access`, with its fields in `extra`; and its count."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from google.protobuf.message import Message

from dragoman.bindings.tally import OTHER, Tally
from dragoman.core.access.identity import Caller
from dragoman.core.trace import CURRENT_TRACE, is_recorded, parse_traceparent

_LOG: Final = logging.getLogger("dragoman.access")


class Access:
    """One request while it is served. Costs an attribute or two when nobody reads the log."""

    __slots__ = (
        "_began", "_binding", "_request", "_span", "_tally", "agent", "dialect", "is_traced", "known", "method",
        "principal", "task",
    )  # fmt: skip

    def __init__(
        self, tally: Tally, binding: str, method: str, dialect: str, request: str = "", *, known: bool = True
    ) -> None:
        """`request` is the id that the caller gave its request. `known`: the method is one of ours, and no text that a
        caller has made up."""
        self._tally = tally
        self._binding = binding
        self.method = method
        self.known = known
        self._request = request
        self.dialect = dialect
        self.agent = ""
        self.task = ""
        self.principal = ""
        self.is_traced = tally.tracer is not None
        """Whether anybody wants to know what trace it belongs to."""
        self._span: tuple[str, str, str] | None = None  # its name, trace context and parent
        self._began = time.perf_counter()

    def trace(self, parent: str) -> None:
        """Goes on with the trace that its caller names by a `traceparent`, or begins one. To be called in the asyncio
        task that serves it, where `is_traced` holds."""
        tracer = self._tally.tracer
        if tracer is not None:
            parent = parent and parse_traceparent(parent)
            context = tracer.start_span(parent)
            CURRENT_TRACE.set(context)
            if is_recorded(context):
                self._span = self.method, context, parent

    def about(self, caller: Caller, request: object) -> None:
        """Notes who asks, if that is known, and what about, as far as the request says."""
        self.agent = caller.agent
        self.principal = caller.identity.principal if caller.identity.is_authenticated else ""
        self.task = task_of(request)

    def done(self, status: object) -> None:
        """Counts it, and writes the line."""
        seconds = time.perf_counter() - self._began
        self._tally.count(self._binding, self.method if self.known else OTHER, self.dialect, status, seconds)
        if self._span is not None:
            self._record(*self._span, seconds, str(status))
        if not _LOG.isEnabledFor(logging.INFO):
            return
        fields = {
            "method": self.method,
            "dialect": self.dialect,
            "agent": self.agent,
            "principal": self.principal,
            "task": self.task,
            "request": self._request,
            "status": str(status),
            "ms": round(seconds * 1000, 1),
        }
        _LOG.info("request", extra={name: value for name, value in fields.items() if value != ""})

    def _record(self, name: str, context: str, parent: str, seconds: float, status: str) -> None:
        tracer, self._span = self._tally.tracer, None
        assert tracer is not None
        name, method = (self.method, self.method) if self.known else (name, OTHER)
        tracer.record_span(
            name, "server", context, parent, seconds, _TOLD,
            (self._binding, method, status, self.dialect, self.agent, self.task, self._request),
            f"answered with {status}" if status in _FAULTS or (len(status) == 3 and status[0] == "5") else "",
        )  # fmt: skip


_TOLD: Final = (
    "rpc.system", "rpc.method", "rpc.response.status", "dragoman.dialect", "dragoman.agent", "dragoman.task",
    "dragoman.request",
)  # fmt: skip
"""What a span tells of a request."""

_FAULTS: Final = frozenset(("INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS", "DEADLINE_EXCEEDED", "-32603"))
"""Statuses that are the server's fault, and not the caller's."""


def task_of(request: object) -> str:
    """The task that a 1.0 request is about, as far as it says. In what is about a push configuration `id` is that."""
    kind: Any = type(request)
    return _reader(kind)(request)


@cache
def _reader(kind: type) -> Callable[[Any], str]:
    """How requests of a type tell. Asking one for a field that it does not have costs more than all of the line."""
    fields = kind.DESCRIPTOR.fields_by_name if issubclass(kind, Message) else ()
    if "message" in fields:
        return lambda request: str(request.message.task_id)
    if "task_id" in fields:
        return lambda request: str(request.task_id)
    return (lambda request: str(request.id)) if "id" in fields else (lambda request: "")
