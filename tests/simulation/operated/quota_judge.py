"""Checker of quotas: of live tasks, of rates and of bytes.

| rule | what it says |
|---|---|
| live tasks | no principal ever has more than its quota, and a send is rejected only if it has as many |
| starts | no process accepts more than a minute's worth at once, and those that come due after that |
| requests | the same, with two seconds' worth, of requests |
| queued bytes | messages that wait are within the quota, unless one waits alone |
| too early | nothing is rejected that is within its quota |
| time to retry | is the time at which the process accepts it, or five seconds if that depends on the caller's tasks |
| no effect | a rejected message is in no task |

The last but two need to know what every send came to: they are judged where no process and no call of the store fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.chaos.history import Acknowledged, Entry, Rejected, Sent
from tests.chaos_checker.checker import StoredTask
from tests.simulation.operated.quotas import (
    LIMITED_AGENT,
    LIVE_TASKS,
    QUEUED_BYTES,
    RATED_AGENT,
    REQUESTS_PER_SECOND,
    STARTS_PER_MINUTE,
    Limited,
    Queued,
    Requested,
    Served,
)

from dragoman.core.task import states

REQUESTS_AT_ONCE: Final = 2 * REQUESTS_PER_SECOND
RETRY_SECONDS: Final = 5.0
"""The time to retry if it depends on the caller's own tasks."""
ROUNDING: Final = 0.005
"""Seconds by which noted times differ from those of the store, and times to retry are rounded."""
MESSAGE_ROOM: Final = 1000
"""Bytes that a message is longer than its text, at most."""


class Bucket:
    """A token bucket, as the documentation describes it: full at first, one token each `interval` seconds."""

    def __init__(self, size: int, interval: float) -> None:
        self._size = size
        self._interval = interval
        self._tokens = float(size)
        self._at = 0.0

    def tokens(self, at: float) -> float:
        """The tokens at a time, which is not before that of the last call."""
        self._tokens = min(self._tokens + max(at - self._at, 0.0) / self._interval, self._size)
        self._at = max(at, self._at)
        return self._tokens

    def take(self, at: float) -> float:
        """Takes one. Returns how many there were."""
        before = self.tokens(at)
        self._tokens -= 1
        return before

    def wait(self, at: float) -> float:
        """Seconds until there is one."""
        return max(1 - self.tokens(at), 0.0) * self._interval


def judge_quotas(
    entries: Sequence[Entry], kept: Mapping[str, StoredTask], drift: float, *, is_prompt: bool
) -> list[str]:
    """One line per broken rule. `is_prompt`: whether no process and no call of the store fails. `drift`: of clocks."""
    return [
        *_live_tasks(kept),
        *_without_effect(entries, kept),
        *_too_many_starts(entries, kept),
        *_requests(entries, drift),
        *_queue(entries),
        *(_early_rejections(entries, kept) if is_prompt else ()),
    ]


def _early_rejections(entries: Sequence[Entry], kept: Mapping[str, StoredTask]) -> Iterator[str]:
    sent = {entry.op: entry for entry in entries if isinstance(entry, Sent)}
    for entry in entries:
        if not isinstance(entry, Limited):
            continue
        match entry.limit:
            case "live_tasks_per_agent":
                yield from _live_rejection(entry, sent[entry.op], kept)
            case "starts_per_minute":
                yield from _start_rejection(entry, sent[entry.op], entries, kept)
            case "queued_bytes":
                yield from _queue_rejection(entry, sent[entry.op], entries)
            case _:
                yield f"op {entry.op}: rejected by the quota {entry.limit!r}, which it does not reach"


def _without_effect(entries: Sequence[Entry], kept: Mapping[str, StoredTask]) -> Iterator[str]:
    rejected = {entry.op for entry in entries if isinstance(entry, Rejected) and entry.reason == "RateLimited"}
    sends = [entry for entry in entries if isinstance(entry, Sent)]
    others = {entry.message for entry in sends if entry.op not in rejected}
    stored = {message: task.id for task in kept.values() for message in task.messages}
    for entry in sends:
        if entry.op in rejected and entry.message in stored.keys() - others:
            yield f"op {entry.op}: rejected by a quota, and its message is in task {stored[entry.message]}"


# Live tasks -----------------------------------------------------------------------------------------------------------


def _live(kept: Mapping[str, StoredTask]) -> list[tuple[float, float]]:
    """When the tasks of the limited agent were live."""
    return [
        (task.times[0], task.times[1] if task.state in states.TERMINAL else float("inf"))
        for task in kept.values()
        if task.agent == LIMITED_AGENT
    ]


def _live_tasks(kept: Mapping[str, StoredTask]) -> Iterator[str]:
    live = _live(kept)
    for began, _ in live:
        at_once = sum(start <= began < end for start, end in live)
        if at_once > LIVE_TASKS:
            yield f"{at_once} tasks were live at {began:.3f} s, and {LIVE_TASKS} may be"


def _live_rejection(entry: Limited, sent: Sent, kept: Mapping[str, StoredTask]) -> Iterator[str]:
    live = _live(kept)
    moments = [sent.at, *(start for start, _ in live if sent.at <= start <= entry.at)]
    most = max(sum(start <= at <= end for start, end in live) for at in moments)
    if most < LIVE_TASKS:
        yield f"op {entry.op}: rejected at {entry.at:.3f} s, with {most} live tasks, and {LIVE_TASKS} may be"
    if entry.maximum != str(LIVE_TASKS) or entry.retry_after != RETRY_SECONDS:
        yield f"op {entry.op}: rejected with a quota of {entry.maximum}, to be sent again after {entry.retry_after:g} s"


