"""Plot of the rates of every server, as an SVG with one panel per section.

Bars are medians on a logarithmic scale, since the rates differ by four powers of ten; the thin line across the end of a
bar is the range. The SVG is only rectangles and text, so no plotting library is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

from bench.rows import Key, Rows, Spread, format_number
from bench.sections import TIMED, Section
from bench.servers.contestants import CEILING, DRAGOMAN

WIDTH: Final = 340
BAR: Final = 18
LABEL: Final = 108
HEAD: Final = 44
GAP: Final = 24
COLUMNS: Final = 3
SHORTEST_BAR: Final = 0.4
"""Length of the shortest bar in powers of ten, since a logarithmic axis has no zero."""

FONT: Final = 'font-family="system-ui, sans-serif" font-size="11"'
COLORS: Final = {"bare gRPC": "#9aa0a6", "bare HTTP": "#9aa0a6", CEILING: "#5f6368", DRAGOMAN: "#0b7285"}
OTHER: Final = "#e8a33d"


@dataclass(frozen=True, slots=True)
class Bar:
    """One server's rate."""

    name: str
    rate: Spread


@dataclass(frozen=True, slots=True)
class Panel:
    """One section at its highest measured load."""

    title: str
    subtitle: str
    bars: list[Bar]

    @property
    def height(self) -> int:
        return HEAD + BAR * len(self.bars)


def panels(rows: Rows) -> Iterator[Panel]:
    """Yields a panel for each measured section."""
    for section in TIMED:
        callers = next((count for count in reversed(section.callers) if _bars(rows, section, count)), None)
        if callers is not None:
            subtitle = f"{section.case(callers)}, {section.unit}, logarithmic"
            yield Panel(section.title, subtitle, _bars(rows, section, callers))


def svg(rows: Rows) -> str:
    """Returns the SVG; empty without measured sections."""
    all_panels = list(panels(rows))
    if not all_panels:
        return ""
    lines = [all_panels[at : at + COLUMNS] for at in range(0, len(all_panels), COLUMNS)]
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
    rates = ((name, rows.spread(Key(section.name, section.case(callers), name))) for name in section.servers)
    return [Bar(name, rate) for name, rate in rates if rate is not None and rate.minimum > 0]


def _panel(panel: Panel, left: float, top: float) -> Iterator[str]:
    yield _text(left, top + 12, panel.title, 'font-weight="600"')
    yield _text(left, top + 28, panel.subtitle, 'fill="#5f6368"')
    low = math.log10(min(bar.rate.minimum for bar in panel.bars)) - SHORTEST_BAR
    high = math.log10(max(bar.rate.maximum for bar in panel.bars))
    room = WIDTH - LABEL - 60

    def position(value: float) -> float:
        return left + LABEL + room * (math.log10(value) - low) / max(high - low, 0.1)

    for number, bar in enumerate(panel.bars):
        y = top + HEAD + number * BAR
        end = position(bar.rate.median)
        yield _text(left, y + 11, bar.name)
        yield (
            f'<rect x="{left + LABEL:.1f}" y="{y}" width="{max(end - left - LABEL, 1):.1f}" height="{BAR - 5}" '
            f'fill="{COLORS.get(bar.name, OTHER)}"/>'
        )
        middle = y + (BAR - 5) / 2
        yield (
            f'<line x1="{position(bar.rate.minimum):.1f}" x2="{position(bar.rate.maximum):.1f}" '
            f'y1="{middle}" y2="{middle}" '
            'stroke="#202124" stroke-width="1.5"/>'
        )
        yield _text(max(end, position(bar.rate.maximum)) + 4, y + 11, format_number(bar.rate.median))


def _text(x: float, y: float, text: str, style: str = 'fill="#202124"') -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
