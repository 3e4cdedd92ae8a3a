"""What an append writes, decided without any store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dragoman.core.task import states
from dragoman.core.task.log import ROLE_AGENT, ROLE_USER, Append, AppendRejected, TaskRecord
from dragoman.core.task.plan import Plan, plan, status_field
from dragoman.testing.fixtures import SESSION, artifact, by_runner, cancel, chunk, created, follow_up, new_ref, status
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

NOON = 1_700_000_000_000


def claimed() -> Plan:
    return plan(None, created(new_ref(), claim=SESSION), NOON)


def then(before: Plan, change: Append, now: int = NOON) -> Plan:
    return plan(before.record, change, now)


def events(made: Plan) -> list[pb.StreamResponse]:
    return [pb.StreamResponse.FromString(event.data) for event in made.events]


def test_a_new_task_is_the_task_with_its_first_message() -> None:
    made = claimed()
    (event,) = events(made)
    assert event.task.status.timestamp.ToMilliseconds() == NOON
    assert [message.parts[0].text for message in event.task.history] == ["hello"]
    assert (made.record.last_sequence, made.record.last_received, made.record.last_delivered, made.record.token) == (
        1,
        1,
        0,
        1,
    )
    assert [(row.number, row.role) for row in made.messages] == [(1, ROLE_USER)]


def test_a_status_message_is_a_row_that_the_status_points_to() -> None:
    made = then(claimed(), by_runner(claimed_outcome := claimed().outcome, status(states.WORKING, "half")))
    assert claimed_outcome.claimed
    assert [(row.number, row.role) for row in made.messages] == [(2, ROLE_AGENT)]
    assert made.record.status_message == 2
    task = pb.Task.FromString(status_field(made.record, made.messages[0].data))
    assert task.status == events(made)[0].status_update.status


def test_only_a_question_is_remembered_as_asked() -> None:
    first = claimed()
    told = then(first, by_runner(first.outcome, status(states.WORKING, "half")))
    assert told.record.question == 0
    asked = then(told, by_runner(first.outcome, status(states.INPUT_REQUIRED, "which?"), end=True))
    assert asked.record.question == 3
    answered = then(asked, follow_up(first.record.ref, "blue"))
    assert (answered.record.question, answered.record.status_message) == (3, 0)


def test_time_stands_still_rather_than_go_back() -> None:
    first = claimed()
    made = then(first, by_runner(first.outcome, status(states.WORKING)), NOON - 5000)
    assert made.record.updated == NOON
    assert events(made)[0].status_update.status.timestamp.ToMilliseconds() == NOON


def test_artifacts_do_not_move_the_time_of_the_status() -> None:
    first = claimed()
    assert then(first, by_runner(first.outcome, artifact("a", "x")), NOON + 5000).record.updated == NOON


def test_neighbouring_text_chunks_are_one_row_and_one_event_each() -> None:
    first = claimed()
    made = then(first, by_runner(first.outcome, chunk("a", "1", append=False), chunk("a", "2"), chunk("b", "3")))
    assert [(row.artifact_id, row.data, row.replaces) for row in made.artifacts] == [
        ("a", b"12", True),
        ("b", b"3", False),
    ]
    assert [event.artifact_update.append for event in events(made)] == [False, True, True]


@pytest.mark.parametrize("change", [artifact("a", "x"), chunk("a", "x"), chunk("a", "x", append=False)])
def test_an_artifact_event_shows_what_its_row_holds(change: object) -> None:
    first = claimed()
    made = then(first, by_runner(first.outcome, change))  # type: ignore[arg-type]  # a table of changes
    (event,) = events(made)
    assert event.artifact_update.artifact.parts[0].text == "x"
    assert event.artifact_update.task_id == first.record.id


def test_the_end_of_a_turn_releases_the_claim_and_marks_its_last_event() -> None:
    first = claimed()
    made = then(first, by_runner(first.outcome, artifact("a", "x"), status(states.COMPLETED), end=True))
    assert [event.ends for event in made.events] == [False, True]
    assert (made.record.session, made.record.ready) == (0, False)


def test_an_end_with_unread_messages_is_no_end() -> None:
    first = claimed()
    more = then(first, follow_up(first.record.ref, "more"))
    made = then(more, by_runner(first.outcome, status(states.COMPLETED, "done"), end=True))
    assert made.turn_continues
    assert made.record.state == states.WORKING
    assert events(made)[0].status_update.status.message.parts[0].text == "done"


def test_a_cancel_takes_the_claim_away() -> None:
    first = claimed()
    made = then(first, cancel(first.record.ref))
    assert (made.record.state, made.record.session) == (states.CANCELED, 0)
    with pytest.raises(AppendRejected, match="ended"):
        then(made, by_runner(first.outcome, artifact("late", "x")))


def test_a_claim_is_taken_only_of_a_task_that_is_ready() -> None:
    first = claimed()
    stolen = then(first, replace(follow_up(first.record.ref, "more"), claim_session=SESSION + 1))
    assert (stolen.record.session, stolen.outcome.claimed) == (SESSION, False)


def test_the_log_row_holds_every_event_with_its_length() -> None:
    first = claimed()
    made = then(first, by_runner(first.outcome, *[chunk("a", str(number)) for number in range(200)]))
    assert len(made.events) == 200
    assert len(made.log_row) > sum(len(event.data) for event in made.events)


def test_a_head_knows_whether_somebody_runs_the_task() -> None:
    head: TaskRecord = claimed().record
    assert head.running
    assert not replace(head, session=0).running
