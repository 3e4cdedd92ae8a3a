"""One turn with servers of every kind, and what a caller hears when they break off, refuse, or say nothing."""

from __future__ import annotations

import pytest
from tests.client.scripted_agent import (
    BROKEN,
    CONNECTION_REFUSED,
    HOLD,
    UNSUPPORTED,
    Clock,
    Script,
    chunk,
    run,
    status,
    task,
)

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


async def test_a_stream_that_breaks_goes_on_after_its_cursor() -> None:
    there = Script(
        SendStreamingMessage=[[task("SUBMITTED"), chunk("a", append=False, cursor="e.t.2"), BROKEN]],
        SubscribeToTask=[
            [chunk("b", cursor="e.t.3")],
            [chunk("b", cursor="e.t.4"), status("COMPLETED", cursor="e.t.5")],
        ],
    )
    received = await run(there)
    assert texts(received) == "abb"
    assert there.after == ["", "e.t.2", "e.t.3"]
    assert [event.cursor for event in received] == ["", "", "e.t.2", "e.t.3", "e.t.4", "e.t.5"]
    assert not there.calls("GetTask")


async def test_a_cursor_that_the_server_no_longer_takes_is_made_up_for_by_the_task() -> None:
    refused = Invalid("INVALID_ARGUMENT", "is a cursor of another store", reason="INVALID_PARAMS")
    there = Script(
        SendStreamingMessage=[[task("SUBMITTED"), chunk("a", append=False, cursor="e.t.2"), BROKEN]],
        SubscribeToTask=[[refused], [task("WORKING", "ab"), chunk("c"), DONE]],
        GetTask=[[task("COMPLETED", "abc")]],
    )
    assert texts(await run(there)) == "abc"
    assert there.after[:3] == ["", "e.t.2", ""]


async def test_without_cursors_a_subscription_that_begins_with_the_task_adds_what_was_missed() -> None:
    there = Script(
        SendStreamingMessage=[[task("SUBMITTED"), chunk("a", append=False), BROKEN]],
        SubscribeToTask=[[task("WORKING", "a", "b"), chunk("c"), BROKEN], [task("WORKING", "abc"), chunk("d"), DONE]],
        GetTask=[[task("WORKING", "a")], [task("WORKING", "abc")], [task("COMPLETED", "abcd")]],
    )
    received = await run(there)
    assert texts(received) == "abcd"
    assert len([event for event in received if isinstance(event, Artifact)]) == 1
    assert states(received) == ["SUBMITTED", "WORKING", "COMPLETED"]


async def test_where_the_task_does_not_come_first_each_event_has_it_looked_at() -> None:
    there = Script(
        SendStreamingMessage=[[task("SUBMITTED"), chunk("a", append=False), BROKEN]],
        SubscribeToTask=[[chunk("c"), chunk("d"), DONE]],
        GetTask=[[task("WORKING", "a")], [task("WORKING", "abc")], [task("WORKING", "abcd")], [task("COMPLETED")]],
    )
    assert texts(await run(there)) == "abcd"
    assert len(there.calls("GetTask")) == 4


async def test_without_streams_the_task_is_asked_after_ever_more_seldom_until_there_is_news() -> None:
    clock = Clock()
    there = Script(
        SendMessage=[[task("SUBMITTED")]],
        GetTask=[*[[task("WORKING")]] * 30, [task("WORKING", "a")], [task("COMPLETED", "ab")]],
    )
    received = await run(there, streams=False, clock=clock)
    assert (texts(received), states(received)) == ("ab", ["SUBMITTED", "WORKING", "COMPLETED"])
    assert there.calls("SendMessage")[0].configuration.return_immediately
    assert 100 < clock.now < 150


async def test_a_card_that_promises_streams_is_not_believed_against_the_server() -> None:
    there = Script(SendMessage=[[task("SUBMITTED")]], GetTask=[[task("COMPLETED", "a")]])
    assert texts(await run(there)) == "a"
    assert [name for name, _ in there.requests] == ["SendStreamingMessage", "SendMessage", "GetTask"]


async def test_a_message_may_be_all_there_is() -> None:
    for there, streams in (
        (Script(SendMessage=[[pb.Message(parts=[pb.Part(text="hi")])]]), False),
        (Script(SendStreamingMessage=[[pb.Message(parts=[pb.Part(text="hi")])]]), True),
    ):
        event_reducer = EventReducer()
        assert texts(await run(there, event_reducer=event_reducer, streams=streams)) == "hi"
        assert (event_reducer.result.ok, event_reducer.result.text, event_reducer.result.task_id) == (True, "hi", "")


