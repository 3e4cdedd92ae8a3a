"""Checker of slow readers (G8).

| rule | what it says |
|---|---|
| agent | a task takes as long as its agent needs, whoever does not read its events |
| others | a follower that reads sees the end of its task when the task ends |
| memory | the feed of a task keeps its window of events, and no more, whatever its readers have missed |
| dropped | a client is dropped if it reads nothing for so long, and only then |

What a slow reader sees is judged with all followers: each event once and in order, over all its connections.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.chaos.actions import BEGIN, END, Action
from tests.chaos.history import Closed, Entry, Opened
from tests.chaos_checker.checker import StoredTask
from tests.simulation.operated.readers import BULK, TIMEOUTS, SlowRead

from dragoman.runtime.feeds import FEED_WINDOW_BYTES

SLACK: Final = 5.0
"""Seconds within which lost messages of the bus are noticed, and a follower connects again."""
CHECKS: Final = 3 * TIMEOUTS.check_interval


def judge_readers(
    entries: Sequence[Entry], actions: Sequence[Action], kept: Mapping[str, StoredTask], *, is_prompt: bool
) -> list[str]:
    """One line per broken rule. `is_prompt`: whether no process and no call of the store fails."""
    slow = [entry for entry in entries if isinstance(entry, SlowRead)]
    return [
        *_memory(slow),
        *(_dropped(slow) if is_prompt else ()),
        *(_agents(actions, kept) if is_prompt else ()),
        *(_others(entries, slow, kept) if is_prompt else ()),
    ]


def _memory(slow: Sequence[SlowRead]) -> Iterator[str]:
    for entry in slow:
        if entry.kept > FEED_WINDOW_BYTES:
            yield f"task {entry.task}: {entry.kept} bytes of events in memory, and {FEED_WINDOW_BYTES} may be"
            return


def _dropped(slow: Sequence[SlowRead]) -> Iterator[str]:
    for entry in slow:
        unread = entry.at - entry.since if entry.since else 0.0
        if entry.dropped and unread < TIMEOUTS.stalled * 0.98:
            yield f"follower {entry.follower}: dropped at {entry.at:.3f} s, and read at {entry.read:.3f} s"
        elif unread > TIMEOUTS.stalled + CHECKS:
            yield f"follower {entry.follower}: read nothing after {entry.read:.3f} s, and was kept until {entry.at:.3f}"


def _agents(actions: Sequence[Action], kept: Mapping[str, StoredTask]) -> Iterator[str]:
    times: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for action in actions:
        task = kept.get(action.task)
        if action.text in (BEGIN, END) and task is not None and task.text.startswith(BULK):
            times[action.task][action.text] = action.at
    for id, at in times.items():
        count, _, pause = kept[id].text.split()[1:4]
        needed = int(count) * int(pause) / 1000
        if END in at and at[END] - at[BEGIN] > needed + SLACK:
            yield f"task {id}: its agent needs {needed:.3f} s, and took {at[END] - at[BEGIN]:.3f}"


def _others(entries: Sequence[Entry], slow: Sequence[SlowRead], kept: Mapping[str, StoredTask]) -> Iterator[str]:
    slow_ones = {entry.follower for entry in slow}
    followed = {entry.follower: entry for entry in entries if isinstance(entry, Opened)}
    for entry in entries:
        if isinstance(entry, Closed) and entry.why == "end" and entry.follower not in slow_ones:
            task = kept.get(followed[entry.follower].task)
            if task is None or not task.text.startswith(BULK):
                continue
            ended = max(task.times[1], followed[entry.follower].at)
            if entry.at - ended > SLACK:
                yield f"follower {entry.follower}: saw the end of {task.id} {entry.at - ended:.3f} s after it"
