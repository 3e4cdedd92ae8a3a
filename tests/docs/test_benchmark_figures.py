"""The figures of the README and of the comparison with other servers are those of the last benchmark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
RESULTS: Final = (ROOT / "docs" / "explanation" / "performance.md").read_text()
COMPARISON: Final = (ROOT / "docs" / "explanation" / "comparison.md").read_text()

DURABLE: Final = "Durable sends per second and core, 64 callers"

COMPARED: Final = {
    "blocking sends a second": ("JSON-RPC: blocking send, req/s", "64 callers"),
    "events a second, 16 streams of 100 chunks": ("JSON-RPC: streaming send of 100 chunks, events/s", "16 streams"),
    "events a second to 100 subscribers of one task": (
        "JSON-RPC: one task of 200 events and its subscribers, events/s",
        "100 subscribers",
    ),
    "GetTask with 50 messages, a second": ("JSON-RPC: GetTask with 50 messages, req/s", "16 callers"),
}
"""Rows of the comparison: heading and column of the results."""

SERVERS: Final = {
    "Dragoman": "dragoman",
    "a2a-sdk, SQLite": "a2a-sdk SQLite",
    "a2a-sdk, memory": "a2a-sdk memory",
    "fasta2a, memory": "fasta2a",
}
"""Columns of the comparison, as the results name them."""

SPREAD: Final = re.compile(r"\[([\d,.]+?)\.\.([\d,.]+)\]")


def number(text: str) -> float:
    return float(text.replace(",", ""))


def rows_below(text: str, before: str) -> dict[str, dict[str, str]]:
    """Cells of the first table behind a text, by the first cell of their row and the head of their column."""
    found = re.compile(r"(?:\|[^\n]*\n)+").search(text, text.index(before))
    assert found
    head, _, *lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in found[0].splitlines()]
    return {line[0]: dict(zip(head[1:], line[1:], strict=True)) for line in lines}


def measured(heading: str, server: str, column: str) -> tuple[float, float]:
    """Lowest and highest value of a server in a table of the results."""
    found = SPREAD.search(rows_below(RESULTS, f"### {heading}\n")[server][column])
    assert found
    return number(found[1]), number(found[2])


@pytest.mark.parametrize("binding", ["JSON-RPC", "gRPC"])
def test_the_readme_gives_a_rate_that_was_measured(binding: str) -> None:
    (sentence,) = re.findall(r"One core starts and completes (.*?\.)", README.replace("\n", " "))
    found = re.search(rf"([\d,]+)(?: durable sends per second)? over {binding}", sentence)
    assert found, sentence
    lowest, highest = measured(DURABLE, "dragoman", binding)
    assert lowest <= number(found[1]) <= highest


@pytest.mark.parametrize("row", COMPARED)
@pytest.mark.parametrize("server", SERVERS)
def test_the_comparison_gives_rates_that_were_measured(row: str, server: str) -> None:
    heading, column = COMPARED[row]
    lowest, highest = measured(heading, SERVERS[server], column)
    assert lowest <= number(rows_below(COMPARISON, "## Figures")[row][server]) <= highest
