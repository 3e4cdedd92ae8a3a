"""Taking tasks away, in steps small enough that no append waits for one.

First the task's own row goes, with whatever else mentions it: from that commit on it is not there for anybody, and
whoever runs it is refused (ABSENT). Then its log, messages and artifacts go, so many rows at a time. What is left to
do is written down (`leaving`), so a crash in between delays an erasure and no more; the receipt counts what is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Final

from asyncpg import Connection

from dragoman.core.erasing import Counts, Receipt, Selection, digest
from dragoman.core.log import Head, TaskRef
from dragoman.core.names import Owner
from dragoman.stores.postgres import apikeys, audit, blobs, joining, keys, pushes, standing, usage
from dragoman.stores.postgres.heads import COLUMNS, head_of
from dragoman.stores.postgres.rows import Statement
from dragoman.stores.postgres.selecting import owners
from dragoman.stores.postgres.standing import Place
from dragoman.stores.postgres.writing import ADD_TOTALS

CONTEXTS: Final[tuple[tuple[str, str], ...]] = (
    ("context_state", "owner = $1 AND context = $2"),
    ("conversations", "owner = $1 AND context = $2"),
    ("participants", "host = $1 AND context = $2"),
)
"""(table, where) for rows of a conversation; the arguments are its owner's number and the context. They go with the
context's last task, or when the context is erased."""

OWNED: Final[tuple[tuple[str, str], ...]] = (
    ("totals", "owner = $1"),
    ("idempotency", "owner = $1"),
    ("participants", "owner = $1"),
)
"""(table, where) for rows of a principal; the argument is its number. They go when all of a principal is erased."""

RELEASES: Final = (keys.forget_task, joining.forget_task, blobs.release, pushes.forget, usage.forget)
"""Called for each task with the connection and its place."""

ROWS: Final = 512
BYTES: Final = 4 * 1024 * 1024
"""Rows, and about how many bytes, that one commit takes away."""

ABANDONED: Final = 60_000
"""Milliseconds after which an erasure on which nobody works is completed by others."""

_CONTENT: Final = (
    ("log", ("first",), "count", "length(data)"),
    ("messages", ("number",), "1", "length(data) + length(envelope)"),
    ("artifacts", ("artifact",), "1", "length(head)"),
    ("chunks", ("artifact", "sequence"), "1", "length(data)"),
)
_LOCK: Final = Statement(
    f"SELECT o.scope, o.principal, t.owner, t.task, {COLUMNS} FROM {{rows}}"
    " JOIN owners o ON o.scope = r.scope AND o.principal = r.principal"
    " JOIN tasks t ON t.owner = o.owner AND t.task = r.task ORDER BY o.scope, o.principal, t.task FOR UPDATE OF t",
    "tty",
    "scope, principal, task",
)
_BEGIN: Final = "INSERT INTO receipts (reason, selection, began, touched) VALUES ($1, $2, $3, $3) RETURNING receipt"
_COUNT: Final = """
UPDATE receipts SET tasks = tasks + $2, events = events + $3, messages = messages + $4, artifacts = artifacts + $5,
    chunks = chunks + $6, bytes = bytes + $7, touched = greatest(touched, $8)
WHERE receipt = $1
"""
_LEAVE: Final = "INSERT INTO leaving (receipt, id, owner, task) VALUES ($1, $2, $3, $4)"
_NEXT: Final = f"""
SELECT id, owner, task FROM leaving WHERE receipt = $1 AND (id, owner, task) > ($2, $3, $4)
ORDER BY id, owner, task LIMIT {ROWS}
"""
_HOLD: Final = "SELECT 1 FROM receipts WHERE receipt = $1 FOR UPDATE"
_OTHERS: Final = "SELECT 1 FROM tasks WHERE visible AND owner = $1 AND context = $2 LIMIT 1"
_FINISH: Final = "UPDATE receipts SET digest = $2, ended = greatest(began, $3) WHERE receipt = $1 AND digest = ''"
_FORGET: Final = f"""
DELETE FROM leaving WHERE (receipt, id, owner, task) IN
    (SELECT receipt, id, owner, task FROM leaving WHERE receipt = $1 LIMIT {ROWS})
"""
_UNFINISHED: Final = f"""
SELECT r.receipt FROM receipts r
WHERE r.receipt IN (SELECT receipt FROM receipts WHERE digest = '' UNION SELECT receipt FROM leaving)
    AND (r.receipt = ANY ($1::bigint[]) OR r.touched < $2::bigint - {ABANDONED}) ORDER BY r.receipt
"""
_RECEIPT: Final = """
SELECT receipt, reason, selection, began, ended, tasks, events, messages, artifacts, chunks, bytes, digest
FROM receipts
"""

Left = tuple[str, int, bytes]
"""A row of `leaving`: id, owner and key of a task."""

START: Final[Left] = ("", -1, b"")


