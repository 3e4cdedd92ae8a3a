"""Checker of a chaos run: compares the history of clients with the store, and lists broken guarantees.

`judge` returns one line per violation; an empty list is a good run. Its inputs are the history in order, and every
task of the store with its log. All functions are pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.history import (
    Acknowledged,
    CallResult,
    Canceled,
    Closed,
    Entry,
    Got,
    Left,
    Opened,
    Rejected,
    Replied,
    Sampled,
    Seen,
    Sent,
)
from tests.chaos_checker.call_checker import judge_calls
from tests.chaos_checker.end_checker import judge_ends
from tests.chaos_checker.push_checker import judge_pushes

from dragoman.core.task import states

GRACE: Final = 15.0
"""Seconds in which a task of a dead session has to end or run again."""

KEY_REUSED: Final = ("other content", "IdempotencyKeyReused")
"""Parts of the reason for which a key with another message is rejected."""

BACKLOGGED: Final = 5.0
"""Seconds that a task may wait while slots are free, since agents may block the event loop."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event of a log. `shape`: that of the task after the event."""

    sequence: int
    digest: str
    state: int
    shape: str = ""
    text: str = ""
    """Of its status message, or of the part of an artifact that it adds."""


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task in the store at the end of the run. `messages`: the ids of the user's messages."""

    id: str
    state: int
    last: int
    events: Sequence[StoredEvent]
    messages: Sequence[str] = ()
    text: str = ""
    """The text of the first message, unique except for repeated sends with one key."""
    attempts: int = 1
    """Maximum attempts of a turn."""
    begun: int = 0
    """Number of calls of the agent."""
    agent: str = ""
    reason: str = ""
    """The reason if the server ended the task; otherwise empty."""
    times: tuple[float, float] = (0.0, 0.0)
    """Times of its creation and of its last change of state, in seconds since the run began."""
    output: str | None = None
    """The text of its artifact `output`; None if that is not known."""
    texts: Sequence[str] = ()
    """The texts of the user's messages."""
    result_text: str = ""
    """The text of its artifacts; of its status message, if it has none or has failed."""


@dataclass(slots=True)
class Followed:
    """Everything that one follower received, over all its connections."""

    task: str = ""
    entries: list[Opened | Seen | Closed] = field(default_factory=list)


def judge(history: Sequence[Entry], kept: Mapping[str, StoredTask]) -> list[str]:
    """Returns one line per violation."""
    return [
        problem
        for check in (
            logs,
            acknowledged,
            streams,
            terminal,
            claims,
            interrupted,
            keys,
            turns,
            outputs,
            judge_pushes,
            judge_ends,
            judge_calls,
        )
        for problem in check(history, kept)
    ]


def logs(_: Sequence[Entry], kept: Mapping[str, StoredTask]) -> Iterator[str]:
    """Checks that a log has no gap, ends in its task's state, and has no events after a terminal state."""
    for task in kept.values():
        numbers = [event.sequence for event in task.events]
        if numbers != list(range(1, task.last + 1)):
            yield f"task {task.id}: its log is numbered {_short(numbers)}, its last event is {task.last}"
        reported_states = [event.state for event in task.events if event.state]
        if reported_states and reported_states[-1] != task.state:
            yield f"task {task.id}: is {_name(task.state)}, and its log ends {_name(reported_states[-1])}"
        ended = [number for number, event in enumerate(task.events) if event.state in states.TERMINAL]
        if ended and ended[0] != len(task.events) - 1:
            yield f"task {task.id}: {len(task.events) - 1 - ended[0]} events follow its end"


def acknowledged(history: Sequence[Entry], kept: Mapping[str, StoredTask]) -> Iterator[str]:
    """Checks that acknowledged tasks and messages are stored."""
    sent = {entry.op: entry for entry in history if isinstance(entry, Sent)}
    for entry in history:
        if isinstance(entry, Acknowledged):
            task = kept.get(entry.task)
            if task is None:
                yield f"task {entry.task}: acknowledged (op {entry.op}) and lost"
            elif not sent[entry.op].message:  # MCP: the server makes the id of the message
                if sent[entry.op].text not in task.texts:
                    yield f'task {entry.task}: "{sent[entry.op].text}" acknowledged (op {entry.op}) and lost'
            elif not sent[entry.op].key and sent[entry.op].message not in task.messages:
                yield f"task {entry.task}: message {sent[entry.op].message} acknowledged (op {entry.op}) and lost"
        elif isinstance(entry, Got) and entry.reason == "TASK_NOT_FOUND":
            yield f"task {entry.task}: was acknowledged, and GetTask did not find it"


