"""Explains one task to an operator: its holder, why it waits, what happens next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from dragoman.core import trace
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.limits.quotas import Usage
from dragoman.core.push.delivery import PushRecord, PushState
from dragoman.core.task import states
from dragoman.core.task.cursors import FoundTask, TaskSearch
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.ports import Store
from dragoman.runtime.feeds import TaskFeeds
from dragoman.runtime.scheduler import Scheduler
from dragoman.runtime.sessions import LEASE_SECONDS
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_DELEGATED: Final = 100  # delegated tasks in an explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A process's knowledge of a task besides the Task. Times are milliseconds since the epoch, 0 for none."""

    record: TaskRecord
    spec: AgentSpec | None  # the spec of its agent; None when no such agent is served here
    attempts_allowed: int
    session_expires: int  # when the session that holds it expires
    here: bool
    stopping: bool
    subscribers: int
    free_slots: int
    now: int
    retention_ms: int  # milliseconds that it may stay in its state; 0: for ever
    status_text: str  # its status text: why it failed, or what it asks
    pushes: Sequence[PushRecord]  # its push configurations
    worker: str  # the remote process that runs its turn, for people
    usage: Usage  # its usage, as reported by its agent
    trace: str  # its trace id
    delegated: Sequence[TaskRecord]  # the first tasks that its agent delegated
    failure: FoundTask | None  # why it failed: `failure` and `cause`; None in other states
    next: str = ""  # the next events of the task, in a few sentences


async def read_failure(store: Store, record: TaskRecord) -> FoundTask | None:
    """The task with its failure; None in other states than FAILED."""
    query = TaskSearch(task_id=record.id, scopes=frozenset((record.ref.owner.scope,)))
    found = (await store.search(query)).tasks if record.state == states.FAILED else []
    return next((one for one in found if one.record.ref == record.ref), None)


@dataclass(eq=False, repr=False)
class Explainer:
    """Explains tasks of one store, as one process sees them."""

    store: Store
    scheduler: Scheduler
    feeds: TaskFeeds
    agents: Mapping[str, AgentSpec]
    delivery_count: Callable[[TaskRef], int]  # subscribers of a task that are push deliveries
    retention_age: Callable[[str, int], int]  # milliseconds that a task of an agent may stay in a state, 0 for ever

    async def explain(self, task_id: str) -> list[Explanation]:
        """Explains every task with this id, which several clients may have chosen; empty when there is none."""
        records = await self.store.locate(task_id)
        sessions = await self.store.sessions() if records else {}
        found = [await self._explain_one(record, sessions.get(record.session, 0)) for record in records]
        return [replace(one, next=describe_next(one, self.scheduler)) for one in found]

    async def _status_text(self, record: TaskRecord) -> str:
        """The status text of a task that has ended or waits for its caller; why an attempt failed, before the next."""
        if record.wake_at and record.attempt > 1:
            for event in await self.store.events(record.ref, record.last_sequence - 1, 1):  # announces the next one
                update = pb.StreamResponse.FromString(event.data).status_update
                return str(update.metadata.fields["error"].string_value)
        if record.has_open_turn or record.state == states.COMPLETED:
            return ""
        snapshot = await self.store.read(record.ref, history=0, artifacts=False)
        if snapshot is None:
            return ""
        return " ".join(part.text for part in pb.Task.FromString(snapshot.task).status.message.parts if part.text)

    async def _explain_one(self, record: TaskRecord, session_expires: int) -> Explanation:
        store, scheduler, ref = self.store, self.scheduler, record.ref
        runner, remote = scheduler.runs.find(ref), scheduler.queues.remote(record.agent)
        spec = self.agents.get(record.agent)
        return Explanation(
            record=record, spec=spec,
            attempts_allowed=max(1 + spec.crash_retries, spec.max_attempts) if spec else 1,
            session_expires=session_expires,
            here=record.running and record.session == scheduler.session,
            stopping=runner is not None and runner.stop.requested,
            subscribers=(feed.subscribers if (feed := self.feeds.by_task.get(ref)) else 0) - self.delivery_count(ref),
            free_slots=max(scheduler.runs.free_slots, 0), now=store.now(),
            retention_ms=self.retention_age(record.agent, record.state), status_text=await self._status_text(record),
            pushes=await store.pushes.list_configs(ref), worker=remote.runner_of(record.id) if remote else "",
            usage=found.usage if (found := await store.messages(ref, record.message_count)) else Usage(),
            trace=trace.trace_id_of(trace.trace_of(await store.envelope(ref, 1))),
            delegated=await store.delegated_tasks(ref, MAX_DELEGATED), failure=await read_failure(store, record),
        )  # fmt: skip