async def fence(
    connection: Connection, number: int, selection: Selection, heads: Sequence[Head], now: int, reason: str, slot: int
) -> tuple[int, list[Head]]:
    """Takes away the rows of those of these tasks that are still meant. Gives the receipt's number, and those tasks.

    `number` is 0 as long as nothing was taken: the receipt begins with the first.
    """
    refs = {(head.ref.owner.scope, head.ref.owner.principal, head.ref.key) for head in heads}
    taken: list[tuple[Place, Head]] = []
    for scope, principal, owner, key, *row in await _LOCK.fetch(connection, sorted(refs)):
        head = head_of(TaskRef(Owner(scope, principal), key), row)
        if selection.holds(head, now):
            taken.append(((owner, key), head))
    if not taken:
        return number, []
    if not number:
        number = await connection.fetchval(_BEGIN, reason, str(selection), now)
    await standing.left(connection, slot, taken)
    totals: Counter[tuple[int, str, int]] = Counter()
    for place, head in taken:
        await connection.execute("DELETE FROM tasks WHERE owner = $1 AND task = $2", *place)
        await connection.execute(_LEAVE, number, head.id, *place)
        for release in RELEASES:
            await release(connection, place)
        totals[place[0], head.agent, head.state] -= head.visible
    await ADD_TOTALS.run(connection, sorted((*key, slot, count) for key, count in totals.items() if count))
    for owner, context in sorted({(place[0], head.context) for place, head in taken}):
        if not await connection.fetchval(_OTHERS, owner, context):
            await _drop_context(connection, owner, context)
    await _count(connection, number, Counts(tasks=len(taken)), now)
    return number, [head for _, head in taken]


async def sweep(connection: Connection, number: int, after: Left, now: int) -> Left | None:
    """Takes away the next rows of what this receipt's tasks left. Gives where to go on from; None when all is gone."""
    await connection.execute(_HOLD, number)  # two who complete an erasure count each row once
    lefts = await connection.fetch(_NEXT, number, *after)
    removed, rows, size = [0, 0, 0, 0], ROWS, BYTES
    for left in lefts:
        for at, content in enumerate(_CONTENT):
            amount, used, freed, empty = await _clear(connection, content, (left[1], left[2]), rows, size)
            removed[at] += amount
            rows, size = rows - used, size - freed
            if not empty:
                break
        else:
            after, rows = (left[0], left[1], left[2]), rows - 1
        if rows <= 0 or size <= 0:
            break
    events, messages, artifacts, chunks = removed
    await _count(connection, number, Counts(0, events, messages, artifacts, chunks, BYTES - size), now)
    return after if lefts else None


async def _clear(
    connection: Connection, content: tuple[str, Sequence[str], str, str], place: Place, rows: int, size: int
) -> tuple[int, int, int, bool]:
    """Takes away rows of one task in one table, within the limits (but one at least).

    Gives what they counted, their number, their bytes, and whether none is left.
    """
    table, columns, amount, length = content
    names = ", ".join(columns)
    sql = f"SELECT {amount}, {length}, {names} FROM {table} WHERE owner = $1 AND task = $2 ORDER BY {names} LIMIT $3"
    found = await connection.fetch(sql, *place, max(rows, 1) + 1)
    if not found:
        return 0, 0, 0, True
    used = counted = freed = 0
    for row in found[: max(rows, 1)]:
        used, counted, freed = used + 1, counted + row[0], freed + row[1]
        if freed >= size:
            break
    marks = ", ".join(f"${at}" for at in range(3, 3 + len(columns)))
    last = tuple(found[used - 1])[2:]
    await connection.execute(
        f"DELETE FROM {table} WHERE owner = $1 AND task = $2 AND ({names}) <= ({marks})", *place, *last
    )
    return counted, used, freed, used == len(found)


async def finish(connection: Connection, number: int, proof: str, now: int) -> bool:
    """Ends a receipt, and forgets the ids it was made of, some at a time. True when none is left."""
    await connection.execute(_FINISH, number, proof, now)
    forgotten = await connection.execute(_FORGET, number)
    return int(forgotten.rpartition(" ")[2]) < ROWS


async def drop_wholes(connection: Connection, selection: Selection) -> None:
    """What belongs to a whole context or principal, and to no task. Only while nobody else writes: batches are decided
    by the numbers of owners."""
    if selection.whole_principal:
        await apikeys.forget(connection, selection.principal)
        await audit.erase(connection, selection.principal)
        await standing.forget(connection, selection.principal)
    for owner in await owners(connection, selection):
        if selection.whole_context:
            await _drop_context(connection, owner, selection.context)
        elif not await connection.fetchval("SELECT 1 FROM tasks WHERE owner = $1 LIMIT 1", owner):
            for table, where in OWNED:
                await connection.execute(f"DELETE FROM {table} WHERE {where}", owner)
            await connection.execute("DELETE FROM owners WHERE owner = $1", owner)


async def proof_of(connection: Connection, number: int) -> str:
    """The digest of the ids that a receipt is about, as long as they are still there."""
    rows = await connection.fetch("SELECT id FROM leaving WHERE receipt = $1 ORDER BY id", number)
    return digest(row[0] for row in rows)


async def unfinished(connection: Connection, own: Collection[int], now: int) -> list[int]:
    """Receipts of erasures that an impatient caller cut short, who are our `own`, or a crash of another process."""
    return [row[0] for row in await connection.fetch(_UNFINISHED, list(own), now)]


async def receipts(connection: Connection, limit: int) -> list[Receipt]:
    """The last receipts, newest first."""
    return [_receipt(row) for row in await connection.fetch(f"{_RECEIPT} ORDER BY receipt DESC LIMIT $1", limit)]


async def receipt(connection: Connection, number: int) -> Receipt:
    return _receipt(await connection.fetchrow(f"{_RECEIPT} WHERE receipt = $1", number))


def _receipt(row: Sequence[Any]) -> Receipt:
    number, reason, selection, began, ended, *counts, proof = row
    return Receipt(number, reason, selection, began, ended, Counts(*counts), proof)


async def _count(connection: Connection, number: int, more: Counts, now: int) -> None:
    values = more.tasks, more.events, more.messages, more.artifacts, more.chunks, more.bytes
    await connection.execute(_COUNT, number, *values, now)


async def _drop_context(connection: Connection, owner: int, context: str) -> None:
    for table, where in CONTEXTS:
        await connection.execute(f"DELETE FROM {table} WHERE {where}", owner, context)
