"""Shrinking: what does not make the difference is taken away."""

from __future__ import annotations

from tests.simulation.history import Outcome
from tests.simulation.plan import Plan, PlannedFault, PlannedOperation, Profile
from tests.simulation.shrink import kinds_of, shrink

ECHO, ASK = (PlannedOperation("blocking", words, 0.0, 0, number) for number, words in enumerate(("echo", "ask")))
KILL, STORM = PlannedFault("kill", 1.0, 8.0), PlannedFault("storm", 2.0, 1.0)
PLAN = Plan("1", 2, 8, ((ECHO, ASK), (ECHO,), (ASK,)), (STORM, KILL, STORM), Profile(losses=0.5, skew=2.0))


def fails_for_a_killed_question(plan: Plan) -> Outcome:
    """A history that fails if a server is killed while a task asks."""
    asks = any(operation.words == "ask" for caller in plan.callers for operation in caller)
    is_bad = asks and any(fault.kind == "kill" for fault in plan.faults) and plan.profile.losses > 0
    return Outcome(plan, (), (), [f"task {plan.operations}: is lost"] if is_bad else [])


def test_only_what_makes_a_history_fail_is_left() -> None:
    small = shrink(fails_for_a_killed_question(PLAN), play=fails_for_a_killed_question).plan
    assert (small.servers, small.callers, small.profile) == (1, ((ASK,),), Profile(losses=0.5))
    assert [(fault.kind, fault.seconds <= 1.0) for fault in small.faults] == [("kill", True)]


def test_other_problems_do_not_count() -> None:
    other = Outcome(PLAN, (), (), ["another problem"])
    assert shrink(other, play=fails_for_a_killed_question) is other


def test_problems_are_compared_without_numbers_and_ids() -> None:
    lost = "task 018bcfe5-686e-7000-b4cb-426fe449ddf2: is lost at {} s"
    assert kinds_of([lost.format("1.5")]) == kinds_of([lost.format("20").replace("018bcfe5", "018bcfe6")])
    assert kinds_of(["a"]) != kinds_of(["b"])