async def test_what_a_stream_left_out_is_told_at_its_end() -> None:
    there = Script(SendStreamingMessage=[[task("SUBMITTED"), DONE]], GetTask=[[task("COMPLETED", "all")]])
    assert texts(await run(there)) == "all"


async def test_a_busy_server_is_given_the_time_it_asks_for_under_one_key() -> None:
    clock = Clock()
    busy = Busy("RESOURCE_EXHAUSTED", "later", reason="RATE_LIMITED", retry_after=7.0)
    there = Script(SendStreamingMessage=[[busy], [busy], [task("SUBMITTED"), chunk("a", append=False), DONE]])
    assert texts(await run(there, clock=clock)) == "a"
    assert clock.now == 14.0
    assert there.keys == ["k", "k", "k"]


async def test_a_retry_after_beyond_the_retry_timeout_is_not_waited_for() -> None:
    clock = Clock()
    with pytest.raises(Busy) as busy:
        await run(Script(SendStreamingMessage=[[Busy("UNAVAILABLE", "x", retry_after=900.0)]]), clock=clock)
    assert (busy.value.retry_after, clock.now) == (900.0, 0.0)


async def test_an_unavailable_server_is_given_up_after_the_retry_timeout_and_not_before() -> None:
    clock = Clock()
    with pytest.raises(ServerUnavailable):
        await run(Script(SendStreamingMessage=[[CONNECTION_REFUSED]]), clock=clock)
    assert 50 < clock.now <= 60
    again, more = Clock(), [[BROKEN]] * 14
    there = Script(
        SendStreamingMessage=[[task("WORKING"), BROKEN]],
        SubscribeToTask=[[BROKEN]],
        GetTask=[*more, [task("WORKING", "a")], *more, [task("COMPLETED", "ab")]],
    )
    assert texts(await run(there, clock=again)) == "ab"  # patience begins anew with each sign of life
    assert again.now > 60


async def test_where_nobody_listens_the_next_interface_is_tried_at_once() -> None:
    clock = Clock()
    second = Script(SendStreamingMessage=[[task("WORKING", "a"), DONE]])
    assert texts(await run(Script(SendStreamingMessage=[[CONNECTION_REFUSED]]), second, clock=clock)) == "a"
    assert clock.now == 0
    unknown = ClientError.from_remote_error(RemoteError("-32601", "no such method", "METHOD_NOT_FOUND"))
    old = Script(SendStreamingMessage=[[unknown]], SendMessage=[[unknown]])
    second = Script(SendStreamingMessage=[[task("WORKING", "a"), DONE]])
    assert texts(await run(old, second)) == "a"


async def test_a_message_that_may_have_arrived_is_sent_again_to_a_server_that_knows_keys() -> None:
    there = Script(SendStreamingMessage=[[BROKEN], [task("WORKING", "a"), DONE]])
    assert texts(await run(there, idempotent=True)) == "a"
    assert there.keys == ["k", "k"]
    assert {request.message.message_id for request in there.calls("SendStreamingMessage")} == {"m-1"}


async def test_elsewhere_it_is_looked_for_and_not_sent_twice() -> None:
    there = Script(
        SendStreamingMessage=[[BROKEN]],
        ListTasks=[
            [pb.ListTasksResponse(tasks=[task("WORKING", received_text="m-0"), task("WORKING", received_text="m-1")])]
        ],
        GetTask=[[task("COMPLETED", "a")]],
    )
    assert texts(await run(there)) == "a"
    assert len(there.calls("SendStreamingMessage")) == 1


async def test_one_that_did_not_arrive_is_sent_again() -> None:
    there = Script(
        SendStreamingMessage=[[BROKEN], [task("COMPLETED", "a")]],
        ListTasks=[[pb.ListTasksResponse(tasks=[task("WORKING", received_text="m-0")])]],
    )
    assert texts(await run(there)) == "a"


@pytest.mark.parametrize(
    "listed",
    [
        pb.ListTasksResponse(tasks=[task("WORKING")]),
        pb.ListTasksResponse(next_page_token="more"),
        UNSUPPORTED,
    ],
)
async def test_where_nobody_can_say_whether_it_arrived_the_caller_is_told(listed: object) -> None:
    there = Script(SendStreamingMessage=[[BROKEN]], ListTasks=[[listed]])
    with pytest.raises(ServerUnavailable) as away:
        await run(there)
    assert away.value.may_have_arrived
    assert len(there.calls("SendStreamingMessage")) == 1
    with pytest.raises(ServerUnavailable):
        await run(Script(SendStreamingMessage=[[BROKEN]]), dialect="0.3")


