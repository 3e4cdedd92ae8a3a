"""The page about the simulation lists every planted fault, and all of them are found."""

from __future__ import annotations

from tests.simulation.mutations import PAGE, PAGE_BEGIN, PAGE_END
from tests.simulation.planted import MUTATIONS


def test_the_page_has_a_row_for_every_planted_fault() -> None:
    table = PAGE.read_text(encoding="utf-8").partition(PAGE_BEGIN)[2].partition(PAGE_END)[0]
    lines = [line for line in table.splitlines() if line]
    rows = [line.strip("| ").split(" | ") for line in lines[2:]]
    assert [(row[0], row[1]) for row in rows] == [(one.name, one.guarantee) for one in MUTATIONS]
    assert all(int(row[2]) <= one.limit for row, one in zip(rows, MUTATIONS, strict=True))
