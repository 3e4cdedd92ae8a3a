"""Which neighbouring rows of an artifact become one row when a store is folded: decided from their sizes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

JOINED: Final = 64 * 1024
"""Bytes of a row that grows no more. Rows that are larger from the start stay as they are."""


@dataclass(slots=True)
class Run:
    """Neighbouring rows of one kind that may be one row: the sequences of the first and the last."""

    first: int
    last: int
    kind: int
    bytes: int
    rows: int = 1


def groups(rows: Sequence[tuple[int, int, int]]) -> list[Run]:
    """Rows (sequence, kind, bytes) as runs of at most `JOINED` bytes; what is larger is a run of its own."""
    runs: list[Run] = []
    for sequence, kind, size in rows:
        if runs and runs[-1].kind == kind and runs[-1].bytes + size <= JOINED:
            runs[-1].last = sequence
            runs[-1].bytes += size
            runs[-1].rows += 1
        else:
            runs.append(Run(sequence, sequence, kind, size))
    return runs


def within(rows: Sequence[tuple[int, int, int]], limit: int) -> Sequence[tuple[int, int, int]]:
    """The first of these rows: so many that the small ones, which alone are ever read, stay within the limit."""
    for number, (_, _, size) in enumerate(rows):
        limit -= size if size < JOINED else 0
        if limit < 0:
            return rows[:number]
    return rows
