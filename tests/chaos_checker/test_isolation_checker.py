"""The isolation checker: any other answer than for a missing task is a violation."""

from __future__ import annotations

from tests.chaos.history import Foreign, Reused
from tests.chaos_checker.isolation_checker import judge_isolation, judge_reuse


def test_a_task_that_does_not_exist_for_others_passes() -> None:
    assert list(judge_isolation([Foreign(task="t", operation="GetTask", reason="TASK_NOT_FOUND")])) == []


def test_tasks_that_are_served_or_named_to_others_are_found() -> None:
    entries = [
        Foreign(task="t", operation="GetTask"),
        Foreign(task="t", operation="CancelTask", reason="TaskNotCancelable"),
    ]
    assert list(judge_isolation(entries)) == [
        "task t: GetTask of another principal was served",
        "task t: CancelTask of another principal was answered with TaskNotCancelable",
    ]


def test_a_key_belongs_to_one_message() -> None:
    assert list(judge_reuse([Reused(key="k", reason="IdempotencyKeyReused")])) == []
    assert list(judge_reuse([Reused(key="k")])) == ["key k: was accepted with another message"]