# Starts ---------------------------------------------------------------------------------------------------------------

START_SECONDS: Final = 60 / STARTS_PER_MINUTE


def _starts(entries: Sequence[Entry], kept: Mapping[str, StoredTask]) -> tuple[dict[str, list[float]], list[float]]:
    """When the tasks of the rated agent began, by the process that accepted them; and those where that is not known."""
    processes = {entry.op: entry.process for entry in entries if isinstance(entry, Served)}
    accepted = {entry.task: processes.get(entry.op, "") for entry in entries if isinstance(entry, Acknowledged)}
    by_process, unknown = defaultdict[str, list[float]](list), list[float]()
    for task in kept.values():
        if task.agent == RATED_AGENT:
            (by_process[accepted[task.id]] if task.id in accepted else unknown).append(task.times[0])
    return {process: sorted(times) for process, times in by_process.items()}, unknown


def _too_many_starts(entries: Sequence[Entry], kept: Mapping[str, StoredTask]) -> Iterator[str]:
    for process, times in _starts(entries, kept)[0].items():
        bucket = Bucket(STARTS_PER_MINUTE, START_SECONDS)
        for number, at in enumerate(times, 1):
            if bucket.take(at) < 1 - ROUNDING:
                yield f"{process} began {number} turns by {at:.3f} s, and {STARTS_PER_MINUTE} per minute may begin"
                break


def _start_rejection(
    entry: Limited, sent: Sent, entries: Sequence[Entry], kept: Mapping[str, StoredTask]
) -> Iterator[str]:
    process = next(one.process for one in entries if isinstance(one, Served) and one.op == entry.op)
    by_process, unknown = _starts(entries, kept)
    known = by_process.get(process, [])
    # As many before it as there can have been, or as few.
    most, fewest = (Bucket(STARTS_PER_MINUTE, START_SECONDS) for _ in range(2))
    for at in sorted([*known, *unknown]):
        if at <= entry.at:
            most.take(min(at, sent.at))
    for at in known:
        if at <= sent.at:
            fewest.take(at)
    if most.tokens(sent.at) >= 1 + ROUNDING:
        yield f"op {entry.op}: rejected at {entry.at:.3f} s, and {process} had begun {len(known)} turns"
    longest, shortest = most.wait(sent.at), fewest.wait(entry.at)
    if not shortest - ROUNDING <= entry.retry_after <= longest + ROUNDING:
        yield (
            f"op {entry.op}: rejected at {entry.at:.3f} s, to be sent again after {entry.retry_after:.3f} s, and "
            f"accepted after {shortest:.3f} to {longest:.3f}"
        )


# Requests -------------------------------------------------------------------------------------------------------------


def _requests(entries: Sequence[Entry], drift: float) -> Iterator[str]:
    requests = defaultdict[str, list[Requested]](list)
    for entry in entries:
        if isinstance(entry, Requested):
            requests[entry.process].append(entry)
    interval = 1 / REQUESTS_PER_SECOND
    for process, noted in requests.items():
        # By a clock that is as fast as it can be, and by one that is as slow.
        fast, slow = Bucket(REQUESTS_AT_ONCE, interval / (1 + drift)), Bucket(REQUESTS_AT_ONCE, interval / (1 - drift))
        for number, entry in enumerate(noted, 1):
            shortest, longest = fast.wait(entry.at), slow.wait(entry.at)
            if entry.retry_after:
                if not shortest - ROUNDING <= entry.retry_after * (1 + drift) <= longest + ROUNDING + drift:
                    yield (
                        f"{process} rejected request {number} at {entry.at:.3f} s, to be sent again after "
                        f"{entry.retry_after:.3f} s, and accepted after {shortest:.3f} to {longest:.3f}"
                    )
                    break
            elif shortest > ROUNDING:
                yield f"{process} took {number} requests by {entry.at:.3f} s, and {REQUESTS_PER_SECOND} a second may be"
                break
            else:
                fast.take(entry.at)
                slow.take(entry.at)


# Queued bytes ---------------------------------------------------------------------------------------------------------


def _queue(entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, Queued) and entry.messages > 1 and entry.size > QUEUED_BYTES:
            yield f"{entry.messages} messages of {entry.size} bytes waited at {entry.at:.3f} s: {QUEUED_BYTES} may"
            return


def _queue_rejection(entry: Limited, sent: Sent, entries: Sequence[Entry]) -> Iterator[str]:
    before = Queued(messages=0, size=0)
    most = 0
    for one in entries:
        if isinstance(one, Queued):
            if one.at <= sent.at:
                before = one
            elif one.at <= entry.at:
                most = max(most, one.size)
    most = max(most, before.size)
    if not most or most + len(sent.text) + MESSAGE_ROOM <= QUEUED_BYTES:
        yield f"op {entry.op}: rejected at {entry.at:.3f} s, with {most} queued bytes, and {QUEUED_BYTES} may be"
    if entry.maximum != str(QUEUED_BYTES) or entry.retry_after != RETRY_SECONDS:
        yield f"op {entry.op}: rejected with a quota of {entry.maximum}, to be sent again after {entry.retry_after:g} s"
