"""The checker of constant cost finds work that grows with a task, and nothing else; so does the count of leftovers."""

from __future__ import annotations

from tests.chaos.history import Entry, Opened
from tests.chaos_checker.checker import StoredTask
from tests.simulation.operated.work import TaskWork, Work
from tests.simulation.operated.work_judge import EVENT_BYTES, LONG, judge_work

from dragoman.core.task import states

TASK = StoredTask("T", states.COMPLETED, 63, [], [], f"{LONG} 10 #1", begun=1)


def _judge(work: TaskWork, *entries: Entry, task: StoredTask = TASK) -> list[str]:
    return judge_work(entries, {"T": task}, {"T": work})


def _written() -> TaskWork:
    work = TaskWork()
    work.work = [Work(sequence, 1, 2, 2 * EVENT_BYTES) for sequence in range(1, 64)]
    return work


def test_each_event_may_be_written_twice_however_many_are_in_a_commit() -> None:
    assert _judge(_written()) == []
    batch = TaskWork()
    batch.work = [Work(63, 63, 126, 126 * EVENT_BYTES)]
    assert _judge(batch) == []


def test_work_that_grows_with_the_task_is_found_late_in_it() -> None:
    work = _written()
    work.work += [Work(sequence, 0, sequence, sequence * EVENT_BYTES) for sequence in range(1, 64)]
    (problem,) = _judge(work)
    assert problem.startswith("task T: events 1 to 15 cost")
    late = _written()
    late.work += [Work(50, 0, 52, 50 * EVENT_BYTES)]
    (problem,) = _judge(late)
    assert problem.startswith("task T: events 46 to 60 cost")
    # It is the Task of a reader without a cursor.
    assert _judge(late, Opened(follower=1, task="T", binding="")) == []
    assert _judge(late, Opened(follower=1, task="T", binding="", after=49)) == [problem]


def test_an_event_is_read_once_for_each_connection_that_has_not_seen_it() -> None:
    work = _written()
    work.log_reads.update({40: 1, 41: 2})
    first, second = (
        Opened(follower=1, task="T", binding="", after=39),
        Opened(follower=1, task="T", binding="", after=40),
    )
    assert _judge(work, first, second) == []
    assert _judge(work, second) == ["task T: event 40 was read 1 times, for 0 connections"]
    assert _judge(work, first) == ["task T: event 41 was read 2 times, for 1 connections"]
