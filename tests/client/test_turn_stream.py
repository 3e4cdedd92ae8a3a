"""One turn with servers of every kind that break connections, reject calls, or send nothing."""

from __future__ import annotations

import pytest
from tests.client.scripted_agent import (
    BROKEN,
    CONNECTION_REFUSED,
    HOLD,
    UNSUPPORTED,
    Script,
    chunk,
    run,
    status,
    task,
)
from tests.clocks import SleepingClock

from dragoman.client import (
    Artifact,
    Busy,
    ClientError,
    Event,
    InactivityTimeout,
    Invalid,
    NotFound,
    Question,
    ServerUnavailable,
    Status,
    Text,
)
from dragoman.client.event_reducer import EventReducer
from dragoman.wire.remote_errors import RemoteError
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DONE = status("COMPLETED")
UNKNOWN = NotFound("NOT_FOUND", "no", reason="TASK_NOT_FOUND")


def texts(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def states(events: list[Event]) -> list[str]:
    return [event.state for event in events if isinstance(event, Status)]


async def test_a_broken_stream_resumes_after_its_cursor() -> None:
    server = Script(
        SendStreamingMessage=[[task("SUBMITTED"), chunk("a", append=False, cursor="e.t.2"), BROKEN]],
        SubscribeToTask=[
            [chunk("b", cursor="e.t.3")],
            [chunk("b", cursor="e.t.4"), status("COMPLETED", cursor="e.t.5")],
        ],
    )
    events = await run(server)
    assert texts(events) == "abb"
    assert server.after == ["", "e.t.2", "e.t.3"]
    assert [event.cursor for event in events] == ["", "", "e.t.2", "e.t.3", "e.t.4", "e.t.5"]
    assert not server.calls("GetTask")


async def test_a_rejected_cursor_is_replaced_by_the_task() -> None:
    refused = Invalid("INVALID_ARGUMENT", "is a cursor of another store", reason="INVALID_PARAMS")
    server = Script(
        SendStreamingMessage=[[task("SUBMITTED"), chunk("a", append=False, cursor="e.t.2"), BROKEN]],
        SubscribeToTask=[[refused], [task("WORKING", "ab"), chunk("c"), DONE]],
        GetTask=[[task("COMPLETED", "abc")]],
    )
    assert texts(await run(server)) == "abc"
    assert server.after[:3] == ["", "e.t.2", ""]


async def test_without_cursors_the_task_of_a_subscription_adds_missed_events() -> None:
    server = Script(
        SendStreamingMessage=[[task("SUBMITTED"), chunk("a", append=False), BROKEN]],
        SubscribeToTask=[[task("WORKING", "a", "b"), chunk("c"), BROKEN], [task("WORKING", "abc"), chunk("d"), DONE]],
        GetTask=[[task("WORKING", "a")], [task("WORKING", "abc")], [task("COMPLETED", "abcd")]],
    )
    events = await run(server)
    assert texts(events) == "abcd"
    assert len([event for event in events if isinstance(event, Artifact)]) == 1
    assert states(events) == ["SUBMITTED", "WORKING", "COMPLETED"]


async def test_without_a_leading_task_each_event_causes_a_poll() -> None:
    server = Script(
        SendStreamingMessage=[[task("SUBMITTED"), chunk("a", append=False), BROKEN]],
        SubscribeToTask=[[chunk("c"), chunk("d"), DONE]],
        GetTask=[[task("WORKING", "a")], [task("WORKING", "abc")], [task("WORKING", "abcd")], [task("COMPLETED")]],
    )
    assert texts(await run(server)) == "abcd"
    assert len(server.calls("GetTask")) == 4


async def test_without_streams_the_task_is_polled_with_growing_delays() -> None:
    clock = SleepingClock()
    server = Script(
        SendMessage=[[task("SUBMITTED")]],
        GetTask=[*[[task("WORKING")]] * 30, [task("WORKING", "a")], [task("COMPLETED", "ab")]],
    )
    events = await run(server, streams=False, clock=clock)
    assert (texts(events), states(events)) == ("ab", ["SUBMITTED", "WORKING", "COMPLETED"])
    assert server.calls("SendMessage")[0].configuration.return_immediately
    assert 100 < clock.now < 150


async def test_a_card_that_wrongly_claims_streams_is_overruled() -> None:
    server = Script(SendMessage=[[task("SUBMITTED")]], GetTask=[[task("COMPLETED", "a")]])
    assert texts(await run(server)) == "a"
    assert [name for name, _ in server.requests] == ["SendStreamingMessage", "SendMessage", "GetTask"]


async def test_a_response_may_be_a_single_message() -> None:
    for server, streams in (
        (Script(SendMessage=[[pb.Message(parts=[pb.Part(text="hi")])]]), False),
        (Script(SendStreamingMessage=[[pb.Message(parts=[pb.Part(text="hi")])]]), True),
    ):
        reducer = EventReducer()
        assert texts(await run(server, reducer=reducer, streams=streams)) == "hi"
        assert (reducer.result.ok, reducer.result.text, reducer.result.task_id) == (True, "hi", "")


async def test_content_missing_from_a_stream_is_read_at_its_end() -> None:
    server = Script(SendStreamingMessage=[[task("SUBMITTED"), DONE]], GetTask=[[task("COMPLETED", "all")]])
    assert texts(await run(server)) == "all"


async def test_a_busy_server_is_retried_after_its_delay_with_the_same_key() -> None:
    clock = SleepingClock()
    busy = Busy("RESOURCE_EXHAUSTED", "later", reason="RATE_LIMITED", retry_after=7.0)
    server = Script(SendStreamingMessage=[[busy], [busy], [task("SUBMITTED"), chunk("a", append=False), DONE]])
    assert texts(await run(server, clock=clock)) == "a"
    assert clock.now == 14.0
    assert server.keys == ["k", "k", "k"]


async def test_a_server_that_asks_for_more_than_the_retry_timeout_is_not_retried() -> None:
    clock = SleepingClock()
    with pytest.raises(Busy) as busy:
        await run(Script(SendStreamingMessage=[[Busy("UNAVAILABLE", "x", retry_after=900.0)]]), clock=clock)
    assert (busy.value.retry_after, clock.now) == (900.0, 0.0)


async def test_an_unavailable_server_is_retried_until_the_timeout() -> None:
    clock = SleepingClock()
    with pytest.raises(ServerUnavailable):
        await run(Script(SendStreamingMessage=[[CONNECTION_REFUSED]]), clock=clock)
    assert 50 < clock.now <= 60
    again, more = SleepingClock(), [[BROKEN]] * 14
    server = Script(
        SendStreamingMessage=[[task("WORKING"), BROKEN]],
        SubscribeToTask=[[BROKEN]],
        GetTask=[*more, [task("WORKING", "a")], *more, [task("COMPLETED", "ab")]],
    )
    assert texts(await run(server, clock=again)) == "ab"  # each response resets the retry timeout
    assert again.now > 60


async def test_after_a_refused_connection_the_next_interface_is_tried_immediately() -> None:
    clock = SleepingClock()
    second = Script(SendStreamingMessage=[[task("WORKING", "a"), DONE]])
    assert texts(await run(Script(SendStreamingMessage=[[CONNECTION_REFUSED]]), second, clock=clock)) == "a"
    assert clock.now == 0
    unknown = ClientError.from_remote_error(RemoteError("-32601", "no such method", "METHOD_NOT_FOUND"))
    old = Script(SendStreamingMessage=[[unknown]], SendMessage=[[unknown]])
    second = Script(SendStreamingMessage=[[task("WORKING", "a"), DONE]])
    assert texts(await run(old, second)) == "a"


async def test_a_possibly_delivered_message_is_sent_again_if_the_server_supports_keys() -> None:
    server = Script(SendStreamingMessage=[[BROKEN], [task("WORKING", "a"), DONE]])
    assert texts(await run(server, idempotent=True)) == "a"
    assert server.keys == ["k", "k"]
    assert {request.message.message_id for request in server.calls("SendStreamingMessage")} == {"m-1"}


async def test_without_keys_a_possibly_delivered_message_is_searched_and_not_sent_twice() -> None:
    server = Script(
        SendStreamingMessage=[[BROKEN]],
        ListTasks=[
            [pb.ListTasksResponse(tasks=[task("WORKING", message_id="m-0"), task("WORKING", message_id="m-1")])]
        ],
        GetTask=[[task("COMPLETED", "a")]],
    )
    assert texts(await run(server)) == "a"
    assert len(server.calls("SendStreamingMessage")) == 1


async def test_an_undelivered_message_is_sent_again() -> None:
    server = Script(
        SendStreamingMessage=[[BROKEN], [task("COMPLETED", "a")]],
        ListTasks=[[pb.ListTasksResponse(tasks=[task("WORKING", message_id="m-0")])]],
    )
    assert texts(await run(server)) == "a"


@pytest.mark.parametrize(
    "listed",
    [
        pb.ListTasksResponse(tasks=[task("WORKING")]),
        pb.ListTasksResponse(next_page_token="more"),
        UNSUPPORTED,
    ],
)
async def test_an_unknown_outcome_is_reported_to_the_caller(listed: object) -> None:
    server = Script(SendStreamingMessage=[[BROKEN]], ListTasks=[[listed]])
    with pytest.raises(ServerUnavailable) as away:
        await run(server)
    assert away.value.may_have_arrived
    assert len(server.calls("SendStreamingMessage")) == 1
    with pytest.raises(ServerUnavailable):
        await run(Script(SendStreamingMessage=[[BROKEN]]), dialect="0.3")


async def test_a_task_of_0_1_is_found_by_the_client_chosen_id() -> None:
    server = Script(SendStreamingMessage=[[BROKEN], [task("COMPLETED", "a")]], GetTask=[[UNKNOWN]])
    reducer = EventReducer()
    reducer.task.id = "t-1"
    assert texts(await run(server, dialect="0.1", reducer=reducer)) == "a"
    assert [name for name, _ in server.requests] == ["SendStreamingMessage", "GetTask", "SendStreamingMessage"]


async def test_a_task_without_events_raises_an_inactivity_timeout() -> None:
    polled = Script(SendMessage=[[task("WORKING")]], GetTask=[[task("WORKING")]])
    held = Script(SendStreamingMessage=[[task("WORKING"), HOLD]])
    for server, streams, seconds in ((polled, False, 30.0), (held, True, 0.05)):
        with pytest.raises(InactivityTimeout, match="t-1") as silent:
            await run(server, streams=streams, silence=seconds)
        assert silent.value.task_id == "t-1"


async def test_an_answered_question_is_not_reported_again() -> None:
    reducer = EventReducer()
    waiting = task("INPUT_REQUIRED", text="which?")
    reducer.load(waiting)
    server = Script(SendMessage=[[waiting]], GetTask=[[waiting], [task("WORKING")], [task("COMPLETED", "a")]])
    events = await run(server, streams=False, reducer=reducer)
    assert not [event for event in events if isinstance(event, Question)]
    assert texts(events) == "a"


async def test_auth_required_may_end_while_the_stream_is_open() -> None:
    open_one = Script(SendStreamingMessage=[[task("SUBMITTED"), status("AUTH_REQUIRED", "sign in"), DONE]])
    events = await run(open_one)
    assert [event.wants_credentials for event in events if isinstance(event, Question)] == [True]
    assert states(events)[-1] == "COMPLETED"
    closed = Script(SendStreamingMessage=[[task("SUBMITTED"), status("AUTH_REQUIRED", "sign in")]])
    assert isinstance((await run(closed))[-1], Question)


async def test_a_cancel_missing_from_a_stream_is_found_by_a_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dragoman.client.turn_stream.TASK_POLL_INTERVAL", 0.01)
    server = Script(
        SendStreamingMessage=[[task("WORKING"), chunk("a", append=False), HOLD]],
        GetTask=[[task("WORKING", "a")], [task("CANCELED", "ab")]],
    )
    events = await run(server)
    assert (texts(events), states(events)[-1]) == ("ab", "CANCELED")


async def test_a_broken_stream_of_0_3_is_continued_by_polls_alone() -> None:
    server = Script(
        SendStreamingMessage=[[task("SUBMITTED"), chunk("a", append=False), BROKEN]],
        SubscribeToTask=[[chunk("b")]],
        GetTask=[[task("WORKING", "ab")], [task("COMPLETED", "abc")]],
    )
    assert texts(await run(server, dialect="0.3")) == "abc"
    assert not server.calls("SubscribeToTask")


@pytest.mark.parametrize("reason", ["INVALID_PARAMS", "UNSUPPORTED_OPERATION", "TASK_NOT_CANCELABLE"])
async def test_after_a_refused_subscription_the_task_is_polled(reason: str) -> None:
    refused = ClientError.from_remote_error(RemoteError("FAILED_PRECONDITION", "is in terminal state", reason))
    server = Script(
        SendStreamingMessage=[[task("WORKING"), BROKEN]],
        SubscribeToTask=[[refused]],
        GetTask=[[task("WORKING", "a")], [task("COMPLETED", "ab")]],
    )
    assert texts(await run(server)) == "ab"
    assert len(server.calls("SubscribeToTask")) == 1


async def test_a_replaced_artifact_is_reported_as_such() -> None:
    server = Script(
        SendStreamingMessage=[[task("WORKING"), chunk("a", append=False), chunk("b", append=False), DONE]],
    )
    events = await run(server)
    assert [event.replaces for event in events if isinstance(event, Artifact)] == [False, True]


async def test_an_error_that_retries_cannot_help_is_raised() -> None:
    refused = Invalid("INVALID_ARGUMENT", "no", reason="INVALID_PARAMS")
    with pytest.raises(Invalid):
        await run(Script(SendStreamingMessage=[[refused]]))
    unknown = Script(SendStreamingMessage=[[task("WORKING"), BROKEN]], SubscribeToTask=[[UNKNOWN]], GetTask=[[UNKNOWN]])
    with pytest.raises(NotFound):
        await run(unknown)
