"""Ranges of a selection, and the limits of one step of an erasure."""

from __future__ import annotations

import pytest

from dragoman.core.task import states
from dragoman.core.task.maintenance import ErasureCounts, TaskSelection
from dragoman.stores.shared.erasure import (
    SELECTION_PAGE_TASKS,
    TaskRange,
    count_fitting_rows,
    inactive_pairs,
    receipt_from_row,
    selects_active,
)

PAIRS = [("echo", states.COMPLETED), ("echo", states.INPUT_REQUIRED), ("other", states.COMPLETED)]


def rows(count: int) -> list[tuple[object, ...]]:
    return [(100 + n, 200 + n, "scope", "principal", b"%d" % n) for n in range(count)]


def test_only_a_full_page_has_a_next_one() -> None:
    task_range = TaskRange("t.owner = 1", ())
    assert task_range.next_cursor(rows(SELECTION_PAGE_TASKS - 1)) is None
    assert task_range.next_cursor([]) is None
    last = SELECTION_PAGE_TASKS - 1
    assert task_range.next_cursor(rows(SELECTION_PAGE_TASKS)) == (200 + last, b"%d" % last)


def test_a_cursor_has_the_columns_of_its_order() -> None:
    by_time, by_key = TaskRange("true", (), by_time=True), TaskRange("true", ())
    page, last = rows(SELECTION_PAGE_TASKS), SELECTION_PAGE_TASKS - 1
    assert (by_time.order, by_time.next_cursor(page)) == (
        "t.updated, t.owner, t.task",
        (100 + last, 200 + last, b"%d" % last),
    )
    assert by_key.order == "t.owner, t.task"


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        (TaskSelection(older_than=1), [PAIRS[0], PAIRS[2]]),  # by age alone: what has ended
        (TaskSelection(older_than=1, agent="echo"), [PAIRS[0]]),
        (TaskSelection(older_than=1, state=states.INPUT_REQUIRED), [PAIRS[1]]),
        (TaskSelection(older_than=1, state=states.WORKING), []),
    ],
)
def test_a_selection_covers_its_pairs_of_agent_and_state(
    selection: TaskSelection, found: list[tuple[str, int]]
) -> None:
    assert inactive_pairs(selection, PAIRS) == found


def test_active_tasks_are_selected_only_by_their_state() -> None:
    selected = {state for state in states.STORED_STATES if selects_active(TaskSelection(older_than=1, state=state))}
    assert selected == {states.SUBMITTED, states.WORKING}
    assert not selects_active(TaskSelection(older_than=1))


@pytest.mark.parametrize(
    ("sizes", "limit", "result"),
    [
        ([], 10, (0, 0, 0)),
        ([50], 10, (1, 2, 50)),  # a row larger than the limit is deleted alone
        ([4, 4, 4, 4], 10, (3, 6, 12)),
        ([5, 5, 5], 10, (2, 4, 10)),
        ([1, 1], 10, (2, 4, 2)),
    ],
)
def test_a_step_ends_with_the_row_that_reaches_its_limit(
    sizes: list[int], limit: int, result: tuple[int, int, int]
) -> None:
    assert count_fitting_rows([(2, size) for size in sizes], limit) == result


def test_a_receipt_is_read_with_its_six_counts() -> None:
    receipt = receipt_from_row((3, "purge", "context", 10, 20, 1, 2, 3, 4, 5, 6, "digest"))
    assert receipt.counts == ErasureCounts(1, 2, 3, 4, 5, 6)
    assert (receipt.number, receipt.began, receipt.ended, receipt.digest) == (3, 10, 20, "digest")
