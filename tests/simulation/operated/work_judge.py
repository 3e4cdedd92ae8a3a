"""Checker of constant cost (G9): what the store does for an event does not grow with the task.

| rule | what it says |
|---|---|
| changes | each stretch of the log of a long task costs no more than a bound, however late it is |
| reads | an event is read from the log once for each connection of a reader that has not seen it |

The bound: an event is written twice, in the log and as what it adds. Whoever follows without a cursor, runs the task
again, calls GetTask, or sends the message, gets the Task once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.chaos.history import Entry, Got, Opened, Sent
from tests.chaos_checker.checker import StoredTask
from tests.simulation.operated.work import TaskWork

LONG: Final = "bulk 60 3000"
EVENT_BYTES: Final = 3_500
"""Bytes of an event of such a task, with what the wire form adds, and its share of other rows."""
STRETCH: Final = 15
"""Events over which work is added up: some is done once for several of them."""
OTHER_ROWS: Final = 30
"""Of the task itself, its messages and claims, in a stretch."""


def judge_work(entries: Sequence[Entry], kept: Mapping[str, StoredTask], work: Mapping[str, TaskWork]) -> list[str]:
    """At most one line for each long task and rule."""
    problems = list[str]()
    for id, task in kept.items():
        if task.text.startswith(LONG) and id in work:
            of_task = [entry for entry in entries if _is_of(entry, task)]
            problems += [*_changes(task, work[id], of_task), *_reads(task, work[id], of_task)]
    return problems


def _is_of(entry: Entry, task: StoredTask) -> bool:
    """Whether it is a call for a task. A send may have no answer, and its server read the Task for one."""
    is_first = isinstance(entry, Sent) and entry.text == task.text
    return is_first or (isinstance(entry, Opened | Got | Sent) and entry.task == task.id)


def _changes(task: StoredTask, work: TaskWork, entries: Sequence[Entry]) -> Iterator[str]:
    whole_reads = max(task.begun - 1, 0)
    for entry in entries:
        match entry:
            case Opened(after=None) | Got() | Sent():
                whole_reads += 1
    for first in range(1, task.last + 1, STRETCH):
        here = [one for one in work.work if first <= one.sequence < first + STRETCH]
        rows, size = sum(one.rows for one in here), sum(one.size for one in here)
        events = max(sum(one.events for one in here), STRETCH)
        most_rows = OTHER_ROWS + 2 * events + whole_reads * (task.last + OTHER_ROWS)
        most_bytes = (2 * events + whole_reads * task.last) * EVENT_BYTES
        if rows > most_rows or size > most_bytes:
            last = first + STRETCH - 1
            yield (
                f"task {task.id}: events {first} to {last} cost {rows} rows and {size} bytes, and may cost {most_rows}"
                f" and {most_bytes}"
            )
            return


def _reads(task: StoredTask, work: TaskWork, entries: Sequence[Entry]) -> Iterator[str]:
    opened = [entry for entry in entries if isinstance(entry, Opened)]
    for sequence, times in sorted(work.log_reads.items()):
        most = sum(one.after is None or one.after < sequence for one in opened)
        if times > most:
            yield f"task {task.id}: event {sequence} was read {times} times, for {most} connections"
            return
