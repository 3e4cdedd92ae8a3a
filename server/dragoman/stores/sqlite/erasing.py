"""Taking tasks away, in steps small enough that no append waits for one.

First the task's own row goes, with whatever else mentions it: from that commit on it is not there for anybody, and
whoever runs it is refused (ABSENT). Then its log, messages and artifacts go, so many rows at a time, overwritten and
not only unlinked. What is left to do is written down (`leaving`), so a crash in between delays an erasure and no
more; the receipt counts what is really gone.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from dragoman.core.erasing import Counts, Receipt, Selection, digest
from dragoman.core.log import Head
from dragoman.stores.sqlite import apikeys, audit, joining, keys, pushes, usage
from dragoman.stores.sqlite.apply import ADD_TOTAL, HEAD, head_of
from dragoman.stores.sqlite.blobs import release_blobs
from dragoman.stores.sqlite.reads import owner_number
from dragoman.stores.sqlite.selecting import owners

# What other tables hold of a task ---------------------------------------------------------------------------------

CONTEXTS: Final[tuple[tuple[str, str], ...]] = (
    ("context_state", "owner = ? AND context = ?"),
    ("conversations", "owner = ? AND context = ?"),
    ("participants", "host = ? AND context = ?"),
)
"""(table, where) for rows of a conversation; `?` are its owner's number and the context. They go with the context's
last task, or when the context is erased."""

OWNED: Final[tuple[tuple[str, str], ...]] = (
    ("totals", "owner = ?"),
    ("idempotency", "owner = ?"),
    ("participants", "owner = ?"),
)
"""(table, where) for rows of a principal; `?` is its number. They go when all of a principal is erased."""

RELEASES: Final[tuple[Callable[[sqlite3.Connection, int, bytes], object], ...]] = (
    keys.forget_task,
    joining.forget_task,
    release_blobs,
    pushes.forget,
    usage.forget,
)
"""Called for each task with the connection, its owner's number and its key."""

# -------------------------------------------------------------------------------------------------------------------

ROWS: Final = 512
BYTES: Final = 4 * 1024 * 1024
"""Rows, and about how many bytes, that one commit takes away."""

_CONTENT: Final = (
    ("log", ("first",), "count", "length(data)"),
    ("messages", ("number",), "1", "length(data) + length(envelope)"),
    ("artifacts", ("artifact",), "1", "length(head)"),
    ("chunks", ("artifact", "sequence"), "1", "length(data)"),
)
_BEGIN: Final = "INSERT INTO receipts (reason, selection, began) VALUES (?, ?, ?)"
_COUNT: Final = """
UPDATE receipts SET tasks = tasks + ?, events = events + ?, messages = messages + ?, artifacts = artifacts + ?,
    chunks = chunks + ?, bytes = bytes + ?
WHERE receipt = ?
"""
_NEXT: Final = """
SELECT id, owner, task FROM leaving WHERE receipt = ? AND (id, owner, task) > (?, ?, ?) ORDER BY id, owner, task
"""
_OTHERS: Final = "SELECT 1 FROM tasks WHERE visible AND owner = ? AND context = ? LIMIT 1"
_FORGET: Final = """
DELETE FROM leaving WHERE (receipt, id, owner, task) IN
    (SELECT receipt, id, owner, task FROM leaving WHERE receipt = ? LIMIT ?)
"""
_UNFINISHED: Final = "SELECT receipt FROM receipts WHERE digest = '' UNION SELECT receipt FROM leaving ORDER BY 1"
_RECEIPT: Final = """
SELECT receipt, reason, selection, began, ended, tasks, events, messages, artifacts, chunks, bytes, digest
FROM receipts
"""

Left = tuple[str, int, bytes]
"""A row of `leaving`: id, owner and key of a task."""

START: Final[Left] = ("", -1, b"")


def fence(
    connection: sqlite3.Connection, number: int, selection: Selection, heads: Iterable[Head], now: int, reason: str
) -> tuple[int, list[Head]]:
    """Takes away the rows of those of these tasks that are still meant. Gives the receipt's number, and those tasks.

    `number` is 0 as long as nothing was taken: the receipt begins with the first.
    """
    with _overwriting(connection):
        return _fence(connection, number, selection, heads, now, reason)


def _fence(
    connection: sqlite3.Connection, number: int, selection: Selection, heads: Iterable[Head], now: int, reason: str
) -> tuple[int, list[Head]]:
    taken: list[Head] = []
    totals: Counter[tuple[int, str, int]] = Counter()
    contexts: set[tuple[int, str]] = set()
    for found in heads:
        owner, key = owner_number(connection, found.ref.owner), found.ref.key
        row = connection.execute(HEAD, (owner, key)).fetchone()
        head = head_of(found.ref, row) if row else None
        if owner is None or head is None or not selection.holds(head, now):
            continue
        if not number:
            number = connection.execute(_BEGIN, (reason, str(selection), now)).lastrowid or 0
        connection.execute("DELETE FROM tasks WHERE owner = ? AND task = ?", (owner, key))
        connection.execute(
            "INSERT INTO leaving (receipt, id, owner, task) VALUES (?, ?, ?, ?)", (number, head.id, owner, key)
        )
        for release in RELEASES:
            release(connection, owner, key)
        totals[owner, head.agent, head.state] -= head.visible
        contexts.add((owner, head.context))
        taken.append(head)
    connection.executemany(ADD_TOTAL, [(*key, count) for key, count in totals.items() if count])
    for context in contexts:
        if not connection.execute(_OTHERS, context).fetchone():
            _drop_context(connection, context)
    if taken:
        _count(connection, number, Counts(tasks=len(taken)))
    return number, taken


