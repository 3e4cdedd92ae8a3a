"""The step checker: only a step that runs after its result was returned is a violation."""

from __future__ import annotations

from tests.chaos.actions import Action
from tests.chaos_checker.step_checker import finished_steps, judge_steps

RUNS = Action(1.0, "t", 1, "step 0", "server.1")
RETURNED = Action(2.0, "t", 1, "returned 0", "server.1")
AGAIN = Action(3.0, "t", 2, "step 0", "server.2")
REPLAYED = Action(3.5, "t", 2, "returned 0", "server.2")


def test_a_step_that_ran_once_and_was_returned_twice_passes() -> None:
    assert list(judge_steps([RUNS, RETURNED, REPLAYED])) == []


def test_a_step_that_was_interrupted_may_run_again() -> None:
    assert list(judge_steps([RUNS, AGAIN, REPLAYED])) == []


def test_a_step_that_runs_after_its_result_was_returned_is_found() -> None:
    (problem,) = judge_steps([RUNS, RETURNED, AGAIN])
    assert problem.startswith("task t: step 0 ran at 3.000 in server.2, attempt 2; its result was returned at 2.000")


def test_steps_of_other_tasks_and_numbers_are_others() -> None:
    others = [Action(3.0, "u", 1, "step 0"), Action(3.0, "t", 1, "step 1"), Action(3.0, "t", 1, "chunk 0")]
    assert list(judge_steps([RUNS, RETURNED, *others])) == []


def test_finished_steps_are_counted_once() -> None:
    assert finished_steps([RUNS, RETURNED, AGAIN, REPLAYED]) == 1
