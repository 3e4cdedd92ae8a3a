"""Judges a simulated history with the checkers of the chaos run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from tests.chaos.actions import Action
from tests.chaos.history import Entry, Fault, shape, shown_tasks
from tests.chaos.targets.readback import output_of
from tests.chaos_checker.cancel_checker import judge_cancels
from tests.chaos_checker.checker import StoredEvent, StoredTask, judge
from tests.chaos_checker.isolation_checker import judge_isolation, judge_reuse
from tests.chaos_checker.step_checker import judge_steps
from tests.chaos_checker.turn_checker import judge_messages, judge_overlaps
from tests.simulation.agents import RETRIES, WORKER_SPECS, Journal
from tests.simulation.called.plan import CALLED_AGENTS
from tests.simulation.memory.database import MemoryDatabase, TaskRows
from tests.simulation.receivers import event_digest

from dragoman.core.task import states
from dragoman.core.task.log import ROLE_USER
from dragoman.core.task.projection import fold, unframe_message
from dragoman.runtime.lease import LEASE_MARGIN
from dragoman.runtime.sessions import LEASE_SECONDS
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

AT_WORKERS: Final = frozenset(spec.id for spec in WORKER_SPECS)

USABLE: Final = LEASE_SECONDS - LEASE_MARGIN
"""Seconds of a freeze that the lease of a process survives, at most."""


MAX_FOLDED_BYTES: Final = 500_000
"""Bytes of the events of a task that is compared with snapshots: the task is hashed after each of its events."""


class Observed(NamedTuple):
    """What a history left: entries, actions of agents, and the stored tasks."""

    entries: Sequence[Entry]
    actions: Sequence[Action]
    kept: Mapping[str, StoredTask]


def judge_all(entries: Sequence[Entry], actions: Sequence[Action], kept: Mapping[str, StoredTask]) -> list[str]:
    """One line per broken guarantee."""
    # Nothing stops an agent that ignores its cancel: only its verbs fail. When its process has lost its lease, others
    # end the task without waiting for it.
    stubborn = {task.id for task in kept.values() if task.text.startswith("stubborn")}
    obedient = [action for action in actions if action.task not in stubborn]
    # Agents of workers outlive their server by a lease.
    at_workers = {task.id for task in kept.values() if task.agent in AT_WORKERS}
    at_servers = [action for action in obedient if action.task not in at_workers]
    has_lapsed = any(isinstance(entry, Fault) and entry.how == "pause" and entry.seconds > USABLE for entry in entries)
    return [
        *judge(entries, {id: _without_called_agent(task) for id, task in kept.items()}),
        *judge_cancels(entries, obedient if has_lapsed else actions),
        *judge_steps(actions),
        *judge_overlaps(at_servers),
        *judge_messages(actions, kept),
        *judge_isolation(entries),
        *judge_reuse(entries),
    ]


def _without_called_agent(task: StoredTask) -> StoredTask:
    """The task, without the agent if another server did the work: what it fails with is judged apart."""
    return replace(task, agent="") if task.agent in CALLED_AGENTS else task


def stored_tasks(
    database: MemoryDatabase, journal: Journal, entries: Sequence[Entry], epoch: float
) -> dict[str, StoredTask]:
    """Every visible task with its log. `epoch`: the time of the store's clock when the history began."""
    shown: defaultdict[str, set[int]] = defaultdict(set)
    for task, sequence in shown_tasks(entries):
        shown[task].add(sequence)
    return {
        rows.record.id: _stored(rows, journal, epoch, shown.get(rows.record.id, ()))
        for rows in database.tasks.values()
        if rows.record.visible
    }


def _stored(rows: TaskRows, journal: Journal, epoch: float, shown: Collection[int]) -> StoredTask:
    """`shown`: the events at which followers have received the Task, whose shape is needed."""
    record, events, task = rows.record, list[StoredEvent](), pb.Task()
    if sum(len(event.data) for batch in rows.log for event in batch) >= MAX_FOLDED_BYTES:
        shown = ()
    last_shown = max(shown, default=0)
    for batch in rows.log:
        for event in batch:
            if event.sequence <= last_shown:
                fold(task, pb.StreamResponse.FromString(event.data))
            form = shape(task) if event.sequence in shown else ""
            events.append(StoredEvent(event.sequence, event_digest(event.data), event.state, form))
    messages = [pb.Message.FromString(unframe_message(row.data)) for row in rows.messages if row.role == ROLE_USER]
    reason = ""
    if record.state == states.FAILED and record.status_message:
        status = pb.Message.FromString(unframe_message(rows.messages[record.status_message - 1].data))
        reason = str(status.metadata["reason"]) if "reason" in status.metadata else ""
    return StoredTask(
        record.id,
        record.state,
        record.last_sequence,
        events,
        [message.message_id for message in messages],
        messages[0].parts[0].text,
        1 + RETRIES if record.agent.endswith("again") else 1,
        journal.begun[record.id],
        record.agent,
        reason,
        (rows.created / 1000 - epoch, record.updated / 1000 - epoch),
        output_of(pb.Task.FromString(rows.task(0))),
    )
