"""Checker of called agents: compares the work of other servers, by their own account, with the tasks and the callers.

| rule | what it says |
|---|---|
| canceled | CANCELED means that the work has stopped, or was never delivered |
| cancel kept | an accepted cancel reaches the work, or the task says that its end is unknown, see `_is_lost_call` |
| begun once | a message, or a call of a tool that may not be repeated, begins one piece of work |
| result | a completed task has what the work made; a failed one has a reason that something explains |
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.chaos.history import Canceled, Entry, Fault
from tests.chaos_checker.cancel_checker import TOLERANCE, reported_canceled
from tests.chaos_checker.checker import StoredTask
from tests.simulation.called.peer import Work
from tests.simulation.called.plan import CALLED_AGENTS
from tests.simulation.plan import Plan

from dragoman.core.task import states

DELIVERY: Final = 15.0
"""Seconds in which an accepted cancel reaches the work, once everything responds."""

REPEATABLE: Final = "look"
"""The tool that may be called twice."""

UNKNOWN_OUTCOMES: Final = ("UPSTREAM_UNKNOWN", "UPSTREAM_LOST", "MCP_UNKNOWN", "MCP_LOST", "NOT_WRITTEN")
"""Reasons for which a task may fail if something was struck."""

UNPROVOKED: Final = ", although nothing was struck"


def judge_called(
    plan: Plan, entries: Sequence[Entry], kept: Mapping[str, StoredTask], works: Sequence[Work], recovered: float
) -> list[str]:
    """One line per broken rule. recovered: when everything responded again."""
    by_task = _works_by_task(kept, works)
    profile = plan.profile
    is_calm = not (plan.faults or profile.lost_calls or profile.late_answers or profile.failures or profile.slow_calls)
    end = UNPROVOKED if is_calm else ""
    problems = [
        *_canceled(entries, kept, by_task),
        *_cancels_kept(entries, kept, by_task, recovered),
        *_begun_once(kept, by_task),
        *_results(kept, by_task, _canceled_words(plan), is_calm=is_calm),
    ]
    return [problem + end for problem in problems]


def _works_by_task(kept: Mapping[str, StoredTask], works: Sequence[Work]) -> Mapping[str, list[Work]]:
    """The work of each task: known by the ids of messages, or by the text of a call."""
    by_message = {message: task.id for task in kept.values() for message in task.messages}
    by_text = {task.text: task.id for task in kept.values()}
    found: defaultdict[str, list[Work]] = defaultdict(list)
    for work in works:
        if work.tool:
            task = by_text.get(f"{work.tool} {work.text}")
        else:
            task = by_message.get(work.messages[0].message_id)
        if task is not None:
            found[task].append(work)
    return found


def _canceled(
    entries: Sequence[Entry], kept: Mapping[str, StoredTask], by_task: Mapping[str, list[Work]]
) -> Iterator[str]:
    reported = reported_canceled(entries)
    for id, works in by_task.items():
        if id in reported:
            since, how = reported[id]
        elif kept[id].state == states.CANCELED:
            since, how = kept[id].times[1], "the store"
        else:
            continue
        late = [work for work in works if work.ended is None or work.ended > since + TOLERANCE]
        for work in late[:1]:
            until = "on" if work.ended is None else f"on until {work.ended - since:.3f} s later"
            reached = f"told {work.cancels[0] - since:.3f} s later" if work.cancels else "never told"
            yield f"task {id}: {how} said CANCELED at {since:.3f} s, its work at {work.peer} went {until}, {reached}"


def _cancels_kept(
    entries: Sequence[Entry], kept: Mapping[str, StoredTask], by_task: Mapping[str, list[Work]], recovered: float
) -> Iterator[str]:
    accepted: dict[str, float] = {}
    struck = [one for one in entries if isinstance(one, Fault) and one.part in ("server", "postgres")]
    for entry in entries:
        if isinstance(entry, Canceled) and not entry.reason and entry.state not in states.TERMINAL:
            accepted.setdefault(entry.task, entry.at)
    for id, at in accepted.items():
        for work in by_task.get(id, ()):
            due = max(at, recovered) + DELIVERY
            is_late = work.ended is None or work.ended > due
            was_notified = any(one <= due for one in work.cancels) or _is_lost_call(work, kept[id], struck, due)
            if is_late and not was_notified:
                yield f"task {id}: its cancel was accepted at {at:.3f} s, its work at {work.peer} was never told"
                break


def _is_lost_call(work: Work, task: StoredTask, struck: Sequence[Fault], due: float) -> bool:
    """Whether its call of an MCP tool was lost with its connection, the process that made it, or that process's lease.

    Only the process that made a call can cancel it, until the id of the server's task is stored. A process that was
    frozen may see the end of its connection before it sees the cancel, and ends the task because of that. A server that
    is frozen begins the work of a call later, when the process that made it may be gone.
    """
    is_lost = any(task.times[0] <= fault.at + fault.seconds and fault.at <= due for fault in struck)
    return is_lost and bool(work.tool) and task.reason in ("OUTCOME_UNKNOWN", "MCP_UNKNOWN")


def _begun_once(kept: Mapping[str, StoredTask], by_task: Mapping[str, list[Work]]) -> Iterator[str]:
    for id, works in by_task.items():
        begun = Counter(
            work.text if work.tool else work.messages[0].message_id
            for work in works
            if work.tool != REPEATABLE and not work.is_lost
        )
        for name, times in begun.items():
            if times > 1:
                yield f"task {id}: {works[0].peer} has begun {times} times to work for {name}"


def _canceled_words(plan: Plan) -> set[str]:
    """The words of the tasks that callers cancel: an answer to a cancel may be lost."""
    return {operation.words for caller in plan.callers for operation in caller if operation.kind.startswith("cancel")}


def _results(
    kept: Mapping[str, StoredTask], by_task: Mapping[str, list[Work]], canceled_words: set[str], *, is_calm: bool
) -> Iterator[str]:
    for task in kept.values():
        if task.agent not in CALLED_AGENTS:
            continue
        works = by_task.get(task.id, ())
        ends = {work.state for work in works if work.ended is not None}
        if task.state == states.COMPLETED and states.COMPLETED not in ends:
            yield f"task {task.id}: completed, and no work for it has"
        elif task.reason == "OUTCOME_UNKNOWN" and task.agent == "tools" and any(map(task.text.count, canceled_words)):
            pass  # MCP confirms no cancel of a call that is not a task
        elif task.state == states.FAILED and task.reason in UNKNOWN_OUTCOMES:
            if is_calm:
                yield f"task {task.id}: {task.reason}"
        elif task.state == states.FAILED and not (
            states.FAILED in ends and task.reason in ("", "TOOL_ERROR", "MCP_ERROR")
        ):
            yield f"task {task.id}: failed because of {task.reason or 'nothing'}, and its work has not"
        for work in works:
            if task.state == states.COMPLETED and work.is_active:
                yield f"task {task.id}: completed, and {work.id} goes on"
