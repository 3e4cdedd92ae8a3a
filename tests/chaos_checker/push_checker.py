"""Checker of pushes: compares the requests of receivers with the log.

A receiver has to get every event of its task, in order of receipt. Only the last event may be repeated, with the same
bytes, as long as the next one was not received. A repeat needs an explanation: the receiver had not accepted the event,
or a fault of a server or the database may have lost its acknowledgement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from tests.chaos.history import Acknowledged, Delivered, Entry, Fault, Sent
from tests.chaos_checker.end_checker import DEPRIVED

SLACK: Final = 2.0
"""Seconds by which a request may be recorded after the fault of the server that sent it."""


class StoredEventView(Protocol):
    """An event of a log."""

    @property
    def digest(self) -> str: ...


class StoredTaskView(Protocol):
    """A task in the store at the end of the run."""

    @property
    def id(self) -> str: ...
    @property
    def last(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def events(self) -> Sequence[StoredEventView]: ...


def judge_pushes(history: Sequence[Entry], kept: Mapping[str, StoredTaskView]) -> Iterator[str]:
    """Yields one line per violation of push guarantees."""
    # A paused server or an unavailable store explains a repeat until it works again.
    strikes = [
        (entry.at, entry.at + entry.seconds)
        for entry in history
        if isinstance(entry, Fault) and entry.part in ("server", "postgres", *DEPRIVED)
    ]
    webhooks: defaultdict[int, list[Delivered]] = defaultdict(list)
    for entry in history:
        if isinstance(entry, Delivered):
            webhooks[entry.hook].append(entry)
    for hook, name in _expected(history, kept, webhooks).items():
        task = kept.get(name)
        if task is None:
            yield f"webhook {hook}: was told of {name}, which is not there"
            continue
        for problem in _problems_of(sorted(webhooks[hook], key=lambda delivery: delivery.at), task, strikes):
            yield f"webhook {hook} of {name}: {problem}"


def _expected(
    history: Sequence[Entry], kept: Mapping[str, StoredTaskView], deliveries: Mapping[int, list[Delivered]]
) -> dict[int, str]:
    """Returns the task of each webhook: from the response, else by its message, else from its requests."""
    by_text = {task.text: task.id for task in kept.values()}
    sent = {entry.op: entry for entry in history if isinstance(entry, Sent) and entry.hook}
    found = {hook: first.task for hook, (first, *_) in deliveries.items()}
    found |= {entry.hook: by_text[entry.text] for entry in sent.values() if entry.text in by_text}
    found |= {
        sent[entry.op].hook: entry.task for entry in history if isinstance(entry, Acknowledged) and entry.op in sent
    }
    return found


def _problems_of(
    deliveries: Sequence[Delivered], task: StoredTaskView, strikes: Sequence[tuple[float, float]]
) -> Iterator[str]:
    at, taken, last = 0, 0.0, 0  # the last accepted event, when it was accepted, and the last received event
    bodies: dict[int, str] = {}
    for delivered in deliveries:
        if delivered.task != task.id:
            yield f"was told of {delivered.task}"
            continue
        if not 1 <= delivered.sequence <= len(task.events):
            yield f"was told event {delivered.sequence} of {task.last}"
            continue
        if delivered.digest != task.events[delivered.sequence - 1].digest:
            yield f"was told another event {delivered.sequence} than the log has"
        if bodies.setdefault(delivered.sequence, delivered.body) != delivered.body:
            yield f"was told event {delivered.sequence} again in other bytes"
        if delivered.sequence > at + 1:
            yield f"was told event {delivered.sequence} when it had taken {at}: out of order, or a gap"
        elif delivered.sequence < at:
            yield f"was told event {delivered.sequence} again, having taken {at}: more than one repeat"
        elif delivered.sequence < last:
            yield f"was told event {delivered.sequence} again, having received {last}: out of order"
        elif delivered.sequence == at and not any(
            taken - SLACK <= over and began <= delivered.at for began, over in strikes
        ):
            yield f"was told event {delivered.sequence} again, which it had taken, and nothing explains it"
        last = max(last, delivered.sequence)
        if 200 <= delivered.status < 300:
            at, taken = max(at, delivered.sequence), delivered.done
    if at != task.last:
        yield f"was told up to event {at} of {task.last}"
