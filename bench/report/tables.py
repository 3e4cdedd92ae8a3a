"""Markdown tables, and the generated part of a page between two markers."""

from __future__ import annotations

from collections.abc import Iterable


class NoMarkers(Exception):
    """The page does not contain each marker exactly once."""


def replace_generated(page: str, generated: str, markers: tuple[str, str]) -> str:
    """Returns the page with new text between its two markers. Raises NoMarkers."""
    begin, end = markers
    if page.count(begin) != 1 or page.count(end) != 1:
        raise NoMarkers(f"the page needs {begin} and {end}, each once")
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n\n{generated.strip()}\n\n{end}{after}"


def table(lines: Iterable[tuple[str, ...]]) -> str:
    """Returns a Markdown table with aligned columns."""
    rows = [list(line) for line in lines]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    rule = ["-" * width for width in widths]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |"
        for row in [rows[0], rule, *rows[1:]]
    )
