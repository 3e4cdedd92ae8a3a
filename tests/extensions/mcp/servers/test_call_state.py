"""What is stored with a task."""

from __future__ import annotations

import orjson
import pytest

from dragoman.extensions.mcp.servers.call_state import CallState, read_call_state

WAITING = CallState(
    tool="order",
    arguments={"a": 1},
    handle="h",
    request_state="",
    requests={"x": {"method": "m"}, "y": {"method": "n"}},
    responses={"x": {"action": "accept"}},
    answered=("w",),
    open_call="c",
    unsent=True,
)


@pytest.mark.parametrize("state", [CallState(), WAITING, CallState(tool="x", request_state="s")])
def test_a_state_reads_back_unchanged(state: CallState) -> None:
    assert read_call_state(state.to_json()) == state


def test_requests_without_a_response_are_open() -> None:
    assert WAITING.open_requests == {"y": {"method": "n"}}


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"mcp": 3}', orjson.dumps({"mcp": {"tool": 3, "arguments": [], "answered": 1, "unsent": 1}})],
)
def test_data_in_another_form_is_an_empty_state(data: bytes) -> None:
    assert read_call_state(data) == CallState()
