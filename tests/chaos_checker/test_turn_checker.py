"""The turn checker: only what an agent does after another server began its turn is a violation."""

from __future__ import annotations

from tests.chaos.actions import BEGIN, END, Action
from tests.chaos_checker.checker import StoredTask
from tests.chaos_checker.turn_checker import RECEIVED, judge_messages, judge_overlaps

from dragoman.core.task import states

FIRST = Action(1.0, "t", 1, BEGIN, "server.1")
SECOND = Action(5.0, "t", 2, BEGIN, "server.2")


def test_a_turn_that_another_server_continues_passes() -> None:
    actions = [FIRST, Action(2.0, "t", 1, "tick", "server.1"), SECOND, Action(6.0, "t", 2, "tick", "server.2")]
    assert list(judge_overlaps(actions)) == []


def test_what_an_agent_does_while_it_stops_may_come_later() -> None:
    assert list(judge_overlaps([FIRST, SECOND, Action(6.0, "t", 1, END, "server.1")])) == []


def test_two_servers_that_run_one_turn_are_found() -> None:
    (problem,) = judge_overlaps([FIRST, SECOND, *[Action(6.0, "t", 1, "tick", "server.1")] * 2])
    assert problem == ("task t: tick of attempt 1 at 6.000 in server.1, and attempt 2 had begun at 5.000 in server.2")


def test_tasks_do_not_concern_each_other() -> None:
    assert (
        list(judge_overlaps([FIRST, Action(5.0, "u", 1, BEGIN, "server.2"), Action(6.0, "t", 1, "x", "server.1")]))
        == []
    )


def test_an_interrupted_attempt_is_followed_by_one_with_a_higher_number() -> None:
    again = Action(5.0, "t", 1, BEGIN, "server.2")
    (problem,) = judge_overlaps([FIRST, again])
    assert problem.startswith("task t: attempt 1 began at 5.000 in server.2, after attempt 1 at 1.000")
    assert list(judge_overlaps([FIRST, Action(2.0, "t", 1, END, "server.1"), again])) == []


def received(*actions: str) -> list[str]:
    """The verdict on a task with the messages m1 and m2; each action is `ATTEMPT:begin` or `ATTEMPT:MESSAGE`."""
    task = StoredTask("t", states.COMPLETED, 0, (), ["m1", "m2"], "listen 1 #1")
    parts = [action.split(":") for action in actions]
    texts = [(int(attempt), BEGIN if what == BEGIN else f"{RECEIVED} {what}") for attempt, what in parts]
    return list(judge_messages([Action(at, "t", *text) for at, text in enumerate(texts)], {"t": task}))


def test_each_message_of_a_listener_is_received_once() -> None:
    assert received("1:begin", "1:m1", "1:m2") == []
    assert received("1:begin", "1:m1", "1:begin", "1:m2") == []
    assert received("1:begin", "1:m1") == ["task t: completed, its agent has not received message m2"]
    twice = ["task t: its agent has received message m2 2 times"]
    assert received("1:begin", "1:m1", "1:m2", "1:m2") == twice
    assert received("1:begin", "1:m1", "1:m2", "1:begin", "1:m2") == twice
    assert received("1:begin", "1:m1", "1:m2", "1:m2", "2:begin", "2:m1") == twice


def test_what_an_interrupted_attempt_received_comes_again() -> None:
    assert received("1:begin", "1:m1", "1:m2", "2:begin", "2:m1", "2:m2") == []
    # The second attempt gave up before it had read the message, so the next turn begins with it.
    assert received("1:begin", "1:m1", "1:m2", "2:begin", "2:m1", "1:begin", "1:m2") == []
    assert received("1:begin", "1:m1", "2:begin", "2:m1", "2:m2", "1:begin", "1:m2") == [
        "task t: its agent has received message m2 2 times"
    ]


def test_a_replaced_attempt_of_a_worker_does_not_count() -> None:
    assert received("1:begin", "1:m1", "2:begin", "1:m2", "2:m1", "2:m2") == []
