"""0.3 messages round trip between the server and the client codec."""

from __future__ import annotations

from hypothesis import given
from tests.wire.dialects.test_json_dialects import requests, tasks, updates

from dragoman.wire.dialects import v03, v03_client
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@given(tasks)
def test_a_task_round_trips(task: pb.Task) -> None:
    assert v03_client.read_task(v03.write_task(task)) == task


@given(updates)
def test_an_event_round_trips(event: pb.StreamResponse) -> None:
    assert v03_client.read_stream(v03.write_stream(event)) == event


@given(requests)
def test_a_send_round_trips_without_its_push_configuration(request: pb.SendMessageRequest) -> None:
    request = pb.SendMessageRequest.FromString(request.SerializeToString())
    request.configuration.ClearField("task_push_notification_config")
    assert v03.read_send_message(v03_client.write_send_message(request)) == request


@given(tasks)
def test_tasks_in_lists_and_send_responses_round_trip(task: pb.Task) -> None:
    sent = pb.SendMessageResponse(task=task)
    assert v03_client.read_send_message(v03.write_send_message(sent)) == sent
    page = pb.ListTasksResponse(tasks=[task], next_page_token="n", total_size=1)
    assert v03_client.read_list_tasks(v03.write_list_tasks(page)) == page


def test_requests_name_their_task() -> None:
    get = pb.GetTaskRequest(tenant="a", id="t", history_length=2)
    assert v03.read_get_task(v03_client.write_get_task(get)) == get
    cancel = pb.CancelTaskRequest(tenant="a", id="t")
    assert v03.read_cancel_task(v03_client.write_cancel_task(cancel)) == cancel
    follow = pb.SubscribeToTaskRequest(tenant="a", id="t")
    assert v03.read_subscription(v03_client.write_subscription(follow)) == follow
    query = pb.ListTasksRequest(tenant="a", context_id="c", status=pb.TASK_STATE_WORKING, page_size=5, page_token="p")
    query.status_timestamp_after.seconds = 5
    assert v03.read_list_tasks(v03_client.write_list_tasks(query)) == query
