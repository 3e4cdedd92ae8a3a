"""JSON of fasta2a 2.x and a2a-rust, and responses that several dialects read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from tests.wire.dialects.test_json_v01 import old_tasks

from dragoman.wire.dialects import json_mixed, json_v01, json_v03
from dragoman.wire.json import protojson
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

TASK = pb.Task(
    id="t",
    context_id="c",
    status=pb.TaskStatus(state=pb.TASK_STATE_COMPLETED),
    artifacts=[pb.Artifact(artifact_id="a", parts=[pb.Part(text="hi")])],
)
STATUS = pb.StreamResponse(
    status_update=pb.TaskStatusUpdateEvent(
        task_id="t", context_id="c", status=pb.TaskStatus(state=pb.TASK_STATE_WORKING)
    )
)


@given(old_tasks)
def test_a_merged_response_decodes_in_both_dialects(task: pb.Task) -> None:
    both = json.loads(json.dumps(json_mixed.write_v01_task(task)))
    alone = json.loads(json.dumps(protojson.compile(pb.Task, json_v01.JSON_V01).to_dict(task)))
    assert json_mixed.merge(alone, both) == both
    newer = protojson.compile(pb.Task, json_v03.JSON_V03).decode(both)
    assert (newer.id, newer.context_id, newer.status.state) == (task.id, task.context_id, task.status.state)
    flat = json.loads(json.dumps(json_mixed.write_fasta2a_task(task)))
    assert json_mixed.merge(protojson.compile(pb.Task, json_mixed.JSON_FASTA2A).to_dict(task), flat) == flat
    assert "data_part_compat" not in json.dumps(flat)


@pytest.mark.parametrize(
    ("own", "other", "merged"),
    [
        ({"a": 1, "b": {"c": 1}}, {"a": 2, "b": {"d": 2}, "e": 3}, {"a": 1, "b": {"c": 1, "d": 2}, "e": 3}),
        ([{"a": 1}, 2], [{"b": 1}, 3], [{"a": 1, "b": 1}, 2]),
        ([1], [1, 2], [1]),
        ({"a": None}, {"a": {"b": 1}}, {"a": None}),
        ("own", {"a": 1}, "own"),
    ],
)
def test_merging_keeps_every_key_and_prefers_the_first_value(own: Any, other: Any, merged: Any) -> None:
    assert json_mixed.merge(own, other) == merged


def test_a2a_rust_sends_its_configuration_in_its_own_form() -> None:
    codec = protojson.compile(pb.SendMessageRequest, json_mixed.JSON_RUST)
    read = codec.decode(
        {
            "contextId": "c",
            "message": {"messageId": "m", "role": "user", "parts": [{"type": "text", "text": "x"}]},
            "configuration": {"blocking": False, "pushNotificationConfig": {"url": "https://x"}},
        }
    )
    assert read.message.context_id == "c"
    assert read.configuration.return_immediately
    assert read.configuration.task_push_notification_config.url == "https://x"


def test_a_task_of_a2a_rust_has_its_states_and_the_keys_of_0_3() -> None:
    written = json_mixed.write_rust_task(TASK)
    assert (written["kind"], written["status"]["state"]) == ("task", "TASK_STATE_COMPLETED")
    assert written["artifacts"][0]["parts"] == [{"type": "text", "kind": "text", "text": "hi"}]
    assert protojson.compile(pb.Task, json_v03.JSON_V03).decode(written) == TASK


def test_a_task_of_fasta2a_has_flat_parts_with_a_kind() -> None:
    task = pb.Task.FromString(TASK.SerializeToString())
    task.artifacts[0].parts.add(raw=b"hi", filename="a.txt")
    task.artifacts[0].parts.add().data.number_value = 3
    assert json_mixed.write_fasta2a_task(task)["artifacts"][0]["parts"] == [
        {"kind": "text", "text": "hi"},
        {"kind": "file", "file": {"bytes": "aGk=", "name": "a.txt"}, "raw": "aGk=", "filename": "a.txt"},
        {"kind": "data", "data": 3},
    ]


@pytest.mark.parametrize(
    ("write", "state"),
    [(json_mixed.write_fasta2a_event, "working"), (json_mixed.write_rust_event, "TASK_STATE_WORKING")],
)
def test_an_event_is_wrapped_and_beside_it_in_the_form_of_0_3(write: Any, state: str) -> None:
    written = write(STATUS, True)
    assert (written["kind"], written["final"], written["status"]) == ("status-update", True, {"state": "working"})
    assert written["statusUpdate"] == {"taskId": "t", "contextId": "c", "status": {"state": state}}
