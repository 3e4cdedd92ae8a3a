"""Planted faults: each is still in the source, and one of them is found. `make mutations` looks for all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulation.mutations import PAGE, PAGE_BEGIN, PAGE_END, SourceChanged, hunt_in_child, mutated_source, path_of
from tests.simulation.planted import MUTATIONS


def test_every_planted_fault_has_its_place_in_the_source() -> None:
    for mutation in MUTATIONS:
        source = path_of(mutation).read_text(encoding="utf-8")
        compile(mutated_source(mutation, source), mutation.module, "exec")
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 30


def test_a_fault_without_its_place_fails_loudly() -> None:
    missing = replace(MUTATIONS[0], text="not in the source")
    with pytest.raises(SourceChanged, match="has its text 0 times"):
        mutated_source(missing, "x = 1")


def test_a_planted_fault_is_found_in_a_process_of_its_own() -> None:
    (mutation,) = [one for one in MUTATIONS if one.name == "an artifact skips a sequence"]
    found = hunt_in_child(mutation)
    assert "its log is numbered" in found.problem
    assert found.histories <= 10


def test_the_page_has_a_row_of_every_planted_fault() -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(PAGE_BEGIN)
    rows = [line.split(" | ") for line in rest.partition(PAGE_END)[0].splitlines() if line][2:]
    assert [(row[0].removeprefix("| "), row[1]) for row in rows] == [(one.name, one.guarantee) for one in MUTATIONS]
