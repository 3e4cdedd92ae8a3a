"""Checker of MCP calls: results agree with the store, progress with the log, and no call waits in vain."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from tests.chaos.history import (
    Acknowledged,
    CallLeft,
    CallOpened,
    CallResult,
    Entry,
    Fault,
    Progressed,
    Sent,
)

from dragoman.core.task import states

MAX_PROGRESS_TEXT: Final = 500
"""Characters of the text in a progress notification."""
CANCEL_SECONDS: Final = 5.0
"""Seconds after which the task of an abandoned call has ended."""
START_SECONDS: Final = 10.0
"""Seconds after a fault in which a cancel may be lost: the server may be starting."""

CallEntry = CallOpened | Progressed | CallResult | CallLeft


class StoredEventView(Protocol):
    """One event of a log."""

    @property
    def sequence(self) -> int: ...
    @property
    def text(self) -> str: ...


class StoredTaskView(Protocol):
    """A task in the store at the end of the run."""

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> int: ...
    @property
    def events(self) -> Sequence[StoredEventView]: ...
    @property
    def texts(self) -> Sequence[str]: ...
    @property
    def result_text(self) -> str: ...
    @property
    def times(self) -> tuple[float, float]: ...


def judge_calls(history: Sequence[Entry], kept: Mapping[str, StoredTaskView]) -> Iterator[str]:
    """Yields one line per violation."""
    calls: defaultdict[int, list[CallEntry]] = defaultdict(list)
    for entry in history:
        if isinstance(entry, CallEntry):
            calls[entry.call].append(entry)
    answered = _answered(history)
    for number, entries in calls.items():
        task = kept.get(next((entry.task for entry in entries if entry.task), ""))
        for problem in (
            *_results(entries, task),
            *_progress(entries, task),
            *_questions(entries, answered),
            *_end(entries, task),
        ):
            yield f"call {number} of {task.id if task else '?'}: {problem}"
    yield from _messages(history, kept)
    yield from _abandoned(history, kept)


def _results(entries: Sequence[CallEntry], task: StoredTaskView | None) -> Iterator[str]:
    """Checks that all entries name one task, and that its result is the stored one."""
    if len(names := {entry.task for entry in entries if entry.task}) > 1:
        yield f"has {len(names)} tasks: {', '.join(sorted(names))}"
    for entry in entries:
        if not isinstance(entry, CallResult):
            continue
        if entry.kind == "error":
            yield f"failed: {entry.text}"
        elif entry.kind == "final" and task is not None:
            if entry.state != task.state:
                yield f"its result says {states.name(entry.state)}, it is {states.name(task.state)}"
            elif entry.state == states.COMPLETED and entry.text != task.result_text:
                yield f'its result is "{entry.text[:60]}", the task has "{task.result_text[:60]}"'
            elif entry.state == states.FAILED and task.result_text not in entry.text:
                yield f'its result is "{entry.text[:60]}", the task failed with "{task.result_text[:60]}"'


def _progress(entries: Sequence[CallEntry], task: StoredTaskView | None) -> Iterator[str]:
    """Checks that progress increases over all connections of a call, and tells what the log has."""
    at = 0
    for entry in entries:
        if not isinstance(entry, Progressed) or task is None:
            continue
        if entry.sequence <= at:
            yield f"progress {entry.sequence} after {at}"
        if entry.cursor != entry.sequence:
            yield f"progress {entry.sequence} has the cursor {entry.cursor}"
        if entry.sequence > len(task.events):
            yield f"progress {entry.sequence} of {len(task.events)} events"
        texts = [event.text for event in task.events if at < event.sequence <= entry.sequence and event.text]
        # Events of one batch are one notification, with the text of the last event that has one.
        if not any(entry.text in (text[:MAX_PROGRESS_TEXT], text[-MAX_PROGRESS_TEXT:]) for text in texts):
            yield f'progress {entry.sequence} says "{entry.text[:60]}", which no event after {at} does'
        at = max(at, entry.sequence)


def _answered(history: Sequence[Entry]) -> dict[str, float]:
    """When the answer to a task's question was acknowledged."""
    sent = {entry.op: entry for entry in history if isinstance(entry, Sent)}
    found: dict[str, float] = {}
    for entry in history:
        if isinstance(entry, Acknowledged) and sent[entry.op].task and not sent[entry.op].message:
            found.setdefault(entry.task, entry.at)
    return found


def _questions(entries: Sequence[CallEntry], answered: Mapping[str, float]) -> Iterator[str]:
    """Checks that a connection made after the answer does not ask again: each task asks once."""
    opened = 0.0
    for entry in entries:
        if isinstance(entry, CallOpened):
            opened = entry.at
        elif isinstance(entry, CallResult) and entry.kind == "question" and opened > answered.get(entry.task, opened):
            yield f"was asked again at {entry.at:.3f}, having answered at {answered[entry.task]:.3f}"


def _end(entries: Sequence[CallEntry], task: StoredTaskView | None) -> Iterator[str]:
    """Checks that the call has a result, or was given up."""
    last = entries[-1]
    if isinstance(last, CallLeft) or (isinstance(last, CallResult) and last.kind in ("final", "error")):
        return
    if task is None:
        yield "got no response, and the client tried to the end"
    elif task.state in states.TERMINAL:
        yield f"was left waiting although the task is {states.name(task.state)}"


def _messages(history: Sequence[Entry], kept: Mapping[str, StoredTaskView]) -> Iterator[str]:
    """Checks that each message of MCP is stored once, however often it was sent."""
    stored = Counter(text for task in kept.values() for text in task.texts)
    for entry in history:
        if isinstance(entry, Sent) and not entry.message and stored[entry.text] > 1:
            yield f'op {entry.op}: "{entry.text}" is stored {stored[entry.text]} times'


def _abandoned(history: Sequence[Entry], kept: Mapping[str, StoredTaskView]) -> Iterator[str]:
    """Checks that the end of the stream of a call without a key cancels its task, unless a fault may prevent it."""
    faults = [entry for entry in history if isinstance(entry, Fault)]
    for entry in history:
        if not isinstance(entry, CallLeft) or not entry.cancels:
            continue
        task, over = kept.get(entry.task), entry.at + CANCEL_SECONDS
        if any(fault.at < over and entry.at < fault.at + fault.seconds + START_SECONDS for fault in faults):
            continue
        if task is not None and task.state != states.CANCELED and task.times[1] > over:
            yield f"task {task.id}: its call was abandoned at {entry.at:.3f}, and it is {states.name(task.state)}"


def canceled_by_leaving(history: Sequence[Entry], kept: Mapping[str, StoredTaskView]) -> int:
    """Counts the tasks that the end of a call's stream has canceled."""
    left = {entry.task for entry in history if isinstance(entry, CallLeft) and entry.cancels}
    return sum(task in kept and kept[task].state == states.CANCELED for task in left)
