"""The checker of called agents finds each broken rule, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.chaos.history import Canceled, Entry, Fault, Got
from tests.chaos_checker.checker import StoredTask
from tests.simulation.called.judge import UNPROVOKED, judge_called
from tests.simulation.called.peer import Work
from tests.simulation.plan import Plan, PlannedOperation, Profile

from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

STRUCK = Plan("called", profile=Profile(lost_calls=0.1), called=True)
CALM = replace(STRUCK, profile=Profile())
COMPLETED = StoredTask("T", states.COMPLETED, 1, [], ["m-1"], "echo #1", agent="upstream")
CANCELED = replace(COMPLETED, state=states.CANCELED, times=(1.0, 5.0))


def _work(state: int, ended: float | None, *cancels: float) -> Work:
    message = pb.Message(message_id="m-1")
    work = Work("upstream-1", "upstream", "", "echo #1", messages=[message], state=state, began=1.0)
    work.ended, work.cancels = ended, list(cancels)
    return work


def _judge(task: StoredTask, *works: Work, entries: tuple[Entry, ...] = (), plan: Plan = STRUCK) -> list[str]:
    return judge_called(plan, entries, {task.id: task}, works, recovered=10.0)


def test_a_task_that_ends_with_its_work_is_good() -> None:
    assert _judge(COMPLETED, _work(states.COMPLETED, 4.0)) == []
    assert _judge(CANCELED, _work(states.CANCELED, 4.0, 3.0)) == []
    assert _judge(CANCELED) == []  # nothing was delivered


@pytest.mark.parametrize("ended", [None, 5.1])
def test_canceled_means_that_the_work_has_stopped(ended: float | None) -> None:
    (problem,) = _judge(CANCELED, _work(states.WORKING, ended))
    assert "its work at upstream went on" in problem


def test_the_first_report_of_canceled_counts() -> None:
    late = _work(states.CANCELED, 4.5, 4.4)
    assert _judge(CANCELED, late) == []
    (problem,) = _judge(CANCELED, late, entries=(Got(at=4.0, task="T", state=states.CANCELED),))
    assert "Got said CANCELED at 4.000 s" in problem
    assert "told 0.400 s later" in problem


def test_a_problem_says_when_nothing_was_struck() -> None:
    (problem,) = _judge(CANCELED, _work(states.WORKING, None), plan=CALM)
    assert problem.endswith(UNPROVOKED)


def test_a_notification_confirms_no_cancel_of_a_tool() -> None:
    task = replace(CANCELED, agent="tools", text="run sleep 100 #1")
    work = replace(_work(states.WORKING, 6.0, 4.9), peer="tools", tool="run", text="sleep 100 #1")
    (problem,) = _judge(task, work)
    assert "its work at tools went on until 1.000 s later" in problem
    unknown = replace(task, state=states.FAILED, reason="OUTCOME_UNKNOWN")
    operation = PlannedOperation("cancel", "sleep 100", 0.0, 0, 1, "tools/run")
    assert _judge(unknown, work, plan=replace(CALM, callers=((operation,),))) == []
    assert _judge(unknown, work) == ["task T: failed because of OUTCOME_UNKNOWN, and its work has not"]


def test_an_accepted_cancel_reaches_the_work() -> None:
    accepted = (Canceled(at=3.0, task="T", state=states.WORKING),)
    assert _judge(COMPLETED, _work(states.COMPLETED, 40.0, 20.0), entries=accepted) == []
    assert _judge(COMPLETED, _work(states.COMPLETED, 24.0), entries=accepted) == []  # it may have come first
    assert _judge(COMPLETED, _work(states.COMPLETED, 40.0), entries=()) == []
    for cancels in ((), (30.0,)):
        (problem,) = _judge(COMPLETED, _work(states.COMPLETED, 40.0, *cancels), entries=accepted)
        assert "its cancel was accepted at 3.000 s, its work at upstream was never told" in problem


def test_a_call_of_a_tool_may_be_lost_with_its_process() -> None:
    task = replace(CANCELED, agent="tools", text="run sleep 100 #1", state=states.FAILED, reason="OUTCOME_UNKNOWN")
    work = replace(_work(states.WORKING, None), peer="tools", tool="run", text="sleep 100 #1")
    plan = replace(STRUCK, callers=((PlannedOperation("cancel", "sleep 100", 0.0, 0, 1, "tools/run"),),))
    accepted = Canceled(at=3.0, task="T", state=states.WORKING)
    for fault in (
        Fault(at=2.0, how="kill"),
        Fault(at=0.5, how="pause", seconds=6.0),
        Fault(at=2.0, how="pause", part="postgres"),
    ):
        assert _judge(task, work, entries=(fault, accepted), plan=plan) == []
    killed = (Fault(at=2.0, how="kill"), accepted)
    for entries, other in (
        ((accepted,), task),
        ((Fault(at=0.5, how="kill"), accepted), task),
        ((Fault(at=2.0, how="kill", part="worker"), accepted), task),
        (killed, replace(task, reason="MCP_LOST")),
    ):
        (problem,) = _judge(other, work, entries=entries, plan=plan)
        assert "its work at tools was never told" in problem


def test_a_message_begins_one_piece_of_work() -> None:
    first, second = _work(states.COMPLETED, 3.0), _work(states.COMPLETED, 4.0)
    assert _judge(COMPLETED, first, second) == ["task T: upstream has begun 2 times to work for m-1"]
    first.is_lost = True
    assert _judge(COMPLETED, first, second) == []


def test_only_a_tool_that_may_be_repeated_is_called_twice() -> None:
    task = replace(COMPLETED, agent="tools", text="run echo #1")
    twice = [replace(_work(states.COMPLETED, 3.0), peer="tools", tool="run", text="echo #1") for _ in range(2)]
    assert _judge(task, *twice) == ["task T: tools has begun 2 times to work for echo #1"]
    assert _judge(replace(task, text="look echo #1"), *(replace(one, tool="look") for one in twice)) == []


def test_a_completed_task_has_completed_work_and_nothing_that_goes_on() -> None:
    assert _judge(COMPLETED) == ["task T: completed, and no work for it has"]
    assert _judge(COMPLETED, _work(states.FAILED, 3.0)) == ["task T: completed, and no work for it has"]
    other = replace(_work(states.WORKING, None), messages=[pb.Message(message_id="m-2")])
    task = replace(COMPLETED, messages=["m-1", "m-2"])
    assert _judge(task, _work(states.COMPLETED, 3.0), other) == ["task T: completed, and upstream-1 goes on"]


def test_a_failed_task_has_failed_work_or_a_reason_that_something_explains() -> None:
    failed = replace(COMPLETED, state=states.FAILED)
    assert _judge(failed, _work(states.FAILED, 3.0)) == []
    assert _judge(failed, _work(states.COMPLETED, 3.0)) == ["task T: failed because of nothing, and its work has not"]
    unknown = replace(failed, reason="UPSTREAM_UNKNOWN")
    assert _judge(unknown, _work(states.COMPLETED, 3.0)) == []
    assert _judge(unknown, _work(states.COMPLETED, 3.0), plan=CALM) == [f"task T: UPSTREAM_UNKNOWN{UNPROVOKED}"]
