"""What a growing artifact records for compaction."""

from __future__ import annotations

import pytest

from dragoman.core.task.plan import plan
from dragoman.stores.shared import compaction
from dragoman.stores.shared.compaction import MIN_GROWN_ROWS, ArtifactGrowth
from dragoman.testing.fixtures import SESSION, by_runner, chunk, created, new_ref


def test_growth_is_counted_for_a_limited_number_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MAX_COUNTED_TASKS", 3)
    growth = ArtifactGrowth()
    for _ in range(10):
        first = plan(None, created(new_ref(), claim=SESSION), 1)
        growth.record((1, first.record.ref.key), plan(first.record, by_runner(first.outcome, chunk("out", "x")), 2))
    assert len(growth._rows) == 3


def test_growth_is_recorded_once_it_is_worth_it() -> None:
    growth, first = ArtifactGrowth(), plan(None, created(new_ref(), claim=SESSION), 1)
    one_more = plan(first.record, by_runner(first.outcome, chunk("out", "x")), 2)
    recorded = [growth.record((1, b"task"), one_more) for _ in range(2 * MIN_GROWN_ROWS)]
    assert [rows for rows, _ in recorded if rows] == [MIN_GROWN_ROWS] * 2
    assert recorded[MIN_GROWN_ROWS - 1] == (MIN_GROWN_ROWS, False)
