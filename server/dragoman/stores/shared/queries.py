"""Queries: statements and what follows from their results, written once for all stores.

A query is a generator: it yields each statement, and gets its rows or the number of rows that it changed. A store runs
it on one connection, in one transaction. Statements use SQL that all stores know, and arguments `?1`, `?2` and so on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with its arguments. `changes`: its result is the number of changed rows, not rows."""

    sql: str
    values: Sequence[Any]
    changes: bool = False


Query = Generator[Statement, Any, T]
Row = Sequence[Any]


class QueryRunner(Protocol):
    """Runs queries on a store, each in one transaction."""

    def read(self, query: Callable[P, Query[T]], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Runs a query that changes nothing."""

    def write(self, query: Callable[P, Query[T]], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Runs a query that changes rows."""

    def write_low_priority(self, query: Callable[P, Query[T]], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """The same, when nothing waits for it."""

    def now(self) -> Awaitable[int]:
        """The store's time in milliseconds."""


def select(sql: str, *values: Any) -> Query[Sequence[Row]]:
    """The rows that a statement finds."""
    rows: Sequence[Row] = yield Statement(sql, values)
    return rows


def select_first(sql: str, *values: Any) -> Query[Row | None]:
    """The first row that a statement finds."""
    rows: Sequence[Row] = yield Statement(sql, values)
    return rows[0] if rows else None


def change(sql: str, *values: Any) -> Query[int]:
    """Executes a statement. Returns the number of changed rows."""
    count: int = yield Statement(sql, values, changes=True)
    return count


@cache
def marks(first: int, count: int) -> str:
    """So many arguments, from a number on."""
    return ", ".join(f"?{number}" for number in range(first, first + count))
