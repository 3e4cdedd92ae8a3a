"""Trace contexts: parsing, storage in envelopes, and delegation metadata."""

from __future__ import annotations

import pytest

from dragoman.core import trace
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CONTEXT = trace.format_traceparent("a" * 32, "b" * 16, recorded=True)


def test_a_context_has_a_trace_id_and_a_recorded_flag() -> None:
    assert trace.parse_traceparent(CONTEXT) == CONTEXT
    assert trace.is_recorded(CONTEXT)
    assert trace.trace_id_of(CONTEXT) == "a" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (CONTEXT.replace("a", "0"), ""),
        (f"ff{CONTEXT[2:]}", ""),
        (f"{CONTEXT}-more", ""),
        (f"01{CONTEXT[2:]}-more", CONTEXT),
        (f"{CONTEXT[:-2]}03", CONTEXT),
    ],
)
def test_later_versions_are_reduced_and_invalid_contexts_ignored(text: str, expected: str) -> None:
    assert trace.parse_traceparent(text) == expected


def test_a_stored_context_is_invisible_to_parsers() -> None:
    request = pb.SendMessageRequest(tenant="t")
    envelope = trace.add_trace(request.SerializeToString(), CONTEXT)
    assert trace.trace_of(envelope) == CONTEXT
    assert pb.SendMessageRequest.FromString(envelope).tenant == "t"
    assert trace.trace_of(request.SerializeToString()) == ""


def test_the_current_turn_becomes_the_parent_task() -> None:
    request = pb.SendMessageRequest()
    reset = trace.CURRENT_DELEGATION.set(lambda: {trace.DELEGATION_URI: {"agent": "desk", "task": "t"}})
    try:
        trace.add_delegation(request)
    finally:
        trace.CURRENT_DELEGATION.reset(reset)
    assert trace.parent_task_of(request) == ("desk", "t")
    assert trace.parent_task_of(pb.SendMessageRequest()) is None
