"""Response masks: what they select, and what they reject."""

from __future__ import annotations

from typing import Any, cast

import pytest
from google.protobuf.descriptor import Descriptor

from dragoman.core.errors import InvalidParams
from dragoman.wire.dialects.json_proto import PROTOJSON_V1
from dragoman.wire.http.partial_response import MAX_MASK_DEPTH, FieldMask
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

TASK_TYPE = cast("Descriptor", pb.Task.DESCRIPTOR)

TASK = {
    "id": "t",
    "contextId": "c",
    "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-11-20T10:00:00Z", "message": {"messageId": "m"}},
    "artifacts": [{"artifactId": "a", "name": "x"}, {"artifactId": "b"}],
    "metadata": {"plan": {"step": 1, "next": 2}, "other": 3},
}


def mask(text: str) -> FieldMask:
    return FieldMask(text, TASK_TYPE, PROTOJSON_V1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id", {"id": "t"}),
        ("id,contextId", {"id": "t", "contextId": "c"}),
        (" id , context_id ", {"id": "t", "contextId": "c"}),
        ("status/state", {"status": {"state": "TASK_STATE_WORKING"}}),
        ("status.state", {"status": {"state": "TASK_STATE_WORKING"}}),
        ("status/message/messageId", {"status": {"message": {"messageId": "m"}}}),
        (
            "status(state,message/messageId)",
            {"status": {"state": "TASK_STATE_WORKING", "message": {"messageId": "m"}}},
        ),
        ("artifacts/artifactId", {"artifacts": [{"artifactId": "a"}, {"artifactId": "b"}]}),
        ("artifacts(name)", {"artifacts": [{"name": "x"}, {}]}),
        ("metadata/plan/step", {"metadata": {"plan": {"step": 1}}}),
        ("metadata/*/next", {"metadata": {"plan": {"next": 2}}}),
        ("status/state,status", {"status": TASK["status"]}),
        ("status,status/state", {"status": TASK["status"]}),
        (
            "status/state,status/timestamp",
            {"status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-11-20T10:00:00Z"}},
        ),
        ("history", {}),
        ("*", TASK),
    ],
)
def test_a_mask_selects_exactly_its_fields(text: str, expected: dict[str, Any]) -> None:
    assert mask(text).apply(TASK) == expected


def test_a_mask_applies_to_each_element_of_an_array_and_changes_nothing() -> None:
    tasks = [{"id": "1", "contextId": "c"}, {"id": "2"}]
    assert mask("id").apply(tasks) == [{"id": "1"}, {"id": "2"}]
    assert tasks == [{"id": "1", "contextId": "c"}, {"id": "2"}]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "must name fields of the response"),
        ("  ", "must name fields of the response"),
        ("id,", "needs the name of a field at its end"),
        ("id,,status", 'needs the name of a field before ","'),
        ("/id", 'needs the name of a field before "/"'),
        ("status(state", 'has a "(" without a ")"'),
        ("id)", 'has an unexpected ")"'),
        ("state", '"state" is not a field of Task; use id, contextId, status'),
        ("status/id", '"id" is not a field of TaskStatus; use state, message, timestamp'),
        ("*/state", '"state" is not a field of Artifact'),
        ("id/x", '"id" has no fields to select from'),
        ("status/timestamp/seconds", '"timestamp" has no fields to select from'),
        ("/".join(["metadata"] * MAX_MASK_DEPTH), f"has more than {MAX_MASK_DEPTH} levels"),
    ],
)
def test_an_invalid_mask_is_rejected_with_its_parameter_and_the_rule(text: str, rule: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        FieldMask(text, TASK_TYPE, PROTOJSON_V1, parameter="$.fields")
    (violation,) = caught.value.violations
    assert violation.field == "$.fields"
    assert rule in violation.description


def test_a_mask_of_the_allowed_depth_is_accepted() -> None:
    mask("/".join(["metadata"] * (MAX_MASK_DEPTH - 1)))
