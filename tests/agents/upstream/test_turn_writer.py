"""The stored state of an upstream task."""

from __future__ import annotations

import orjson
import pytest

from dragoman.agents.upstream.turn_writer import UpstreamTaskState, read_task_state

pytestmark = pytest.mark.long

STATE = UpstreamTaskState("http://a", "t-1", "c-1", "m-1", "digest", True, 5, 7)
STORED = {
    "location": "http://a",
    "task": "t-1",
    "context": "c-1",
    "last_message_id": "m-1",
    "interrupted_digest": "digest",
    "unsent": True,
    "tokens": 5,
    "cost": 7,
}


def test_a_stored_state_is_read_as_it_was() -> None:
    assert orjson.loads(STATE.to_json())["upstream"] == STORED
    assert read_task_state(orjson.dumps({"upstream": STORED})) == STATE


@pytest.mark.parametrize("data", [b"", b"no JSON", b"[]", b"{}", b'{"upstream":1}', b'{"upstream":{"task":1}}'])
def test_data_in_another_form_is_an_empty_state(data: bytes) -> None:
    assert read_task_state(data) == UpstreamTaskState()
