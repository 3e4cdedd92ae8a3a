"""Queries over all tasks of the store in memory, and its sessions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tests.simulation.memory import usage
from tests.simulation.memory.database import MemoryDatabase, TaskRows

from dragoman.core.counters import AgentBacklog, StoreStats
from dragoman.core.daily_usage import DailyUsageQuery, DailyUsageRow, HourlyUsage, HourlyUsageQuery
from dragoman.core.names import task_key_of
from dragoman.core.push.delivery import PushState
from dragoman.core.task import states
from dragoman.core.task.contents import ResponseBudget
from dragoman.core.task.cursors import (
    FailureGroup,
    FoundTask,
    FoundTasks,
    OpenTasks,
    StateCount,
    TaskPage,
    TaskQuery,
    TaskSearch,
    id_digits,
    metadata_entries,
    open_task_counts,
    sort_key,
    state_counts,
)
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.core.task.maintenance import StorageOptions
from dragoman.core.task.steps import CURRENT_TURN, StepRecord
from dragoman.ports import AgentTasks

MIN_KEPT_EVENTS = 64

# Sessions and claims --------------------------------------------------------------------------------------------------


def open_session(database: MemoryDatabase, lease: float, exclusive: bool) -> int:
    """See dragoman.ports.Store."""
    if exclusive:
        for session in database.sessions:
            database.sessions[session] = 0
    session = len(database.sessions) + 1
    database.sessions[session] = database.clock() + round(lease * 1000)
    return session


def renew_session(database: MemoryDatabase, session: int, lease: float) -> int:
    """See dragoman.ports.Store. Expiries from before the clock was set back become one lease."""
    now = database.clock()
    before, expiry = database.sessions.get(session), now + round(lease * 1000)
    for one, ends in database.sessions.items():
        if one == session or ends > expiry:
            database.sessions[one] = expiry
    return before - now if before is not None else 0


def orphaned_tasks(database: MemoryDatabase, session: int, limit: int, expired: bool) -> list[TaskRecord]:
    """See dragoman.ports.Store."""
    live = database.live_sessions(database.clock() if expired else 0)
    records = (database.tasks[ref].record for ref in database.running)
    return [record for record in records if record.session != session and record.session not in live][:limit]


def ready_tasks(database: MemoryDatabase, agents: Collection[str], limit: int, after: str) -> list[TaskRecord]:
    """See dragoman.ports.Store."""
    by_principal: dict[str, list[TaskRows]] = {}
    for ref in database.ready:
        rows = database.tasks[ref]
        if rows.record.agent in agents:
            by_principal.setdefault(rows.record.principal, []).append(rows)
    if not by_principal:
        return []
    order = sorted(by_principal, key=lambda principal: (principal <= after, principal))
    queues: list[Iterator[TaskRows]] = [
        iter(sorted(by_principal[principal], key=lambda rows: (rows.created, rows.record.ref.key)))
        for principal in order
    ]
    found: list[TaskRecord] = []
    while queues and len(found) < limit:
        remaining = []
        for queue in queues[: limit - len(found)]:
            if (first := next(queue, None)) is not None:
                found.append(first.record)
                remaining.append(queue)
        queues = remaining
    return found


def sleeping_tasks(database: MemoryDatabase, until: int, limit: int) -> list[TaskRecord]:
    """See dragoman.ports.Store."""
    records = [database.tasks[ref].record for ref in database.asleep]
    due = [record for record in records if record.wake_at <= until]
    return sorted(due, key=lambda record: record.wake_at)[:limit]


def steps(database: MemoryDatabase, ref: TaskRef, results: bool, only: Sequence[StepRecord]) -> list[StepRecord]:
    """See dragoman.ports.Store."""
    rows = database.tasks.get(ref)
    if rows is None:
        return []
    wanted = {(step.turn, step.name, step.number) for step in only} or rows.steps
    order = sorted(
        (step for key, step in rows.steps.items() if key in wanted),
        key=lambda step: (step.turn == CURRENT_TURN, step.turn, step.started, step.position, step.number),
    )
    if only:
        return order
    shown = []
    for step in order:
        result = step.result if results and step.turn == CURRENT_TURN else b""
        shown.append(replace(step, result=result, details=step.details if results else b""))
    return shown


# Lists ----------------------------------------------------------------------------------------------------------------


def locate(database: MemoryDatabase, task_id: str) -> list[TaskRecord]:
    """See dragoman.ports.Store."""
    key = task_key_of(task_id)
    records = (rows.record for rows in database.tasks.values())
    return [record for record in records if record.id == task_id and (record.alias or record.ref.key == key)]


def page(database: MemoryDatabase, query: TaskQuery, budget: ResponseBudget) -> TaskPage:
    """See dragoman.ports.Store."""
    matching = [
        rows
        for rows in database.tasks.values()
        if rows.record.visible
        and rows.record.agent == query.agent
        and query.context in ("", rows.record.context)
        and query.state in (0, rows.record.state)
        and rows.record.updated >= query.updated_since
        and rows.record.ref.owner == query.owner
    ]
    matching.sort(key=lambda rows: sort_key(rows.record), reverse=True)
    total = len(matching)
    if query.after is not None:
        matching = [rows for rows in matching if sort_key(rows.record) < query.after]
    shown = matching[: query.page_size]
    more = bool(shown) and len(matching) > len(shown)
    return TaskPage(
        [rows.task(query.history, artifacts=query.artifacts, budget=budget) for rows in shown],
        total,
        sort_key(shown[-1].record) if more else None,
        [rows.record.summary for rows in shown],
    )


def agents_of(database: MemoryDatabase, principal: str) -> list[AgentTasks]:
    """See dragoman.ports.Store."""
    changes: dict[tuple[str, str], list[int]] = {}
    for ref, rows in database.tasks.items():
        if rows.record.visible and ref.owner.principal == principal:
            changes.setdefault((ref.owner.scope, rows.record.agent), []).append(rows.record.updated)
    found = [AgentTasks(*place, len(times), max(times)) for place, times in changes.items()]
    return sorted(found, key=lambda one: (-one.changed, one.scope, one.agent))


def _matches(rows: TaskRows, query: TaskSearch) -> bool:
    record, owner = rows.record, rows.record.ref.owner
    if not record.visible or query.task_id not in ("", record.id):
        return False
    if (query.scopes and owner.scope not in query.scopes) or (query.agents and record.agent not in query.agents):
        return False
    if query.principal not in ("", record.principal or owner.principal) or query.context not in ("", record.context):
        return False
    if query.states and record.state not in query.states:
        return False
    if record.updated < query.changed_since or (query.changed_before and record.updated >= query.changed_before):
        return False
    if query.cause and (rows.failure is None or rows.failure.cause != query.cause):
        return False
    if query.text:
        text, digits = query.text.lower(), id_digits(query.text)
        if not (
            text in record.summary.lower()
            or text in record.status_text.lower()
            or (query.finds_failures and rows.failure is not None and text in rows.failure.text.lower())
            or (digits and digits in record.ref.key.hex())
        ):
            return False
    return all(any(entry in rows.metadata for entry in metadata_entries(*wanted)) for wanted in query.metadata)


def search(database: MemoryDatabase, query: TaskSearch, budget: ResponseBudget) -> FoundTasks:
    """See dragoman.ports.Store."""
    if query.groups_failures:
        return FoundTasks(groups=_failure_groups(database, query))
    owners = {owner: number for number, owner in enumerate(dict.fromkeys(ref.owner for ref in database.tasks), 1)}

    def position(rows: TaskRows) -> tuple[int, int, bytes]:
        record = rows.record
        return (
            0 if query.order == "created" else record.updated,
            0 if query.order == "created" else owners[record.ref.owner],
            record.ref.key,
        )

    matching = sorted((rows for rows in database.tasks.values() if _matches(rows, query)), key=position, reverse=True)
    total = len(matching) if query.after is None else 0
    if query.after is not None:
        matching = [rows for rows in matching if position(rows) < query.after]
    shown = matching[: query.page_size]
    return FoundTasks(
        [_found(rows, rows.task(0, artifacts=query.artifacts, budget=budget)) for rows in shown],
        position(shown[-1]) if len(matching) > len(shown) else None,
        min(total, query.max_total),
        query.after is None and total <= query.max_total,
    )


def _found(rows: TaskRows, task: bytes) -> FoundTask:
    failure = (rows.failure.cause, rows.failure.text, rows.failure.data) if rows.failure else ()
    return FoundTask(rows.record, rows.created, task, rows.total_usage, *failure)


def _failure_groups(database: MemoryDatabase, query: TaskSearch) -> list[FailureGroup]:
    causes: dict[str, list[TaskRows]] = {}
    for rows in sorted(database.tasks.values(), key=lambda rows: rows.record.updated):
        if rows.failure is not None and _matches(rows, query):
            causes.setdefault(rows.failure.cause, []).append(rows)
    return [
        FailureGroup(
            _found(group[-1], b""),
            group[0].record.updated,
            min(len(group), query.max_total),
            len(group) <= query.max_total,
        )
        for group in causes.values()
    ]


def count_states(database: MemoryDatabase, query: TaskSearch) -> list[StateCount]:
    """See dragoman.ports.Store."""
    counts: dict[int, int] = {}
    for rows in database.tasks.values():
        if _matches(rows, query.for_counts):
            counts[rows.record.state] = counts.get(rows.record.state, 0) + 1
    return state_counts(counts, ())


def open_tasks(database: MemoryDatabase, query: TaskSearch) -> list[OpenTasks]:
    """See dragoman.ports.Store."""
    return open_task_counts(
        OpenTasks(rows.record.agent, rows.record.state, 1, True, rows.record.updated)
        for rows in database.tasks.values()
        if rows.record.visible
        and rows.record.state in states.OPEN
        and (not query.scopes or rows.record.ref.owner.scope in query.scopes)
        and (not query.agents or rows.record.agent in query.agents)
    )


def delegated_tasks(database: MemoryDatabase, ref: TaskRef, limit: int) -> list[TaskRecord]:
    """See dragoman.ports.Store."""
    found = [
        rows.record for other, rows in database.tasks.items() if other.owner == ref.owner and rows.parent == ref.key
    ]
    return sorted(found, key=lambda record: record.ref.key)[:limit]


def stats(database: MemoryDatabase) -> StoreStats:
    """See dragoman.ports.Store."""
    now = database.clock()
    tasks: dict[tuple[str, int], int] = {}
    waiting: dict[str, list[int]] = {}
    for rows in database.tasks.values():
        record = rows.record
        if record.visible:
            tasks[record.agent, record.state] = tasks.get((record.agent, record.state), 0) + 1
        if record.ready:
            waiting.setdefault(record.agent, []).append(record.updated)
    pushes = [push for ref in database.live_pushes for push in database.tasks[ref].pushes.values()]
    due = [push.due_at for push in pushes if 0 < push.due_at <= now]
    return StoreStats(
        counted_at=now,
        tasks=tasks,
        backlog={agent: AgentBacklog(len(times), min(times)) for agent, times in waiting.items()},
        pending_pushes=len(due),
        pending_pushes_since=min(due, default=0),
        failing_since=min((push.failing_since for push in pushes if push.due_at and push.failing_since), default=0),
        dead_pushes=sum(push.state is PushState.GIVEN_UP for push in pushes),
    )


# Compaction and usage -------------------------------------------------------------------------------------------------


def compact(database: MemoryDatabase) -> tuple[int, int]:
    """Truncates old logs and deletes old usage. Returns the dropped events, and the rows of usage."""
    dropped = 0
    before = database.clock() - round(StorageOptions().truncate_log_after * 1000)
    for rows in database.tasks.values():
        record = rows.record
        if (
            record.last_sequence > MIN_KEPT_EVENTS
            and record.state in states.TERMINAL
            and record.updated <= before
            and not record.has_live_push
        ):
            first_kept = record.last_sequence - MIN_KEPT_EVENTS + 1
            while rows.log[0][-1].sequence < first_kept:
                dropped += len(rows.log[0])
                del rows.log[0]
    return dropped, usage.compact(database)


def daily_usage(database: MemoryDatabase, query: DailyUsageQuery) -> list[DailyUsageRow]:
    """See dragoman.ports.Store."""
    return usage.daily(database, query)


def hourly_usage(database: MemoryDatabase, query: HourlyUsageQuery) -> HourlyUsage:
    """See dragoman.ports.Store."""
    return usage.hourly(database, query)