# Streams ------------------------------------------------------------------------------------------------------------


def streams(history: Sequence[Entry], kept: Mapping[str, StoredTask]) -> Iterator[str]:
    """Checks that each follower received the events of the log once, in order, and without gaps at reconnects."""
    followers: defaultdict[int, Followed] = defaultdict(Followed)
    for entry in history:
        if isinstance(entry, Opened | Seen | Closed):
            followers[entry.follower].entries.append(entry)
            if isinstance(entry, Opened):
                followers[entry.follower].task = entry.task
    for number, follower in followers.items():
        task = kept.get(follower.task)
        if task is None:
            yield f"follower {number}: followed {follower.task}, which is not there"
            continue
        for problem in _numbered(follower, task):
            yield f"follower {number} of {task.id}: {problem}"


def _numbered(follower: Followed, task: StoredTask) -> Iterator[str]:
    at: int | None = None
    run: list[str] = []
    for entry in follower.entries:
        match entry:
            case Opened(after=None):
                yield from _slice(run, task, whole=False)
                at, run = None, []
            case Opened(after=after):
                if at is not None and after != at:
                    yield f"went on after {after}, having seen {at}"
                at = after
            case Seen(shape="", sequence=None, digest=digest):
                run.append(digest)
            case Seen(sequence=None):
                pass
            case Seen(sequence=sequence) if sequence is not None:
                yield from _place(entry, sequence, at, task)
                at = sequence
            case Closed(why=why):
                yield from _slice(run, task, whole=why == "end")
                if why == "end" and at is not None and at != task.last and task.state in states.TERMINAL:
                    yield f"its stream ended after {at} of {task.last}"
    last = follower.entries[-1]
    if isinstance(last, Closed) and last.why.startswith("refused"):
        yield f"was {last.why}"
    elif not isinstance(last, Closed) and task.state in states.TERMINAL:
        yield f"was left waiting at {at} although the task has ended with {task.last}"
    elif isinstance(last, Closed) and last.why == "end" and task.state not in states.TERMINAL:
        yield f"its stream ended, and the task is {_name(task.state)}"


def _place(seen: Seen, sequence: int, at: int | None, task: StoredTask) -> Iterator[str]:
    """Checks an event or Task against its position in the log."""
    if not 1 <= sequence <= len(task.events):
        yield f"saw event {sequence} of {task.last}"
        return
    event = task.events[sequence - 1]
    if seen.shape and at is None:
        if event.shape and seen.shape != event.shape:
            yield f"the Task at {sequence} is not the fold of the events up to it"
        return
    if at is None:
        yield f"saw event {sequence} before any Task"
    elif sequence <= at:
        yield f"saw event {sequence} again after {at}"
    elif sequence != at + 1:
        yield f"saw event {sequence} after {at}: a gap"
    if seen.digest != event.digest:
        yield f"saw another event {sequence} than the log has"


def _slice(run: Sequence[str], task: StoredTask, *, whole: bool) -> Iterator[str]:
    """Checks that events without sequences are adjacent in the log, and the last if the server ended the stream."""
    if not run:
        return
    log = [event.digest for event in task.events]
    starts = [start for start in range(len(log) - len(run) + 1) if log[start : start + len(run)] == list(run)]
    if not starts:
        yield f"{len(run)} events that it saw do not follow each other in the log"
    elif whole and task.state in states.TERMINAL and starts[-1] + len(run) != len(log):
        yield f"its stream ended {len(log) - starts[-1] - len(run)} events before the log does"


# States -------------------------------------------------------------------------------------------------------------


def terminal(history: Sequence[Entry], kept: Mapping[str, StoredTask]) -> Iterator[str]:
    """Checks that a reported terminal state is final."""
    follows = {entry.follower: entry.task for entry in history if isinstance(entry, Opened)}
    for entry in history:
        if isinstance(entry, Seen):
            task, state = kept.get(follows[entry.follower]), entry.state
        elif isinstance(entry, Acknowledged | Canceled | Got | CallResult):
            task, state = kept.get(entry.task), entry.state
        else:
            continue
        if task is not None and state in states.TERMINAL and task.state != state:
            yield f"task {task.id}: {type(entry).__name__} said {_name(state)}, it is {_name(task.state)}"


