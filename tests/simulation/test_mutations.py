"""Planted faults: each is still in the source, and one of them is found. `make mutations` looks for all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulation.mutations import SourceChanged, hunt_in_child, mutated_source, path_of
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
