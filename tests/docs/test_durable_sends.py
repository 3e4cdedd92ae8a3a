"""The figures of durable sends in the README are those of the last benchmark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
RESULTS: Final = (ROOT / "docs" / "explanation" / "performance.md").read_text()
TABLE: Final = re.compile(r"### Durable sends per second and core, 64 callers\n\n((?:\|[^\n]*\n)+)")


def measured() -> dict[str, tuple[float, float]]:
    """Lowest and highest rate of our server in the table, by binding."""
    (table,) = TABLE.findall(RESULTS)
    head, _, ours, *_ = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert ours[0] == "dragoman"
    ranges = [re.search(r"\[([\d,.]+?)\.\.([\d,.]+)\]", cell) for cell in ours[1:]]
    return {
        binding: (float(found[1].replace(",", "")), float(found[2].replace(",", "")))
        for binding, found in zip(head[1:], ranges, strict=True)
        if found
    }


@pytest.mark.parametrize("binding", ["JSON-RPC", "gRPC"])
def test_the_readme_gives_a_rate_that_was_measured(binding: str) -> None:
    (sentence,) = re.findall(r"One core starts and completes (.*?\.)", README.replace("\n", " "))
    found = re.search(rf"([\d,]+)(?: durable sends per second)? over {binding}", sentence)
    assert found, sentence
    lowest, highest = measured()[binding]
    assert lowest <= float(found[1].replace(",", "")) <= highest