async def test_a_task_of_0_1_is_named_by_us_and_so_can_be_looked_for() -> None:
    there = Script(SendStreamingMessage=[[BROKEN], [task("COMPLETED", "a")]], GetTask=[[UNKNOWN]])
    event_reducer = EventReducer()
    event_reducer.task.id = "t-1"
    assert texts(await run(there, dialect="0.1", event_reducer=event_reducer)) == "a"
    assert [name for name, _ in there.requests] == ["SendStreamingMessage", "GetTask", "SendStreamingMessage"]


async def test_a_task_that_says_nothing_new_for_too_long_is_left() -> None:
    polled = Script(SendMessage=[[task("WORKING")]], GetTask=[[task("WORKING")]])
    held = Script(SendStreamingMessage=[[task("WORKING"), HOLD]])
    for there, streams, seconds in ((polled, False, 30.0), (held, True, 0.05)):
        with pytest.raises(InactivityTimeout, match="t-1") as silent:
            await run(there, streams=streams, silence=seconds)
        assert silent.value.task_id == "t-1"


async def test_what_was_asked_before_the_answer_came_is_not_asked_again() -> None:
    event_reducer = EventReducer()
    waiting = task("INPUT_REQUIRED", response_text="which?")
    event_reducer.load(waiting)
    there = Script(SendMessage=[[waiting]], GetTask=[[waiting], [task("WORKING")], [task("COMPLETED", "a")]])
    received = await run(there, streams=False, event_reducer=event_reducer)
    assert not [event for event in received if isinstance(event, Question)]
    assert texts(received) == "a"


async def test_credentials_may_come_from_elsewhere_while_the_stream_is_open() -> None:
    open_one = Script(SendStreamingMessage=[[task("SUBMITTED"), status("AUTH_REQUIRED", "sign in"), DONE]])
    received = await run(open_one)
    assert [event.wants_credentials for event in received if isinstance(event, Question)] == [True]
    assert states(received)[-1] == "COMPLETED"
    closed = Script(SendStreamingMessage=[[task("SUBMITTED"), status("AUTH_REQUIRED", "sign in")]])
    assert isinstance((await run(closed))[-1], Question)


async def test_a_stream_that_forgets_to_say_that_its_task_was_canceled_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dragoman.client.turn_stream.TASK_POLL_INTERVAL", 0.01)
    there = Script(
        SendStreamingMessage=[[task("WORKING"), chunk("a", append=False), HOLD]],
        GetTask=[[task("WORKING", "a")], [task("CANCELED", "ab")]],
    )
    received = await run(there)
    assert (texts(received), states(received)[-1]) == ("ab", "CANCELED")


async def test_a_stream_of_0_3_that_broke_is_gone_on_with_by_looks_alone() -> None:
    there = Script(
        SendStreamingMessage=[[task("SUBMITTED"), chunk("a", append=False), BROKEN]],
        SubscribeToTask=[[chunk("b")]],
        GetTask=[[task("WORKING", "ab")], [task("COMPLETED", "abc")]],
    )
    assert texts(await run(there, dialect="0.3")) == "abc"
    assert not there.calls("SubscribeToTask")


@pytest.mark.parametrize("reason", ["INVALID_PARAMS", "UNSUPPORTED_OPERATION", "TASK_NOT_CANCELABLE"])
async def test_a_subscription_that_is_refused_is_done_without(reason: str) -> None:
    refused = ClientError.from_remote_error(RemoteError("FAILED_PRECONDITION", "is in terminal state", reason))
    there = Script(
        SendStreamingMessage=[[task("WORKING"), BROKEN]],
        SubscribeToTask=[[refused]],
        GetTask=[[task("WORKING", "a")], [task("COMPLETED", "ab")]],
    )
    assert texts(await run(there)) == "ab"
    assert len(there.calls("SubscribeToTask")) == 1


async def test_an_artifact_that_begins_anew_says_so() -> None:
    there = Script(
        SendStreamingMessage=[[task("WORKING"), chunk("a", append=False), chunk("b", append=False), DONE]],
    )
    received = await run(there)
    assert [event.replaces for event in received if isinstance(event, Artifact)] == [False, True]


async def test_what_no_other_try_would_mend_is_raised() -> None:
    refused = Invalid("INVALID_ARGUMENT", "no", reason="INVALID_PARAMS")
    with pytest.raises(Invalid):
        await run(Script(SendStreamingMessage=[[refused]]))
    script = Script(SendStreamingMessage=[[task("WORKING"), BROKEN]], SubscribeToTask=[[UNKNOWN]], GetTask=[[UNKNOWN]])
    with pytest.raises(NotFound):
        await run(script)
