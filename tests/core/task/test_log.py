"""Guards of an append, and records of a task."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dragoman.core.task import states
from dragoman.core.task.log import (
    ABSENT,
    CHANGED,
    EXISTS,
    FENCED,
    IDEMPOTENCY_KEY_TTL_MS,
    NOT_READY,
    RUNNING,
    ArtifactChange,
    ClaimHeld,
    Exists,
    Guard,
    New,
    NoOpenTurn,
    NotClaimed,
    Ready,
    TaskRecord,
    Version,
    is_key_expired,
)
from dragoman.testing.fixtures import new_ref

IDLE = TaskRecord(new_ref(), "echo", "id", "context", states.INPUT_REQUIRED, updated=1, last_sequence=5)
WAITING = replace(IDLE, ready=True)
CLAIMED = replace(IDLE, session=7, token=3)


@pytest.mark.parametrize(
    ("guard", "record", "reason"),
    [
        (New(), None, None),
        (New(), IDLE, EXISTS),
        (ClaimHeld(7, 3), CLAIMED, None),
        (ClaimHeld(7, 2), CLAIMED, FENCED),  # the same session, which lost the task and claimed it again
        (ClaimHeld(8, 3), CLAIMED, FENCED),
        (ClaimHeld(7, 3), replace(CLAIMED, session=0), FENCED),
        (Exists(), CLAIMED, None),
        (Exists(), IDLE, None),
        (NotClaimed(), IDLE, None),
        (NotClaimed(), WAITING, None),
        (NotClaimed(), CLAIMED, RUNNING),
        (NoOpenTurn(), IDLE, None),
        (NoOpenTurn(), CLAIMED, RUNNING),
        (NoOpenTurn(), WAITING, RUNNING),
        (Ready(), WAITING, None),
        (Ready(), IDLE, NOT_READY),
        (Ready(), CLAIMED, NOT_READY),
        (Version(5), IDLE, None),
        (Version(4), IDLE, CHANGED),
        (Version(6), IDLE, CHANGED),
    ],
)
def test_a_guard_gives_its_reason(guard: Guard, record: TaskRecord | None, reason: str | None) -> None:
    assert guard.rejection(record) == reason


@pytest.mark.parametrize("guard", [ClaimHeld(7, 3), Exists(), NotClaimed(), NoOpenTurn(), Ready(), Version(0)])
def test_a_missing_task_is_absent_for_every_guard_but_new(guard: Guard) -> None:
    assert guard.rejection(None) == ABSENT


def test_a_turn_is_open_while_it_waits_or_runs() -> None:
    assert [(one.running, one.has_open_turn) for one in (IDLE, WAITING, CLAIMED)] == [
        (False, False),
        (False, True),
        (True, True),
    ]


def test_a_copy_has_all_fields_and_changes_alone() -> None:
    copy = CLAIMED.copy()
    assert copy == CLAIMED
    copy.session = 0
    assert CLAIMED.session == 7


def test_the_size_of_an_artifact_change_counts_all_that_it_adds() -> None:
    parts = ArtifactChange("a", head=b"12", parts=b"345", tail=b"6", metadata=b"78")
    assert parts.size == 8
    assert ArtifactChange("a", head=b"12", text="345").size == 5


def test_a_key_may_be_reused_only_after_its_last_millisecond() -> None:
    last = 1000 + IDEMPOTENCY_KEY_TTL_MS
    assert not is_key_expired(1000, last)
    assert is_key_expired(1000, last + 1)