MAX_STATUS_CHARS: Final = 200  # characters of a status text that are shown


def describe_next(facts: Explanation, scheduler: Scheduler) -> str:
    """The next events of a task, in a few sentences."""
    return " ".join(filter(None, (_describe_state(facts, scheduler), *map(_describe_push, facts.pushes))))


def _describe_state(facts: Explanation, scheduler: Scheduler) -> str:
    record = facts.record
    if states.is_terminal(record.state):
        return f"Nothing: the task has ended{_quoted(facts.status_text)}"
    if record.running:
        return _describe_running(facts, scheduler)
    if record.ready:
        return _describe_waiting(facts, scheduler)
    if record.wake_at:
        return _describe_sleeping(facts)
    until = (
        f"Without an answer it ends as FAILED at about {_format_date(record.updated + facts.retention_ms)}."
        if facts.retention_ms
        else f"Without an answer it waits indefinitely (--retention {states.word(record.state)}=AGE is not set)."
    )
    waits = f"It waits for a message from its caller{_quoted(facts.status_text)}"
    if facts.spec is None:
        return (
            f'{waits} No agent "{record.agent}" is served here, so its caller cannot find it. A server with this agent '
            f"accepts an answer or a cancel. {until}"
        )
    return f"{waits} {until} A cancel also ends it."


# Running tasks ------------------------------------------------------------------------------------------------------


def _describe_running(facts: Explanation, scheduler: Scheduler) -> str:
    record, runner = facts.record, scheduler.runs.find(facts.record.ref)
    retries = facts.spec.crash_retries if facts.spec else 0  # after a crash; a failure has its own limit
    tries = record.attempt <= retries
    retry = f"(attempt {record.attempt + 1} of {retries + 1})"
    crash = f"its turn is repeated {retry}" if tries else "it ends as FAILED"
    if runner is not None and runner.stop.requested:
        limit = scheduler.services.options.timings.mute_timeout
        return f"Its agent was asked to stop; the task ends when it has. After {limit:g} s its verbs fail."
    if not facts.session_expires:
        action = f"repeat its turn {retry}" if tries else "mark the task FAILED"
        return (
            f"The process running this task has died. A server will {action} within a few seconds; "
            "if none is running, at the next start."
        )
    if runner is None:
        return (
            "Its agent is working on it in another process; ask that server for details. If that process dies, "
            f"{crash} after {_format_time(facts.session_expires)}. A cancel sent to this server reaches it, too."
        )
    seconds, idle = runner.deadlines.elapsed, runner.deadlines.idle_seconds
    output = "it has produced no output yet" if idle is None else f"its last output was {_format_duration(idle)} ago"
    remote, since = scheduler.queues.remote(record.agent), _format_time(facts.now - round(seconds * 1000))
    within = f"within {LEASE_SECONDS:g} s if another server is running, else at the next start."
    when = f"when the worker's lease is over, within {LEASE_SECONDS:g} s" if tries else "at once"
    sentences = [
        f"Its agent has been working on it since {since} ({_format_duration(seconds)}); {output}.",
        remote.describe_run(record.id) if remote else "",
        *_describe_limits(facts, seconds, seconds if idle is None else idle),
        f"If its worker dies, {crash} {when}; if this server dies, {within}"
        if remote and remote.is_worker_backed
        else f"If this server dies, {crash} {within}",
    ]
    return " ".join(filter(None, sentences))


def _describe_limits(facts: Explanation, elapsed: float, idle: float) -> Sequence[str]:
    time_limit = facts.spec.time_limit if facts.spec else 0
    idle_limit = facts.spec.idle_limit if facts.spec else 0
    sentences = []
    if time_limit:
        at = _format_time(facts.now + round((time_limit - elapsed) * 1000))
        sentences.append(f"Its time limit is {time_limit:g} s: at {at} it is stopped and ends as FAILED.")
    if idle_limit:
        at = _format_time(facts.now + round((idle_limit - idle) * 1000))
        sentences.append(f"Its idle limit is {idle_limit:g} s: without output it is stopped at about {at}.")
    return sentences or ("It has no time_limit and no idle_limit, so it may run indefinitely; a cancel ends it.",)


