"""Checker of a chain run: what has to hold at each level, from the server that clients call to the agent that works.

A command is followed by its number through the stores of all levels and the actions of its agent. All functions are
pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.actions import BEGIN, Action
from tests.chaos.chains.agents import DONE
from tests.chaos.chains.routes import FRONT, LAST, MIDDLE, RETRIES, ROUTES, Command, Protocol, Route
from tests.chaos.history import Canceled, CancelSent, Entry, Fault, Rejected, Sent
from tests.chaos_checker.cancel_checker import reported_canceled
from tests.chaos_checker.checker import StoredTask, acknowledged, keys, logs, streams, terminal

from dragoman.core.task import states

TOLERANCE: Final = 0.05
"""Seconds by which an action may follow a response."""
LATE: Final = 20.0
"""Seconds after a fault in which the tasks that it hit end."""

UNCONFIRMED: Final = "OUTCOME_UNKNOWN"
"""The reason for which a canceled task fails that no other server has confirmed."""
BY_FAULT: Final = frozenset({"INTERRUPTED", "UPSTREAM_UNKNOWN", "MCP_UNKNOWN"})
"""Reasons for which a task may fail when a fault hits its route."""

Levels = Mapping[str, Mapping[str, StoredTask]]


@dataclass(slots=True)
class Chain:
    """Everything about one command."""

    command: Command
    tasks: dict[str, list[StoredTask]] = field(default_factory=lambda: defaultdict(list))
    """Its tasks at each level."""
    actions: list[Action] = field(default_factory=list)
    cancel_at: float | None = None
    """When its first cancel was sent."""
    answers: list[Canceled] = field(default_factory=list)
    """The responses to its cancels."""
    canceled_at: float | None = None
    """When a client first got CANCELED."""

    @property
    def route(self) -> Route:
        return ROUTES[self.command.route]

    def task(self, level: str) -> StoredTask | None:
        """Its first task at a level."""
        return self.tasks[level][0] if self.tasks[level] else None

    @property
    def is_cancel_acknowledged(self) -> bool:
        return any(not answer.reason for answer in self.answers)


def judge_chains(history: Sequence[Entry], levels: Levels, actions: Sequence[Action]) -> list[str]:
    """Returns all violations, as texts. Actions in order, each with the number of its command as its task."""
    front = levels[FRONT]
    texts = [f"{name}: {text}" for name, kept in levels.items() for text in logs(history, kept)]
    for check in (acknowledged, streams, terminal, keys):
        texts += check(history, front)
    texts += _rejections(history)
    return [*texts, *_of_chains(history, levels, actions)]


def _of_chains(history: Sequence[Entry], levels: Levels, actions: Sequence[Action]) -> Iterator[str]:
    faults = [entry for entry in history if isinstance(entry, Fault)]
    for chain in collect(history, levels, actions).values():
        checks = _delivered_once(chain), _results(chain), _failures(chain, faults), _cancels(chain), _ends(chain)
        yield from (f'"{chain.command.text}": {text}' for texts in checks for text in texts)


def collect(history: Sequence[Entry], levels: Levels, actions: Sequence[Action]) -> Mapping[int, Chain]:
    """Returns the commands by number."""
    chains: dict[int, Chain] = {}
    for entry in history:
        if isinstance(entry, Sent) and (command := Command.find(entry.text)):
            chains.setdefault(command.number, Chain(command))
    for name, kept in levels.items():
        for task in kept.values():
            if command := Command.find(task.text):
                chains.setdefault(command.number, Chain(command)).tasks[name].append(task)
    for action in actions:
        if int(action.task) in chains:
            chains[int(action.task)].actions.append(action)
    by_task = {task.id: chain for chain in chains.values() for task in chain.tasks[FRONT]}
    for task_id, (at, _) in reported_canceled(history).items():
        if task_id in by_task:
            by_task[task_id].canceled_at = at
    for entry in history:
        if isinstance(entry, CancelSent | Canceled) and (chain := by_task.get(entry.task)):
            if isinstance(entry, Canceled):
                chain.answers.append(entry)
            elif chain.cancel_at is None:
                chain.cancel_at = entry.at
    return chains


def _rejections(history: Sequence[Entry]) -> Iterator[str]:
    """Checks that sends are not rejected, and cancels only because a task has ended."""
    for entry in history:
        if isinstance(entry, Rejected):
            yield f"op {entry.op}: rejected: {entry.reason}"
        elif isinstance(entry, Canceled) and entry.reason not in ("", "TASK_NOT_CANCELABLE"):
            yield f"task {entry.task}: its cancel was rejected: {entry.reason}"


# Delivery -----------------------------------------------------------------------------------------------------------


def _delivered_once(chain: Chain) -> Iterator[str]:
    """Checks that a command has one task at each level on its way, and its agent is not called more often than it may.

    What an agent has begun is stored at each level.
    """
    for level in (FRONT, MIDDLE, LAST):
        if len(chain.tasks[level]) > 1:
            yield f"{len(chain.tasks[level])} tasks of {level}"
    begun = [action.attempt for action in chain.actions if action.text == BEGIN]
    is_call = chain.route.hops[-1].protocol is Protocol.MCP_CALL
    most = 1 + RETRIES if chain.route.repeats else 1
    if len(begun) > most and not (is_call and chain.route.repeats):
        yield f"its agent was called {len(begun)} times"
    if len(set(begun)) < len(begun) and not is_call:  # whose attempts are counted by each process anew
        yield f"its agent was called twice for one attempt: {begun}"
    for level in chain.route.levels:
        if chain.actions and not chain.tasks[level]:
            yield f"its agent works, and {level} has no task"


def _results(chain: Chain) -> Iterator[str]:
    """Checks that a result is that of the finished work, once and whole, at every level above it."""
    below: StoredTask | None = None
    for level in reversed(chain.route.levels):
        task = chain.task(level)
        if task is not None and task.state == states.COMPLETED:
            if task.result_text.strip() != chain.command.output.strip():
                yield f"completed at {level} with another result: {task.result_text[:80]!r}"
            if not any(action.text == DONE for action in chain.actions):
                yield f"completed at {level}, and its agent has not finished"
            if below is not None and below.state != states.COMPLETED:
                yield f"completed at {level}, and is {states.name(below.state)} behind it"
        below = task


def _failures(chain: Chain, faults: Sequence[Fault]) -> Iterator[str]:
    """Checks that a fault on the route explains each failure."""
    for level in chain.route.levels:
        task = chain.task(level)
        if task is None or task.state != states.FAILED:
            continue
        created, ended = task.times
        reasons = set(re.findall(r"\w+", f"{task.reason} {task.result_text}"))
        text = f"failed at {level}: {task.reason} {task.result_text[:200]}"
        earlier = [fault for fault in faults if fault.part in chain.route.parts and fault.at <= ended + TOLERANCE]
        if UNCONFIRMED in reasons and chain.cancel_at is not None and chain.route.hops[0].protocol is not Protocol.A2A:
            continue  # MCP confirms a cancel only of a task whose handle is known
        elif not BY_FAULT & reasons:
            yield text
        elif not any(created <= fault.at + fault.seconds + LATE for fault in earlier):
            yield f"{text}, and no fault hit its route"


# Cancels ------------------------------------------------------------------------------------------------------------


def _cancels(chain: Chain) -> Iterator[str]:
    """Checks that CANCELED means that the work behind has stopped, or was never delivered."""
    front = chain.task(FRONT)
    if front is None or front.state != states.CANCELED:
        return
    if chain.cancel_at is None:
        yield "is CANCELED, and nobody has canceled it"
        return
    canceled_since = chain.canceled_at if chain.canceled_at is not None else front.times[1]
    late = [action for action in chain.actions if action.at > canceled_since + TOLERANCE]
    for hop in chain.route.hops:
        lower = chain.task(hop.callee)
        if lower is None or lower.state != states.CANCELED:
            break
    else:
        hop = chain.route.hops[-1]
    stopped = lower is None or lower.state in (states.CANCELED, states.FAILED)
    if stopped and not late:
        return
    what = f"is {states.name(lower.state)}" if lower is not None else "works"
    text = f"CANCELED at {canceled_since:.3f} s, {hop.callee} {what}, {len(late)} later actions"
    if late:
        text += f" until {late[-1].at - canceled_since:.3f} s later"
    yield text


def _ends(chain: Chain) -> Iterator[str]:
    """Checks that tasks have ended at the end of the run, at every level below one that waits for them."""
    is_waited_for = True
    for number, level in enumerate(chain.route.levels):
        task = chain.task(level)
        if task is None:
            return
        if task.state in states.TERMINAL:
            is_waited_for = task.state != states.FAILED  # whoever failed does not know the work behind
            if is_waited_for and task.state == states.CANCELED:
                return  # `_cancels` reports what goes on behind it
            continue
        if not is_waited_for and chain.command.ticks > 1000:
            return
        text = f"is {states.name(task.state)} at {level} at the end"
        if number == 0 and chain.is_cancel_acknowledged:
            yield f"its cancel was acknowledged, and it {text}"
        else:
            yield text
        return
