"""The writes of an append, planned without a store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dragoman.core.task import states
from dragoman.core.task.log import ROLE_AGENT, ROLE_USER, Append, AppendRejected
from dragoman.core.task.plan import Plan, encode_task, plan
from dragoman.testing.fixtures import SESSION, artifact, by_runner, cancel, chunk, created, follow_up, new_ref, status
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

NOON = 1_700_000_000_000


def claimed() -> Plan:
    return plan(None, created(new_ref(), claim=SESSION), NOON)


def then(before: Plan, change: Append, now: int = NOON) -> Plan:
    return plan(before.record, change, now)


def events(planned: Plan) -> list[pb.StreamResponse]:
    return [pb.StreamResponse.FromString(event.data) for event in planned.events]


def test_a_new_task_is_the_task_with_its_first_message() -> None:
    planned = claimed()
    (event,) = events(planned)
    assert event.task.status.timestamp.ToMilliseconds() == NOON
    assert [message.parts[0].text for message in event.task.history] == ["hello"]
    assert (
        planned.record.last_sequence,
        planned.record.last_received,
        planned.record.last_delivered,
        planned.record.token,
    ) == (
        1,
        1,
        0,
        1,
    )
    assert [(row.number, row.role) for row in planned.messages] == [(1, ROLE_USER)]


def test_a_status_message_is_a_row_that_the_status_points_to() -> None:
    planned = then(claimed(), by_runner(claimed_outcome := claimed().outcome, status(states.WORKING, "half")))
    assert claimed_outcome.claimed
    assert [(row.number, row.role) for row in planned.messages] == [(2, ROLE_AGENT)]
    assert planned.record.status_message == 2
    task = pb.Task.FromString(encode_task(planned.record, planned.messages[0].data, (), b""))
    assert task.status == events(planned)[0].status_update.status


def test_only_a_message_that_interrupts_is_recorded_as_the_question() -> None:
    first = claimed()
    informed = then(first, by_runner(first.outcome, status(states.WORKING, "half")))
    assert informed.record.question == 0
    interrupted = then(informed, by_runner(first.outcome, status(states.INPUT_REQUIRED, "which?"), end=True))
    assert interrupted.record.question == 3
    answered = then(interrupted, follow_up(first.record.ref, "blue"))
    assert (answered.record.question, answered.record.status_message) == (3, 0)


def test_status_timestamps_never_go_back() -> None:
    first = claimed()
    planned = then(first, by_runner(first.outcome, status(states.WORKING)), NOON - 5000)
    assert planned.record.updated == NOON
    assert events(planned)[0].status_update.status.timestamp.ToMilliseconds() == NOON


def test_artifacts_do_not_change_the_status_timestamp() -> None:
    first = claimed()
    assert then(first, by_runner(first.outcome, artifact("a", "x")), NOON + 5000).record.updated == NOON


def test_adjacent_text_chunks_are_one_row_and_one_event_each() -> None:
    first = claimed()
    planned = then(first, by_runner(first.outcome, chunk("a", "1", append=False), chunk("a", "2"), chunk("b", "3")))
    assert [(row.artifact_id, row.data, row.replaces) for row in planned.artifacts] == [
        ("a", b"12", True),
        ("b", b"3", False),
    ]
    assert [event.artifact_update.append for event in events(planned)] == [False, True, True]


@pytest.mark.parametrize("change", [artifact("a", "x"), chunk("a", "x"), chunk("a", "x", append=False)])
def test_an_artifact_event_shows_what_its_row_holds(change: object) -> None:
    first = claimed()
    planned = then(first, by_runner(first.outcome, change))  # type: ignore[arg-type]  # a table of changes
    (event,) = events(planned)
    assert event.artifact_update.artifact.parts[0].text == "x"
    assert event.artifact_update.task_id == first.record.id


def test_the_end_of_a_turn_releases_the_claim_and_marks_its_last_event() -> None:
    first = claimed()
    planned = then(first, by_runner(first.outcome, artifact("a", "x"), status(states.COMPLETED), end=True))
    assert [event.ends for event in planned.events] == [False, True]
    assert (planned.record.session, planned.record.ready) == (0, False)


def test_a_turn_with_unread_messages_does_not_end() -> None:
    first = claimed()
    more = then(first, follow_up(first.record.ref, "more"))
    planned = then(more, by_runner(first.outcome, status(states.COMPLETED, "done"), end=True))
    assert planned.turn_continues
    assert planned.record.state == states.WORKING
    assert events(planned)[0].status_update.status.message.parts[0].text == "done"


def test_a_cancel_releases_the_claim() -> None:
    first = claimed()
    planned = then(first, cancel(first.record.ref))
    assert (planned.record.state, planned.record.session) == (states.CANCELED, 0)
    with pytest.raises(AppendRejected, match="ended"):
        then(planned, by_runner(first.outcome, artifact("late", "x")))


def test_only_a_ready_task_can_be_claimed() -> None:
    first = claimed()
    stolen = then(first, replace(follow_up(first.record.ref, "more"), claim_session=SESSION + 1))
    assert (stolen.record.session, stolen.outcome.claimed) == (SESSION, False)


def test_the_log_row_holds_every_event_with_its_length() -> None:
    first = claimed()
    planned = then(first, by_runner(first.outcome, *[chunk("a", str(number)) for number in range(200)]))
    assert len(planned.events) == 200
    assert len(planned.log_row) > sum(len(event.data) for event in planned.events)
