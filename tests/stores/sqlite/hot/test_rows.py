"""Statements over many rows: every row once, in few statements."""

from __future__ import annotations

import ctypes
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from dragoman.stores.sqlite.hot.rows import (
    LARGE_VALUE_BYTES,
    STATEMENT_SIZES,
    SqliteBulkStatement,
)

INSERT = SqliteBulkStatement("INSERT INTO t (a, b)", 2)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (a, b)")
        yield connection


@pytest.mark.parametrize("count", [0, 1, 2, 3, 63, 64, 65, 127, 128, 200])
def test_every_row_is_written_once_and_in_order(connection: sqlite3.Connection, count: int) -> None:
    rows = [(number, str(number)) for number in range(count)]
    INSERT.run(connection, rows)
    assert connection.execute("SELECT a, b FROM t ORDER BY rowid").fetchall() == rows


def test_statements_have_few_sizes(connection: sqlite3.Connection) -> None:
    """Each size is a statement that SQLite keeps prepared."""
    sent: set[str] = set()
    connection.set_trace_callback(lambda sql: sent.add(str(sql.count("("))))
    for count in range(1, 300):
        INSERT.run(connection, [("x", "y")] * count)
    assert len(sent) == len(STATEMENT_SIZES)


def test_found_rows_of_all_statements_are_returned(connection: sqlite3.Connection) -> None:
    INSERT.run(connection, [(number, "x") for number in range(100)])
    select = SqliteBulkStatement("WITH wanted (a) AS (", 1, ") SELECT t.a FROM wanted w JOIN t ON t.a = w.a")
    assert sorted(select.fetch(connection, [(number,) for number in range(50, 150)])) == [(n,) for n in range(50, 100)]
    assert list(select.fetch(connection, [])) == []


UPSERT = SqliteBulkStatement("INSERT INTO t (a, b)", 2, "ON CONFLICT (a) DO UPDATE SET b = excluded.b", large=(1,))


def test_large_rows_are_written_once_and_in_order(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE UNIQUE INDEX a ON t (a)")
    rows = [(number, bytes([number]) * (LARGE_VALUE_BYTES + 1)) for number in range(7)]
    UPSERT.run(connection, [(3, b"replaced"), (9, b"")])
    UPSERT.run(connection, rows)
    assert connection.execute("SELECT a, b FROM t ORDER BY a").fetchall() == [*rows, (9, b"")]


class MallocState(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ["arena", "ord", "sm", "hblk", "mapped", "usm", "fsm", "used", "free", "keep"]
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="reads the state of glibc's allocator")
def test_statements_keep_no_large_values(connection: sqlite3.Connection) -> None:
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        pytest.skip("needs glibc 2.33")
    mallinfo2.restype = MallocState

    def bytes_in_use() -> int:
        state = mallinfo2()
        return int(state.used + state.mapped)

    connection.execute("CREATE UNIQUE INDEX a ON t (a)")
    connection.execute("CREATE TRIGGER skip BEFORE INSERT ON t BEGIN SELECT RAISE(IGNORE); END")
    value = bytes(4 << 20)
    before = bytes_in_use()
    for count in (1, 2, 4):
        UPSERT.run(connection, [(number, value) for number in range(count)])
    assert bytes_in_use() - before < len(value)
