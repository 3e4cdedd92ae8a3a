"""The reasons of differences, from reasons.toml, and what a run found of them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from tests.transcoders.outcomes import Difference

FILE: Final = Path(__file__).with_name("reasons.toml")


def row(gateway: str, difference: Difference) -> str:
    """A difference as reasons.toml names it."""
    return f"{gateway}: {difference.subject}: {difference.here} / {difference.there}"


@dataclass
class Reason:
    """One reason, with the rows that it explains (patterns, in which `*` stands for any text)."""

    text: str
    rows: tuple[str, ...]
    found: dict[str, int] = field(default_factory=dict)
    """How many cases a run found, by row."""


class Reasons:
    """All reasons, counting what a run finds."""

    def __init__(self, text: str) -> None:
        self._reasons = [Reason(one["text"], tuple(one["rows"])) for one in tomllib.loads(text)["reason"]]
        self._by_row: dict[str, Reason | None] = {}
        self.unexplained: dict[str, list[str]] = {}
        """Examples, by row."""

    def __iter__(self) -> Iterator[Reason]:
        return iter(self._reasons)

    def count(self, gateway: str, difference: Difference) -> bool:
        """Counts a difference. Returns whether it has a reason."""
        name = row(gateway, difference)
        if name not in self._by_row:
            matching = (one for one in self._reasons if any(_matches(name, pattern) for pattern in one.rows))
            self._by_row[name] = next(matching, None)
        reason = self._by_row[name]
        if reason is None:
            self.unexplained.setdefault(name, [])
            return False
        reason.found[name] = reason.found.get(name, 0) + 1
        return True

    def stale(self) -> list[str]:
        """The texts of reasons that nothing was found for. Single rows may be too rare for one seed."""
        return [reason.text for reason in self._reasons if not reason.found]


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern.replace("[", "[[]"))
