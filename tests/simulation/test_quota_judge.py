"""The checker of quotas finds each broken rule, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from tests.chaos.history import Acknowledged, Entry, Rejected, Sent
from tests.chaos_checker.checker import StoredTask
from tests.simulation.operated.quota_judge import Bucket, judge_quotas
from tests.simulation.operated.quotas import (
    QUEUED_BYTES,
    REQUESTS_PER_SECOND,
    STARTS_PER_MINUTE,
    Limited,
    Queued,
    Requested,
    Served,
)

from dragoman.core.task import states

TASK = StoredTask("T", states.COMPLETED, 3, [], [], "echo #1", agent="direct", times=(1.0, 9.0))


def _judge(*entries: Entry, tasks: tuple[StoredTask, ...] = (), is_prompt: bool = True) -> list[str]:
    return judge_quotas(entries, {task.id: task for task in tasks}, 0.0, is_prompt=is_prompt)


def _rejected(at: float, limit: str, maximum: int, retry_after: float, text: str = "echo") -> list[Entry]:
    return [
        Sent(at=at - 0.01, op=1, message="m-1", binding="", how="at once", text=text),
        Served(at=at - 0.01, op=1, process="server0.1"),
        Rejected(at=at, op=1, reason="RateLimited"),
        Limited(at=at, op=1, limit=limit, maximum=str(maximum), retry_after=retry_after),
    ]


def test_a_bucket_is_full_at_first_and_gets_one_token_at_a_time() -> None:
    bucket = Bucket(2, 10.0)
    assert [bucket.take(1.0), bucket.take(1.0)] == [2.0, 1.0]
    assert bucket.wait(1.0) == 10.0
    assert bucket.wait(8.5) == 2.5
    assert bucket.tokens(100.0) == 2.0


def test_live_tasks_are_never_more_than_the_quota_and_none_is_rejected_below_it() -> None:
    live = [replace(TASK, id=str(number), times=(1.0 + number, 9.0)) for number in range(3)]
    assert _judge(tasks=tuple(live[:2])) == []
    assert _judge(tasks=tuple(live)) == ["3 tasks were live at 3.000 s, and 2 may be"]
    rejected = _rejected(3.1, "live_tasks_per_agent", 2, 5.0)
    assert _judge(*rejected, tasks=tuple(live[:2])) == []
    assert _judge(*rejected, tasks=tuple(live[:1])) == ["op 1: rejected at 3.100 s, with 1 live tasks, and 2 may be"]
    assert _judge(*rejected, tasks=tuple(live[:1]), is_prompt=False) == []
    early = _rejected(3.1, "live_tasks_per_agent", 2, 0.5)
    assert _judge(*early, tasks=tuple(live[:2])) == [
        "op 1: rejected with a quota of 2, to be sent again after 0.5 s"
    ]  # fmt: skip


def _starts(count: int, at: float = 1.0) -> tuple[list[Entry], tuple[StoredTask, ...]]:
    entries, tasks = list[Entry](), list[StoredTask]()
    for number in range(10, 10 + count):
        entries.append(Served(at=at, op=number, process="server0.1"))
        entries.append(Acknowledged(at=at, op=number, task=f"T{number}", state=1))
        tasks.append(replace(TASK, id=f"T{number}", agent="rated", times=(at, at)))
    return entries, tuple(tasks)


def test_a_process_begins_a_minutes_worth_of_turns_at_once_and_no_more() -> None:
    entries, tasks = _starts(STARTS_PER_MINUTE)
    assert _judge(*entries, tasks=tasks) == []
    later = replace(tasks[0], id="T99", times=(11.0, 11.0))
    of_later = [Served(at=11.0, op=99, process="server0.1"), Acknowledged(at=11.0, op=99, task="T99", state=1)]
    assert _judge(*entries, *of_later, tasks=(*tasks, later)) == []
    entries, tasks = _starts(STARTS_PER_MINUTE + 1)
    assert _judge(*entries, tasks=tasks) == ["server0.1 began 7 turns by 1.000 s, and 6 per minute may begin"]
    elsewhere = [replace(entry, process="server1.1") if isinstance(entry, Served) else entry for entry in entries[-2:]]
    assert _judge(*entries[:-2], *elsewhere, tasks=tasks) == []


def test_a_start_is_rejected_only_above_the_rate_and_with_the_time_at_which_it_may_begin() -> None:
    entries, tasks = _starts(STARTS_PER_MINUTE)
    assert _judge(*entries, *_rejected(4.0, "starts_per_minute", 6, 7.0), tasks=tasks) == []
    (problem,) = _judge(*entries, *_rejected(4.0, "starts_per_minute", 6, 3.0), tasks=tasks)
    assert "to be sent again after 3.000 s, and accepted after 7.000 to 7.010" in problem
    problem = _judge(*entries[:-2], *_rejected(4.0, "starts_per_minute", 6, 7.0), tasks=tasks[:-1])[0]
    assert problem == "op 1: rejected at 4.000 s, and server0.1 had begun 5 turns"


def test_requests_are_taken_up_to_the_rate_and_rejected_above_it() -> None:
    most = 2 * REQUESTS_PER_SECOND
    taken = [Requested(at=1.0, process="server0.1") for _ in range(most)]
    rejected = Requested(at=1.1, process="server0.1", retry_after=0.1)
    assert _judge(*taken, rejected, replace(taken[0], at=1.2)) == []
    assert _judge(*taken, taken[0]) == ["server0.1 took 11 requests by 1.000 s, and 5 a second may be"]
    (problem,) = _judge(*taken[1:], rejected)
    assert "rejected request 10 at 1.100 s, to be sent again after 0.100 s, and accepted after 0.000" in problem
    (problem,) = _judge(*taken, replace(rejected, retry_after=5.0))
    assert "to be sent again after 5.000 s, and accepted after 0.100 to 0.100" in problem


def test_messages_wait_within_the_quota_or_alone() -> None:
    assert _judge(Queued(at=1.0, messages=1, size=QUEUED_BYTES + 1), Queued(at=2.0, messages=2, size=100)) == []
    assert _judge(Queued(at=1.0, messages=2, size=QUEUED_BYTES + 1)) == [
        "2 messages of 40001 bytes waited at 1.000 s: 40000 may"
    ]
    full, rejected = Queued(at=1.0, messages=2, size=39_000), _rejected(2.0, "queued_bytes", QUEUED_BYTES, 5.0)
    assert _judge(full, *rejected) == []
    assert _judge(replace(full, size=100), *rejected) == [
        "op 1: rejected at 2.000 s, with 100 queued bytes, and 40000 may be"
    ]


def test_a_rejected_message_is_in_no_task_unless_it_was_sent_again() -> None:
    rejected = _rejected(2.0, "queued_bytes", QUEUED_BYTES, 5.0)
    stored = replace(TASK, messages=["m-1"])
    problem = "op 1: rejected by a quota, and its message is in task T"
    assert problem in _judge(*rejected, tasks=(stored,))
    again = Sent(at=9.0, op=2, message="m-1", binding="", how="at once", text="echo")
    assert problem not in _judge(*rejected, again, tasks=(stored,))
