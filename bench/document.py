"""The generated part of docs/explanation/performance.md, between its markers, and the plot beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench import plot, report
from bench.rows import Rows
from tools.environments import ROOT

DOCUMENT: Final = ROOT / "docs" / "explanation" / "performance.md"
PLOT: Final = ROOT / "docs" / "explanation" / "performance.svg"
BEGIN: Final = "<!-- make bench: begin -->"
END: Final = "<!-- make bench: end -->"


class NoMarkers(Exception):
    """The document has not both markers, each once."""


def write(rows: Rows) -> Iterator[Path]:
    """Writes both, and gives their paths from the root. Raises NoMarkers."""
    picture = plot.svg(rows)
    found = report.text(rows)
    if picture:
        PLOT.write_text(picture, "utf-8")
        yield PLOT.relative_to(ROOT)
        found = f"![Rates of every server by load and binding, logarithmic]({PLOT.name})\n\n{found}"
    DOCUMENT.write_text(replaced(DOCUMENT.read_text("utf-8"), found), "utf-8")
    yield DOCUMENT.relative_to(ROOT)


def replaced(document: str, generated: str) -> str:
    """The document with this between its markers."""
    if document.count(BEGIN) != 1 or document.count(END) != 1:
        raise NoMarkers(f"{DOCUMENT.name} needs {BEGIN} and {END}, each once")
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{generated.strip()}\n\n{END}{after}"
