"""Fields that several operator calls share: the selection of a task, limits, and timestamps."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from dragoman.bindings.admin import fields
from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.errors import InvalidParams
from dragoman.core.task.maintenance import TaskSelection
from dragoman_pb.dragoman.ops.v1 import events_pb2 as events_pb
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import push_pb2 as push_pb


@pytest.mark.parametrize(
    "request_type",
    [events_pb.ListEventsRequest, ops.ExportTaskRequest, push_pb.ListPushConfigsRequest, push_pb.RedeliverRequest],
)
def test_a_task_is_selected_by_id_and_what_narrows_it(request_type: type[Message]) -> None:
    request = request_type(task_id="t", agent="echo", principal="alice", scope="s")
    expected = TaskSelection(task="t", agent="echo", principal="alice", scope="s")
    assert fields.task_selection(request) == expected
    with pytest.raises(InvalidParams, match=r"^taskId: is required$"):
        fields.task_selection(request_type(agent="echo"))


def test_an_empty_field_is_rejected_by_its_name() -> None:
    fields.check_present("name", "x")
    with pytest.raises(InvalidParams) as caught:
        fields.check_present("name", "")
    assert [(one.field, one.description) for one in caught.value.violations] == [("name", "is required")]


@pytest.mark.parametrize(("limit", "used"), [(0, 20), (1, 1), (100, 100)])
def test_a_limit_of_zero_is_the_default(limit: int, used: int) -> None:
    assert fields.page_limit(limit, default=20, maximum=100) == used


@pytest.mark.parametrize("limit", [-1, 101])
def test_a_limit_out_of_range_is_rejected_with_the_range(limit: int) -> None:
    with pytest.raises(InvalidParams, match=r"^limit: must be 1 to 100, or 0 for 20$"):
        fields.page_limit(limit, default=20, maximum=100)


def test_a_message_takes_its_fields_from_its_sources_and_a_time_of_zero_is_absent() -> None:
    key = ApiKey(id="k", name="laptop", principal="ann", digest=b"secret", created=1_795_215_245_118)
    message = fields.message_from(ops.ApiKey, key, grants=["operator"], last_used=key.used)
    assert (message.id, message.principal, list(message.grants)) == ("k", "ann", ["operator"])
    assert (message.created.seconds, message.created.nanos) == (1_795_215_245, 118_000_000)
    assert not message.HasField("last_used")


def test_a_field_of_a_message_that_no_source_has_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no source has since"):
        fields.message_from(ops.AgentPause, principal="ann", reason="")
