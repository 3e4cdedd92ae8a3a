"""The plot: rates of every server by kind of load and binding, as an SVG with one panel for each.

Bars are medians on a logarithmic scale, since the slowest and the fastest are apart by four powers of ten; the thin
line across the end of a bar is the range. Written by hand: it is rectangles and text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

from bench.rows import Key, Rows
from bench.sections import TIMED, Section
from bench.servers import OURS
from bench.spread import Spread, figure

WIDTH: Final = 340
BAR: Final = 18
LABEL: Final = 108
HEAD: Final = 44
GAP: Final = 24
COLUMNS: Final = 3
SHORTEST: Final = 0.4
"""Powers of ten that the shortest bar is long: a logarithm has no zero to begin at."""

FONT: Final = 'font-family="system-ui, sans-serif" font-size="11"'
COLOURS: Final = {"bare gRPC": "#9aa0a6", "bare HTTP": "#9aa0a6", OURS: "#0b7285"}
OTHER: Final = "#e8a33d"


@dataclass(frozen=True, slots=True)
class Bar:
    """One server's rate."""

    name: str
    rate: Spread


@dataclass(frozen=True, slots=True)
class Panel:
    """One section at its highest load."""

    title: str
    subtitle: str
    bars: list[Bar]

    @property
    def height(self) -> int:
        return HEAD + BAR * len(self.bars)


def panels(rows: Rows) -> Iterator[Panel]:
    """Those that were measured."""
    for section in TIMED:
        callers = next((count for count in reversed(section.callers) if _bars(rows, section, count)), None)
        if callers is not None:
            subtitle = f"{section.case(callers)}, {section.unit}, logarithmic"
            yield Panel(section.title, subtitle, _bars(rows, section, callers))


def svg(rows: Rows) -> str:
    """The picture; empty when nothing was measured that it shows."""
    found = list(panels(rows))
    if not found:
        return ""
    lines = [found[at : at + COLUMNS] for at in range(0, len(found), COLUMNS)]
    height = sum(max(panel.height for panel in line) + GAP for line in lines) + GAP
    width = COLUMNS * (WIDTH + GAP) + GAP
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" {FONT}>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    top = GAP
    for line in lines:
        for column, panel in enumerate(line):
            drawn += _panel(panel, GAP + column * (WIDTH + GAP), top)
        top += max(panel.height for panel in line) + GAP
    return "\n".join([*drawn, "</svg>", ""])


def _bars(rows: Rows, section: Section, callers: int) -> list[Bar]:
    found = ((name, rows.spread(Key(section.name, section.case(callers), name))) for name in section.servers)
    return [Bar(name, rate) for name, rate in found if rate is not None and rate.least > 0]


def _panel(panel: Panel, left: float, top: float) -> Iterator[str]:
    yield _text(left, top + 12, panel.title, 'font-weight="600"')
    yield _text(left, top + 28, panel.subtitle, 'fill="#5f6368"')
    low = math.log10(min(bar.rate.least for bar in panel.bars)) - SHORTEST
    high = math.log10(max(bar.rate.most for bar in panel.bars))
    room = WIDTH - LABEL - 60

    def place(value: float) -> float:
        return left + LABEL + room * (math.log10(value) - low) / max(high - low, 0.1)

    for number, bar in enumerate(panel.bars):
        y = top + HEAD + number * BAR
        end = place(bar.rate.median)
        yield _text(left, y + 11, bar.name)
        yield (
            f'<rect x="{left + LABEL:.1f}" y="{y}" width="{max(end - left - LABEL, 1):.1f}" height="{BAR - 5}" '
            f'fill="{COLOURS.get(bar.name, OTHER)}"/>'
        )
        middle = y + (BAR - 5) / 2
        yield (
            f'<line x1="{place(bar.rate.least):.1f}" x2="{place(bar.rate.most):.1f}" y1="{middle}" y2="{middle}" '
            'stroke="#202124" stroke-width="1.5"/>'
        )
        yield _text(max(end, place(bar.rate.most)) + 4, y + 11, figure(bar.rate.median))


def _text(x: float, y: float, text: str, style: str = 'fill="#202124"') -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