def claims(history: Sequence[Entry], _: Mapping[str, StoredTask]) -> Iterator[str]:
    """Checks that claims of dead sessions end, and that submitted tasks wait only for a free slot."""
    backlogged: Sampled | None = None
    for entry in history:
        if not isinstance(entry, Sampled):
            continue
        if entry.up > GRACE and entry.orphans:
            yield f"after {entry.up:.0f} s: {len(entry.orphans)} tasks of dead sessions, such as {entry.orphans[0]}"
        if entry.stuck:
            yield f"task {entry.stuck[0]}: claimed by nobody, never to be claimed ({len(entry.stuck)} such)"
        if entry.waiting and entry.running < entry.slots and entry.up > BACKLOGGED:
            if backlogged is not None and entry.at - backlogged.at > BACKLOGGED:
                yield f"{entry.waiting} tasks waited {entry.at - backlogged.at:.0f} s while slots were free"
            backlogged = backlogged or entry
        else:
            backlogged = None


def interrupted(history: Sequence[Entry], kept: Mapping[str, StoredTask]) -> Iterator[str]:
    """Checks that an interrupted task survives every crash, and can be answered."""
    sent = {entry.op: entry for entry in history if isinstance(entry, Sent)}
    answers: defaultdict[str, list[int]] = defaultdict(list)
    left: dict[str, float] = {}
    for entry in history:
        if isinstance(entry, Left):
            left[entry.task] = entry.at
        elif isinstance(entry, Acknowledged) and sent[entry.op].task:
            answers[entry.task].append(entry.state)
        elif isinstance(entry, Rejected) and sent[entry.op].task in left:
            yield f"task {sent[entry.op].task}: asked, and refused the answer: {entry.reason}"
    for name in left:
        task = kept.get(name)
        if task is None:
            yield f"task {name}: asked, and is lost"
            continue
        numbers = [event.sequence for event in task.events if event.state in states.INTERRUPTED]
        if not numbers:
            yield f"task {name}: asked, and its log does not say so"
        elif not answers[name] and (task.state not in states.INTERRUPTED or numbers[-1] != task.last):
            yield f"task {name}: asked, was left alone, and is {_name(task.state)}"
        elif answers[name] and task.state != states.COMPLETED:
            yield f"task {name}: asked, was answered, and is {_name(task.state)}"


def keys(history: Sequence[Entry], kept: Mapping[str, StoredTask]) -> Iterator[str]:
    """Checks that all sends with one key have the same single task, or the same Message and no task."""
    sent = {entry.op: entry for entry in history if isinstance(entry, Sent) and entry.key}
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for entry in history:
        if isinstance(entry, Acknowledged) and entry.op in sent:
            answers[sent[entry.op].key].add(entry.task)
        if isinstance(entry, Replied) and entry.op in sent:
            answers[sent[entry.op].key].add(f"the Message {entry.digest}")
        if isinstance(entry, Rejected) and entry.op in sent and any(text in entry.reason for text in KEY_REUSED):
            yield f"key {sent[entry.op].key}: was rejected for the message that it was first sent with"
    by_text = Counter(task.text for task in kept.values())
    for key, text in {entry.key: entry.text for entry in sent.values()}.items():
        if len(answers[key]) > 1:
            yield f"key {key}: was answered with {len(answers[key])} tasks: {', '.join(sorted(answers[key]))}"
        if by_text[text] > 1:
            yield f"key {key}: made {by_text[text]} tasks"
        if by_text[text] and any(answer.startswith("the Message") for answer in answers[key]):
            yield f"key {key}: was answered with a Message, and its task is there"


def turns(_: Sequence[Entry], kept: Mapping[str, StoredTask]) -> Iterator[str]:
    """Checks that an agent is called once per message, and again only if its `on_crash` permits."""
    for task in kept.values():
        most = max(1, len(task.messages)) * task.attempts
        if task.begun > most:
            yield f"task {task.id}: its agent was called {task.begun} times for {len(task.messages)} messages"
        if task.state == states.COMPLETED and 0 < task.begun < len(task.messages):
            yield f"task {task.id}: completed, its agent has received {task.begun} of {len(task.messages)} messages"


def outputs(_: Sequence[Entry], kept: Mapping[str, StoredTask]) -> Iterator[str]:
    """Checks that the output of a completed stream is there once, whatever dead attempts have left."""
    for task in kept.values():
        command, *rest = task.text.split()
        if (
            command in ("stream", "burst", "append")
            and rest
            and task.output is not None
            and task.state == states.COMPLETED
        ):
            expected = "".join(f"{number} " for number in range(int(rest[0])))
            if task.output != expected:
                yield f"task {task.id}: its output is {task.output!r}, and was to be {expected!r}"


def _name(state: int) -> str:
    return states.name(state).removeprefix("TASK_STATE_")


def _short(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers[:8]))
    return f"{text}, ..." if len(numbers) > 8 else text
