"""Generated part of docs/how-to/scaling.md, and the medians it is computed from, in bench/sizing/medians.json.

The page is a function of these medians, so a test can compare it with the model at any time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from bench.report.tables import replace_generated, table
from bench.rows import Rows, format_number
from bench.sections import SIZING
from bench.sizing import plan as planning
from bench.sizing.cases import Kind, Store
from bench.sizing.constants import Measured, MemoryCosts, NotMeasured, demand, slowdown
from bench.sizing.plan import Costs, Plan
from bench.sizing.predictions import MAX_ERROR, Prediction, missing, predictions
from tools.environments import ROOT

DOCUMENT: Final = ROOT / "docs" / "how-to" / "scaling.md"
MEDIANS: Final = ROOT / "bench" / "sizing" / "medians.json"
BEGIN: Final = "<!-- make bench sizing: begin -->"
END: Final = "<!-- make bench sizing: end -->"
DIGITS: Final = 6
"""Significant digits of the stored medians."""


def medians(rows: Rows) -> dict[str, dict[str, float]]:
    """Returns the median of each field of each case."""
    found: dict[str, dict[str, float]] = {}
    for key in rows:
        if key.section == SIZING:
            fields = {name for (row,) in rows.joined(key) for name, value in row.items() if isinstance(value, float)}
            spreads = {name: rows.spread(key, name) for name in sorted(fields)}
            found[key.case] = {
                name: float(f"{spread.median:.{DIGITS}g}") for name, spread in spreads.items() if spread is not None
            }
    return found


def render(measured: Measured, description: str = "") -> str:
    """Returns the tables: constants, predictions, plans and limits; says which constants are missing."""
    parts = [description]
    for title, part in (
        ("### Constants", constants_table),
        ("### Predicted and measured", predictions_table),
        ("### What a load needs", plan_table),
        ("### Limits", limits_table),
    ):
        try:
            text = part(measured)
        except NotMeasured as error:
            text = f"No result: {error}."
        parts += [title, text]
    return "\n\n".join(part for part in parts if part)


def constants_table(measured: Measured) -> str:
    """Lists the constants of the model."""
    lines: list[tuple[str, ...]] = [("constant", "send, PostgreSQL", "send, SQLite", "paced chunk, PostgreSQL")]
    demands = [demand(measured, Kind.SEND), demand(measured, Kind.SEND, Store.SQLITE), demand(measured, Kind.PACED)]
    for title, values in (
        ("CPU apart from commits, µs", [one.unit * 1e6 for one in demands]),
        ("CPU of a commit, µs", [one.commit * 1e6 for one in demands]),
        ("wait of a write without CPU, µs", [one.delay * 1e6 for one in demands]),
        ("CPU of the caller, µs", [one.caller * 1e6 for one in demands]),
        ("writes of one commit at most", [one.full_batch for one in demands]),
    ):
        lines.append((title, *map(format_number, values)))
    memory = MemoryCosts.of(measured)
    factors = ", ".join(f"{slowdown(measured, servers):.2f}" for servers in (2, 3, 4))
    return (
        f"{table(lines)}\n\n"
        f"Factor of CPU times of two, three and four servers that share a core: {factors}. Memory:\n"
        f"{memory.idle / 1e6:.0f} MB of a server, {memory.stream / 1e3:.1f} KB of an open stream, "
        f"{memory.running / 1e3:.1f} KB of a running turn, {memory.waiting / 1e3:.1f} KB of a task that waits."
    )


def predictions_table(measured: Measured) -> str:
    """Lists every predicted figure beside the measured one, and counts those within the limit."""
    found = list(predictions(measured))
    if not found:
        return "No row was measured."
    lines: list[tuple[str, ...]] = [("case", "figure", "predicted", "measured", "error", f"within {MAX_ERROR:.0%}")]
    lines += [_prediction_line(one) for one in found]
    good = sum(one.verdict == "yes" for one in found)
    text = f"{table(lines)}\n\n{good} of {len(found)} figures are within {MAX_ERROR:.0%}."
    reasons = missing(measured)
    return text + ("\n\nNot compared:\n\n" + "\n".join(f"- {reason}" for reason in reasons) if reasons else "")


def _prediction_line(one: Prediction) -> tuple[str, ...]:
    values = format_number(one.predicted), format_number(one.measured)
    return (one.case, one.figure, *values, f"{one.error:+.0%}", one.verdict)


def plan_table(measured: Measured) -> str:
    """Lists what each load needs at its peak: a column per load."""
    costs = Costs.of(measured)
    plans = [planning.plan(costs, load) for load in planning.LOADS]
    lines: list[tuple[str, ...]] = [("at the peak", *(one.load.name for one in plans))]
    lines += [(title, *map(value, plans)) for title, value in PLAN_LINES]
    return table(lines)


PLAN_LINES: Final[tuple[tuple[str, Callable[[Plan], str]], ...]] = (
    ("sends per second", lambda one: _number(one.load.sends)),
    ("chunks per second", lambda one: _number(one.load.chunks)),
    ("running turns", lambda one: _number(one.load.turns)),
    ("open streams", lambda one: _number(one.load.streams)),
    ("server processes, one core each", lambda one: f"{one.processes:,} ({one.limited_by})"),
    ("cores that they use", lambda one: _number(one.server_cores)),
    ("memory of all servers", lambda one: _bytes(one.memory)),
    ("PostgreSQL: cores used", lambda one: _number(one.postgres_cores)),
    ("PostgreSQL: commits per second", lambda one: _number(one.commits)),
    ("PostgreSQL: WAL per second", lambda one: _bytes(one.wal)),
    ("database: growth per day", lambda one: _bytes(one.growth_per_day)),
    ("NATS: messages per second", lambda one: _number(one.nats_messages)),
    ("NATS: bytes per second", lambda one: _bytes(one.nats_bytes)),
    ("NATS: cores used", lambda one: _number(one.nats_cores)),
    ("a write, from agent to commit, ms", lambda one: _number(one.latency * 1e3)),
)
"""Labels and values of the lines of the plan."""


def limits_table(measured: Measured) -> str:
    """Lists the limits in the order of the loads that reach them."""
    lines: list[tuple[str, ...]] = [("", "limit", "reached at tasks a day", "what has to change")]
    for number, limit in enumerate(planning.limits(Costs.of(measured)), 1):
        lines.append((str(number), limit.name, _number(limit.tasks_per_day, digits=2), limit.change))
    return table(lines)


def _number(value: float, digits: int = 2) -> str:
    """Formats with few digits: these are predictions."""
    if value in (0, math.inf):
        return "0" if value == 0 else "never"
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def _bytes(value: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if value >= size:
            return f"{_number(value / size)} {unit}"
    return f"{_number(value)} B"


def report(rows: Rows) -> str:
    """Returns the report of a run for the terminal; empty without rows of this section."""
    measured = medians(rows)
    return f"## Sizing\n\n{render(measured)}\n" if measured else ""


def description(rows: Rows) -> str:
    """Describes the run: date, machine, rounds and whether the machine was quiet."""
    return " ".join(
        f"Measured on {run['date']}: {run['cpu']}, {run['cores']} cores, {run['disk'].partition(' ')[0]}, Python"
        f" {run['python']}; rounds: {run['arguments']['rounds']}, load average {run['busy']:.1f} before."
        for run in rows.run_rows
    )


def write(rows: Rows) -> Iterator[Path]:
    """Writes the medians and the page, and yields their paths relative to the root. Nothing without rows."""
    if measured := medians(rows):
        stored = {"description": description(rows), "medians": measured}
        MEDIANS.write_text(json.dumps(stored, indent=1) + "\n", "utf-8")
        yield MEDIANS.relative_to(ROOT)
        DOCUMENT.write_text(replace_generated(DOCUMENT.read_text("utf-8"), render_stored(), (BEGIN, END)), "utf-8")
        yield DOCUMENT.relative_to(ROOT)


def render_stored() -> str:
    """Returns the generated part from the stored medians."""
    stored: dict[str, Any] = json.loads(MEDIANS.read_text("utf-8"))
    return render(stored["medians"], stored["description"])
