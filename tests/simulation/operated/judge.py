"""Checker of histories with operators.

| rule | what it says |
|---|---|
| erased | a task whose erasure was answered is gone, for good |
| rerun | one request reruns a task once, and the new task is there |
| paused | no turn of an agent begins in a process that has answered that it is paused, unless one of its task goes on |
| webhooks | a removed webhook is told nothing more, and one that was added is told the end of its task |
| audit | each answered call of an operator is in the audit log, whose chain has no gap |

`quota_judge` has the rules of quotas, `reader_judge` those of slow readers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tests.chaos.actions import BEGIN, END
from tests.chaos.history import Acknowledged, Delivered, Entry, Got, Opened, Sent
from tests.simulation.judge import Observed
from tests.simulation.memory.tables import MemoryTables
from tests.simulation.operated.callers import (
    Erased,
    Erasing,
    HookChanged,
    Operated,
    Paused,
    Rerun,
    Resuming,
)
from tests.simulation.operated.quota_judge import judge_quotas
from tests.simulation.operated.reader_judge import judge_readers
from tests.simulation.plan import Plan

ON_THE_WAY: Final = 0.05
"""Seconds after an answer in which what was under way before may still arrive."""


def judge_operated(plan: Plan, observed: Observed, tables: MemoryTables) -> list[str]:
    """One line per broken rule."""
    kinds = {fault.kind for fault in plan.faults}
    is_prompt = not (plan.profile.slow_calls or plan.profile.failures or kinds)
    return [
        *_erased(observed),
        *_reruns(observed),
        *(_paused(observed) if is_prompt else ()),
        *judge_quotas(observed.entries, observed.kept, plan.profile.drift, is_prompt=is_prompt),
        *judge_readers(*observed, is_prompt=is_prompt),
        *_webhooks(observed, is_prompt=is_prompt, most_late=1 if plan.profile.losses or plan.profile.delays else 0),
        *_audit(observed.entries, tables),
    ]


def without_operators(observed: Observed) -> Observed:
    """What the other checkers judge: without erased tasks, and webhooks that were added or removed."""
    entries, actions, kept = observed
    erased = {entry.task for entry in entries if isinstance(entry, Erasing)}
    hooks = {entry.hook for entry in entries if isinstance(entry, HookChanged)}
    if not (erased or hooks):
        return observed
    followers = {entry.follower for entry in entries if isinstance(entry, Opened) and entry.task in erased}
    sends = {entry.op for entry in entries if isinstance(entry, Acknowledged) and entry.task in erased}
    left = []
    for entry in entries:
        is_erased = (
            getattr(entry, "task", "") in erased
            or getattr(entry, "follower", 0) in followers
            or getattr(entry, "op", 0) in sends
        )
        if not is_erased and not (isinstance(entry, Delivered) and entry.hook in hooks):
            left.append(replace(entry, hook=0) if isinstance(entry, Sent) and entry.hook in hooks else entry)
    return Observed(
        left,
        [action for action in actions if action.task not in erased],
        {id: task for id, task in kept.items() if id not in erased},
    )


def _erased(observed: Observed) -> Iterator[str]:
    erased = {entry.task: entry.at for entry in observed.entries if isinstance(entry, Erased)}
    for id, at in erased.items():
        if id in observed.kept:
            yield f"task {id}: erased at {at:.3f} s, and still there"
    for entry in observed.entries:
        if isinstance(entry, Got) and entry.at > erased.get(entry.task, entry.at) and not entry.reason:
            yield f"task {entry.task}: erased at {erased[entry.task]:.3f} s, and read at {entry.at:.3f} s"


def _reruns(observed: Observed) -> Iterator[str]:
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for entry in observed.entries:
        if isinstance(entry, Rerun):
            found[entry.task, entry.name].add(entry.again)
    for (id, name), again in found.items():
        if len(again) > 1:
            yield f"task {id}: rerun {len(again)} times by the request {name}"
        elif not again <= observed.kept.keys():
            yield f"task {id}: rerun as {min(again)}, which is not there"


def _paused(observed: Observed) -> Iterator[str]:
    resumed = [(entry.at, entry.agent) for entry in observed.entries if isinstance(entry, Resuming)]
    for entry in observed.entries:
        if not isinstance(entry, Paused):
            continue
        until = min(at for at, agent in resumed if agent == entry.agent and at > entry.at)
        ended = dict[str, float]()  # a running turn goes on with the messages that have reached its task
        for action in observed.actions:
            if action.process == entry.process and action.text == END:
                ended[action.task] = action.at
            task = observed.kept.get(action.task)
            if (
                action.text == BEGIN
                and action.process == entry.process
                and task is not None
                and task.agent == entry.agent
                and entry.at + ON_THE_WAY < action.at < until
                and action.at > ended.get(action.task, 0.0) + ON_THE_WAY
            ):
                yield (
                    f"task {action.task}: began at {action.at:.3f} s in {action.process}, which had answered at "
                    f"{entry.at:.3f} s that agent {entry.agent} is paused"
                )


def _webhooks(observed: Observed, *, is_prompt: bool, most_late: int) -> Iterator[str]:
    """`most_late`: events that a process may still deliver that the bus has not told in time."""
    changes = {(entry.hook, entry.how): entry for entry in observed.entries if isinstance(entry, HookChanged)}
    deliveries: defaultdict[int, list[Delivered]] = defaultdict(list)
    for entry in observed.entries:
        if isinstance(entry, Delivered):
            deliveries[entry.hook].append(entry)
    for (hook, how), change in changes.items():
        task = observed.kept.get(change.task)
        if how == "removed" and is_prompt:
            late = [one for one in deliveries[hook] if one.at > change.at + ON_THE_WAY]
            for one in late[most_late : most_late + 1]:
                yield f"webhook {hook}: removed at {change.at:.3f} s, told event {one.sequence} at {one.at:.3f} s"
        elif how == "added" and task is not None:
            reported = {one.sequence for one in deliveries[hook] if 200 <= one.status < 300}
            if task.last not in reported and change.at < task.times[1]:
                yield f"webhook {hook}: added at {change.at:.3f} s, and never told event {task.last}, the last"


def _audit(entries: Sequence[Entry], tables: MemoryTables) -> Iterator[str]:
    numbers = [record.number for record in tables.audit]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"the audit log is numbered {numbers[:5]}…"
    recorded = {value for record in tables.audit for value in record.entry.who.values()}
    for entry in entries:
        if isinstance(entry, Operated) and entry.name not in recorded:
            yield f"{entry.call} {entry.name}: answered at {entry.at:.3f} s, and not in the audit log"
