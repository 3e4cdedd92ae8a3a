"""Which trace a run is in."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from opentelemetry import trace as api

from dragoman.client import traces
from dragoman.core import trace

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(traces.VARIABLE, raising=False)


def test_without_any_each_run_begins_one() -> None:
    made = [traces.current(), traces.current()]
    assert all(trace.read(one) for one in made)
    assert made[0] != made[1]


def test_one_that_the_environment_names_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(traces.VARIABLE, GIVEN)
    assert traces.current() == GIVEN
    monkeypatch.setenv(traces.VARIABLE, "nonsense")
    assert traces.current() != "nonsense"


def test_a_span_of_opentelemetry_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(traces.VARIABLE, GIVEN)
    span = api.NonRecordingSpan(api.SpanContext(5, 7, is_remote=False, trace_flags=api.TraceFlags(0)))
    with api.use_span(span):
        assert traces.current() == f"00-{5:032x}-{7:016x}-00"
    assert traces.current() == GIVEN


def test_who_has_no_opentelemetry_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    assert isinstance(api, ModuleType)
    assert trace.read(traces.current())


def test_an_agent_that_calls_another_goes_on_with_its_own() -> None:
    token = trace.CURRENT.set(GIVEN)
    try:
        assert traces.current() == GIVEN
    finally:
        trace.CURRENT.reset(token)
