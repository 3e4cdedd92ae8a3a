"""Rows of a run: one JSON object per line, written as each value is measured, and read by the report.

Every row has `section`, `case`, `server`, `round`, `value` and `unit`, and further fields of its section.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of the values of several rounds."""

    median: float
    minimum: float
    maximum: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Self | None:
        """Returns the spread of these values; None for no values."""
        ordered = sorted(values)
        if not ordered:
            return None
        return cls(statistics.median(ordered), ordered[0], ordered[-1], len(ordered))

    def __str__(self) -> str:
        """Formats as `1,795 [1,771..1,847]`; a single value has no range."""
        if self.count == 1:
            return format_number(self.median)
        return f"{format_number(self.median)} [{format_number(self.minimum)}..{format_number(self.maximum)}]"


def format_number(value: float) -> str:
    """Formats a number with three significant digits and all digits before the point: 12,345, 123, 12.3, 0.123."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1 or size == 0:
        return f"{value:.2f}"
    return f"{value:.3f}"


class Key(NamedTuple):
    """Identifies a measurement: section, case and server."""

    section: str
    case: str
    server: str


class Writer:
    """Appends rows to a new file, so that an interrupted run loses nothing, and keeps them in memory."""

    def __init__(self, path: Path, run_row: Row) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("x", encoding="utf-8")
        self.path = path
        self.rows: list[Row] = []
        self._write(run_row)

    def add(self, key: Key, number: int, value: float, unit: str, **more: Any) -> None:
        """Writes a value of round `number`."""
        self._write({**key._asdict(), "round": number, "value": value, "unit": unit, **more})

    def add_failure(self, key: Key, number: int, reason: str) -> None:
        """Writes a failed measurement."""
        self._write({**key._asdict(), "round": number, "error": reason})

    def close(self) -> None:
        self._file.close()

    def _write(self, row: Row) -> None:
        self.rows.append(row)
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()


class Rows:
    """Rows of one or several runs. Rounds of different runs are distinct, so ratios never mix runs."""

    def __init__(self, runs: Iterable[Iterable[Row]]) -> None:
        self.run_rows: list[Row] = []
        self.errors: list[Row] = []
        self._rounds: dict[Key, dict[tuple[int, int], Row]] = {}
        for run, rows in enumerate(runs):
            for row in rows:
                self._add(run, row)

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Self:
        """Reads files of rows. An incomplete last line is ignored."""
        return cls(list(_lines(path)) for path in paths)

    def _add(self, run: int, row: Row) -> None:
        if row["section"] == "run":
            self.run_rows.append(row)
        elif "error" in row:
            self.errors.append(row)
        else:
            self._rounds.setdefault(Key(row["section"], row["case"], row["server"]), {})[run, row["round"]] = row

    def __iter__(self) -> Iterator[Key]:
        """Iterates over the measurements in the order in which they were made."""
        return iter(self._rounds)

    def __contains__(self, key: Key) -> bool:
        return key in self._rounds

    def spread(self, key: Key, field: str = "value") -> Spread | None:
        """Returns the spread of a field over all rounds; None if it was not measured."""
        return Spread.of(row[field] for row in self._rounds.get(key, {}).values() if field in row)

    def ratio(self, above: Key, below: Key, field: str = "value") -> Spread | None:
        """Returns the spread of the ratios within each round; None if no round has both values."""
        return Spread.of(top[field] / bottom[field] for top, bottom in self.joined(above, below) if bottom[field])

    def joined(self, *keys: Key) -> Iterator[tuple[Row, ...]]:
        """Yields the rows of each round that has all of these measurements."""
        rounds_by_key = [self._rounds.get(key, {}) for key in keys]
        for number in rounds_by_key[0]:
            if all(number in rounds for rounds in rounds_by_key):
                yield tuple(rounds[number] for rounds in rounds_by_key)


def _lines(path: Path) -> Iterator[Row]:
    lines = path.read_text("utf-8").splitlines(keepends=True)
    for line in lines:
        if line.endswith("\n"):
            yield json.loads(line)
