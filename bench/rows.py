"""The rows of a run: one JSON object a line, written as each is measured, and read again by the report.

Every figure has `section`, `case`, `server`, `round`, `value` and `unit`; what else is known of it stands beside.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from bench.spread import Spread

Row = dict[str, Any]


class Key(NamedTuple):
    """What was measured on what."""

    section: str
    case: str
    server: str


class Writer:
    """Appends rows to a file, so that an interrupted run loses nothing. Keeps them as well."""

    def __init__(self, path: Path, about: Row) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("x", encoding="utf-8")
        self.path = path
        self.rows: list[Row] = []
        self._write(about)

    def add(self, key: Key, number: int, value: float, unit: str, **more: Any) -> None:
        """One figure of round `number`."""
        self._write({**key._asdict(), "round": number, "value": value, "unit": unit, **more})

    def failed(self, key: Key, number: int, why: str) -> None:
        """Something that could not be measured."""
        self._write({**key._asdict(), "round": number, "error": why})

    def close(self) -> None:
        self._file.close()

    def _write(self, row: Row) -> None:
        self.rows.append(row)
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()


class Rows:
    """Rows of one run or of several. A round is a round of its own run, so ratios never cross runs."""

    def __init__(self, runs: Iterable[Iterable[Row]]) -> None:
        self.about: list[Row] = []
        self.errors: list[Row] = []
        self._found: dict[Key, dict[tuple[int, int], Row]] = {}
        for run, rows in enumerate(runs):
            for row in rows:
                self._take(run, row)

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Self:
        """The rows of these files. A last line that was cut off is left out."""
        return cls(list(_lines(path)) for path in paths)

    def _take(self, run: int, row: Row) -> None:
        if row["section"] == "run":
            self.about.append(row)
        elif "error" in row:
            self.errors.append(row)
        else:
            self._found.setdefault(Key(row["section"], row["case"], row["server"]), {})[run, row["round"]] = row

    def __iter__(self) -> Iterator[Key]:
        """What was measured, in the order in which it was."""
        return iter(self._found)

    def __contains__(self, key: Key) -> bool:
        return key in self._found

    def spread(self, key: Key, field: str = "value") -> Spread | None:
        """A figure over all rounds; None when it was not measured."""
        return Spread.of(row[field] for row in self._found.get(key, {}).values() if field in row)

    def ratio(self, above: Key, below: Key, field: str = "value") -> Spread | None:
        """One figure over another, taken inside each round; None when no round has both."""
        return Spread.of(one[field] / other[field] for one, other in self.together(above, below) if other[field])

    def together(self, *keys: Key) -> Iterator[tuple[Row, ...]]:
        """The rows of each round that has all of these."""
        found = [self._found.get(key, {}) for key in keys]
        for number in found[0]:
            if all(number in rows for rows in found):
                yield tuple(rows[number] for rows in found)


def _lines(path: Path) -> Iterator[Row]:
    lines = path.read_text("utf-8").splitlines(keepends=True)
    for line in lines:
        if line.endswith("\n"):
            yield json.loads(line)