def sweep(connection: sqlite3.Connection, number: int, after: Left) -> Left | None:
    """Takes away the next rows of what this receipt's tasks left. Gives where to go on from; None when all is gone."""
    lefts = connection.execute(_NEXT, (number, *after)).fetchmany(ROWS)
    removed, rows, size = [0, 0, 0, 0], ROWS, BYTES
    with _overwriting(connection):
        for left in lefts:
            for at, content in enumerate(_CONTENT):
                amount, used, freed, empty = _clear(connection, content, left[1:], rows, size)
                removed[at] += amount
                rows, size = rows - used, size - freed
                if not empty:
                    break
            else:
                after, rows = left, rows - 1
            if rows <= 0 or size <= 0:
                break
    events, messages, artifacts, chunks = removed
    _count(connection, number, Counts(0, events, messages, artifacts, chunks, BYTES - size))
    return after if lefts else None


def _clear(
    connection: sqlite3.Connection,
    content: tuple[str, Sequence[str], str, str],
    where: Sequence[object],
    rows: int,
    size: int,
) -> tuple[int, int, int, bool]:
    """Takes away rows of one task in one table, within the limits (but one at least).

    Gives what they counted, their number, their bytes, and whether none is left.
    """
    table, columns, amount, length = content
    names = ", ".join(columns)
    sql = f"SELECT {amount}, {length}, {names} FROM {table} WHERE owner = ? AND task = ? ORDER BY {names} LIMIT ?"
    found = connection.execute(sql, (*where, max(rows, 1) + 1)).fetchall()
    if not found:
        return 0, 0, 0, True
    used = counted = freed = 0
    for row in found[: max(rows, 1)]:
        used, counted, freed = used + 1, counted + row[0], freed + row[1]
        if freed >= size:
            break
    marks = ", ".join("?" * len(columns))
    last = found[used - 1][2:]
    connection.execute(f"DELETE FROM {table} WHERE owner = ? AND task = ? AND ({names}) <= ({marks})", (*where, *last))
    return counted, used, freed, used == len(found)


def finish(connection: sqlite3.Connection, number: int, proof: str, now: int) -> bool:
    """Ends a receipt, and forgets the ids it was made of, some at a time. True when none is left."""
    connection.execute(
        "UPDATE receipts SET digest = ?, ended = max(began, ?) WHERE receipt = ? AND digest = ''", (proof, now, number)
    )
    with _overwriting(connection):
        return connection.execute(_FORGET, (number, ROWS)).rowcount < ROWS


def drop_wholes(connection: sqlite3.Connection, selection: Selection) -> bool:
    """What belongs to a whole context or principal, and to no task. True when a principal's number is free again."""
    numbers = owners(connection, selection) if selection.whole_context or selection.whole_principal else []
    with _overwriting(connection):
        if selection.whole_principal:
            apikeys.forget(connection, selection.principal)
            audit.erase(connection, selection.principal)
        for owner in numbers:
            if selection.whole_context:
                _drop_context(connection, (owner, selection.context))
            elif not connection.execute("SELECT 1 FROM tasks WHERE owner = ? LIMIT 1", (owner,)).fetchone():
                for table, where in OWNED:
                    connection.execute(f"DELETE FROM {table} WHERE {where}", (owner,))
                connection.execute("DELETE FROM owners WHERE owner = ?", (owner,))
    return bool(numbers) and selection.whole_principal


def proof_of(connection: sqlite3.Connection, number: int) -> str:
    """The digest of the ids that a receipt is about, as long as they are still there."""
    sql = "SELECT id FROM leaving WHERE receipt = ? ORDER BY id"
    return digest(row[0] for row in connection.execute(sql, (number,)))


def unfinished(connection: sqlite3.Connection) -> list[int]:
    """Receipts of erasures that a crash or an impatient caller cut short."""
    return [number for (number,) in connection.execute(_UNFINISHED)]


def receipts(connection: sqlite3.Connection, limit: int) -> list[Receipt]:
    """The last receipts, newest first."""
    rows = connection.execute(f"{_RECEIPT} ORDER BY receipt DESC LIMIT ?", (limit,))
    return [_receipt(row) for row in rows]


def receipt(connection: sqlite3.Connection, number: int) -> Receipt:
    return _receipt(connection.execute(f"{_RECEIPT} WHERE receipt = ?", (number,)).fetchone())


def _receipt(row: tuple[Any, ...]) -> Receipt:
    number, reason, selection, began, ended, *counts, proof = row
    return Receipt(number, reason, selection, began, ended, Counts(*counts), proof)


def _count(connection: sqlite3.Connection, number: int, more: Counts) -> None:
    values = (more.tasks, more.events, more.messages, more.artifacts, more.chunks, more.bytes)
    connection.execute(_COUNT, (*values, number))


def _drop_context(connection: sqlite3.Connection, context: tuple[int, str]) -> None:
    for table, where in CONTEXTS:
        connection.execute(f"DELETE FROM {table} WHERE {where}", context)


@contextmanager
def _overwriting(connection: sqlite3.Connection) -> Iterator[None]:
    """What is deleted meanwhile is filled with zeros; otherwise it would stay readable in free pages of the file."""
    (before,) = connection.execute("PRAGMA secure_delete").fetchone()
    connection.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA secure_delete = {before}")