# Sleeping tasks -----------------------------------------------------------------------------------------------------


def _describe_sleeping(facts: Explanation) -> str:
    at = _format_date(facts.record.wake_at)
    in_ = _format_duration((facts.record.wake_at - facts.now) / 1000)
    if facts.record.attempt > 1:
        why = f"Its last attempt failed{_quoted(facts.status_text)}"
        limit = f" of {facts.spec.max_attempts}" if facts.spec else ""
        return f"{why} Attempt {facts.record.attempt}{limit} begins at {at} (in {in_}). A cancel ends it."
    return f"Its agent sleeps until {at} (in {in_}) and then continues behind its finished steps. A cancel ends it."


# Waiting tasks ------------------------------------------------------------------------------------------------------


def _describe_waiting(facts: Explanation, scheduler: Scheduler) -> str:
    agent, queues = facts.record.agent, scheduler.queues
    remote = queues.remote(agent)
    if pause := scheduler.pauses.by_agent.get(agent):
        why = _quoted(pause.reason).removesuffix(".") + "."
        return (
            f"The agent is paused by {pause.principal} since {_format_date(pause.since)}{why} "
            f"It starts after: dragoman agents resume {agent}. A cancel ends it."
        )
    if facts.spec is None:
        return (
            f'It waits for a worker: no agent "{agent}" is served here. A server or worker with this agent will take '
            "it; a cancel ends it."
        )
    if not scheduler.services.options.runs_agents and remote is None:
        return "It waits for a process that runs its agent (--role worker, or all) and has a free slot."
    if scheduler.runs.free_slots <= 0:
        slots = scheduler.runs.slots
        running = Counter(runner.context.record.agent for runner in scheduler.runs)
        ((agent, count),) = running.most_common(1) or [("", 0)]
        whose = f'by agent "{agent}"' if count >= slots else f'{count} of them by agent "{agent}"'
        return (
            f"It waits for a free slot here: all {slots} are taken, {whose}. It starts when a slot is free and earlier "
            "tasks have started, round robin over principals. --slots adds slots; a cancel ends it."
        )
    if remote is None or queues.of(agent).room > 0:
        return "It waits for a worker and will be taken at once."
    if not (away := remote.seconds_absent):
        if not remote.is_worker_backed:
            return f'It waits for agent "{agent}", whose limit of turns is {remote.capacity} (1 after failed calls).'
        return f'It waits for capacity at a worker of agent "{agent}"; all connected workers are busy or draining.'
    remaining = max(queues.worker_wait - away, 0)
    if remote.problem:
        return (
            f'It waits for agent "{agent}", which has been unavailable for {away:.0f} s ({remote.problem}). '
            f"The server retries every few seconds; in {remaining:.0f} s (--worker-wait) the task ends as FAILED."
        )
    return (
        f'It waits for a worker of agent "{agent}". None has been connected for {away:.0f} s; in {remaining:.0f} s '
        "(--worker-wait) the task ends as FAILED. Start one with: dragoman worker."
    )


# Webhooks -----------------------------------------------------------------------------------------------------------


def _describe_push(push: PushRecord) -> str:
    """A sentence about a webhook that fails; empty for others."""
    name, undelivered = f"Its webhook {push.config.url}", push.lag + push.given_up_events
    events = f"{undelivered} event{'s' if undelivered > 1 else ''}"
    if undelivered and (push.state is PushState.GIVEN_UP or (push.first_given_up and not push.failing_since)):
        return (
            f"{name} did not get {events} ({push.reason}). Run dragoman push redeliver when the receiver accepts them."
        )
    if push.state is not PushState.LIVE or not push.failing_since or not push.lag:
        return ""
    attempt = (
        f"the next attempt is at {_format_time(push.due_at)}"
        if push.due_at and not push.session
        else "an attempt is under way"
    )
    since = _format_time(push.failing_since)
    return f"{name} has accepted nothing since {since} ({push.reason}): {events} pending, {attempt}."


# Formats ------------------------------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    line = line if len(line) <= MAX_STATUS_CHARS else line[:MAX_STATUS_CHARS] + "…"
    return f': "{line}"' if line else "."


def _format_duration(seconds: float) -> str:
    total = max(round(seconds), 0)
    if total < 120:
        return f"{total} s"
    return f"{total // 60} min" if total < 7200 else f"{total // 3600} h {total % 3600 // 60} min"


def _format_date(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _format_time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%H:%M:%S} UTC"
