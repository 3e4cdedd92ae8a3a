"""The trace context of a run."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from opentelemetry import trace as api

from dragoman.client import calls
from dragoman.core import trace

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(calls.TRACEPARENT_VARIABLE, raising=False)


def test_each_run_starts_a_trace_if_there_is_none() -> None:
    traceparents = [calls.current_traceparent(), calls.current_traceparent()]
    assert all(trace.parse_traceparent(one) for one in traceparents)
    assert traceparents[0] != traceparents[1]


def test_the_trace_of_the_environment_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(calls.TRACEPARENT_VARIABLE, GIVEN)
    assert calls.current_traceparent() == GIVEN
    monkeypatch.setenv(calls.TRACEPARENT_VARIABLE, "nonsense")
    assert calls.current_traceparent() != "nonsense"


def test_an_opentelemetry_span_precedes_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(calls.TRACEPARENT_VARIABLE, GIVEN)
    span = api.NonRecordingSpan(api.SpanContext(5, 7, is_remote=False, trace_flags=api.TraceFlags(0)))
    with api.use_span(span):
        assert calls.current_traceparent() == f"00-{5:032x}-{7:016x}-00"
    assert calls.current_traceparent() == GIVEN


def test_opentelemetry_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    assert isinstance(api, ModuleType)
    assert trace.parse_traceparent(calls.current_traceparent())


def test_an_agent_that_calls_another_continues_its_trace() -> None:
    token = trace.CURRENT_TRACE.set(GIVEN)
    try:
        assert calls.current_traceparent() == GIVEN
    finally:
        trace.CURRENT_TRACE.reset(token)
