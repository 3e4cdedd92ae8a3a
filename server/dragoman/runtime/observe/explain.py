"""Why is it stuck, who holds it, what happens next: one task as an operator asks about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from dragoman.core import trace
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.limits.quotas import NO_USAGE, Usage
from dragoman.core.push.delivery import PushRecord, PushState
from dragoman.core.task import states
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.ports import Store
from dragoman.runtime.feeds import TaskFeeds
from dragoman.runtime.scheduler import Scheduler
from dragoman.runtime.sessions import LEASE_SECONDS
from dragoman.runtime.turn.runner import FENCE_TIMEOUT
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known of a task beside the task. Times are milliseconds since the epoch, 0 for none."""

    record: TaskRecord
    attempts_allowed: int
    session_expires: int
    here: bool
    stopping: bool
    subscribers: int
    free_slots: int
    next: str
    pushes: Sequence[PushRecord] = ()
    """Who is told of it by push."""
    worker: str = ""
    """The process elsewhere that runs its turn, for people."""
    usage: Usage = NO_USAGE
    """What it has used, as its agent reported."""
    trace: str = ""
    """The id of its trace."""


class Explainer:
    """Explains tasks of one store from where one process sees them."""

    def __init__(
        self,
        store: Store,
        scheduler: Scheduler,
        feeds: TaskFeeds,
        agents: Mapping[str, AgentSpec],
        delivery_count: Callable[[TaskRef], int] | None = None,
        retention_age: Callable[[str, int], int] = lambda agent, state: 0,
        now: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`carriers`: how many followers of a task are there to push it, and no readers. `age`: for how many
        milliseconds a task of an agent may be in a state, 0 for ever. `now`: milliseconds since the epoch."""
        self._retention_age = retention_age
        self._now = now
        self._delivery_count = delivery_count
        self._store = store
        self._scheduler = scheduler
        self._feeds = feeds
        self._agents = agents

    def leaked_threads(self, agent: str) -> int:
        """Threads of an agent that go on here although their turn is over."""
        return self._scheduler.leaked_threads(agent)

    async def explain(self, task_id: str) -> list[Explanation]:
        """Every task that clients call so; none when there is none."""
        heads = await self._store.locate(task_id)
        sessions = await self._store.sessions() if heads else {}
        return [
            replace(
                self._explain_one(
                    head, sessions, await self._store.pushes.list_configs(head.ref), await self._status_text(head)
                ),
                usage=await self._store.usage(head.ref),
                trace=trace.trace_id_of(trace.trace_of(await self._store.envelope(head.ref, 1))),
            )
            for head in heads
        ]

    async def _status_text(self, record: TaskRecord) -> str:
        """What a task says of itself that ended or waits for its caller."""
        if record.running or record.ready or record.state == states.COMPLETED:
            return ""
        snapshot = await self._store.read(record.ref, history=0, artifacts=False)
        if snapshot is None:
            return ""
        return " ".join(part.text for part in pb.Task.FromString(snapshot.task).status.message.parts if part.text)

    def _explain_one(
        self, record: TaskRecord, sessions: Mapping[int, int], pushes: Sequence[PushRecord], status_text: str
    ) -> Explanation:
        run = self._scheduler.find_runner(record.ref)
        spec = self._agents.get(record.agent)
        allowed = 1 + (spec.retries if spec else 0)
        expires = sessions.get(record.session, 0)
        return Explanation(
            record,
            attempts_allowed=allowed,
            session_expires=expires,
            here=record.running and record.session == self._scheduler.session,
            stopping=run is not None and run.cancelled,
            subscribers=self._feeds.subscriber_count(record.ref)
            - (self._delivery_count(record.ref) if self._delivery_count else 0),
            free_slots=max(self._scheduler.free_slots, 0),
            next=describe_next(
                ExplainInput(
                    record,
                    spec,
                    allowed,
                    expires,
                    self._now(),
                    self._retention_age(record.agent, record.state),
                    status_text,
                    pushes,
                ),
                self._scheduler,
            ),
            pushes=pushes,
            worker=self._scheduler.remote_capacity.runner(record.agent, record.id),
        )


MAX_STATUS_CHARS: Final = 200
"""Characters of what a task says of itself that are shown."""


@dataclass(frozen=True, slots=True)
class ExplainInput:
    """What a process knows of a task. Times are milliseconds since the epoch, 0 for none."""

    record: TaskRecord
    spec: AgentSpec | None
    """Of its agent; None when no such agent is served here."""
    max_attempts: int
    """How often its turn may be begun."""
    session_expires: int
    """When the session ends that holds it."""
    now: int
    retention_ms: int = 0
    """For how many milliseconds it may be in its state; 0: for ever."""
    status_text: str = ""
    """The text of its status: why it failed, or what it asks."""
    pushes: Sequence[PushRecord] = ()


def describe_next(facts: ExplainInput, scheduler: Scheduler) -> str:
    """A few sentences."""
    return " ".join(filter(None, (_describe_state(facts, scheduler), *map(_describe_push, facts.pushes))))


def _describe_state(facts: ExplainInput, scheduler: Scheduler) -> str:
    head = facts.record
    if states.is_terminal(head.state):
        return f"Nothing: it has ended{_quoted(facts.status_text)}"
    if head.running:
        return _describe_running(facts, scheduler)
    if head.ready:
        return _describe_waiting(facts, scheduler)
    until = (
        f"unanswered it ends as FAILED about {_format_date(head.updated + facts.retention_ms)}."
        if facts.retention_ms
        else f"it waits for as long as that takes (nothing is said of --retain-{_option_state(head.state)})."
    )
    return f"It waits for a message of its caller{_quoted(facts.status_text)} A cancel ends it, too; {until}"


# Somebody has it ------------------------------------------------------------------------------------------------


def _describe_running(facts: ExplainInput, scheduler: Scheduler) -> str:
    head, run = facts.record, scheduler.find_runner(facts.record.ref)
    tries = head.attempt < facts.max_attempts
    crash = (
        f"its turn begins again (attempt {head.attempt + 1} of {facts.max_attempts})" if tries else "it ends as FAILED"
    )
    if run is not None and run.cancelled:
        return f"Its agent was asked to stop; it is fenced off when it has not within {FENCE_TIMEOUT:g} s of that."
    if not facts.session_expires:
        return f"Its process is gone: within some seconds, where a server is there, {crash}."
    if run is None:
        return (
            f"Its agent works on it in another process, and what it is at is known there: ask that server. Should that "
            f"process die, {crash} after {_format_time(facts.session_expires)}. A cancel reaches it from here, too."
        )
    seconds, silence = run.deadlines.elapsed, run.deadlines.idle_seconds
    heard = "has said nothing yet" if silence is None else f"last said something {_format_duration(silence)} ago"
    worker = head.agent in scheduler.remote_capacity and scheduler.remote_capacity.is_worker_backed(head.agent)
    dies = f"Should its worker go, {crash} at once; should this server" if worker else "Should this server go"
    words = [
        f"Its agent works on it, since {_format_time(facts.now - round(seconds * 1000))} ({_format_duration(seconds)}), and {heard}.",
        scheduler.remote_capacity.describe_run(head.agent, head.id),
        *_describe_limits(facts, seconds, seconds if silence is None else silence),
        f"{dies}, {'' if worker else f'{crash} '}within {LEASE_SECONDS:g} s where there is another, else at the next start.",
    ]
    return " ".join(filter(None, words))


def _describe_limits(facts: ExplainInput, elapsed: float, idle: float) -> Sequence[str]:
    time_limit = facts.spec.time_limit if facts.spec else 0
    idle_limit = facts.spec.idle_limit if facts.spec else 0
    found = []
    if time_limit:
        at = _format_time(facts.now + round((time_limit - elapsed) * 1000))
        found.append(f"It may take {time_limit:g} s: at {at} it is stopped, and FAILED.")
    if idle_limit:
        at = _format_time(facts.now + round((idle_limit - idle) * 1000))
        found.append(f"It may be silent for {idle_limit:g} s: unless it says something it is stopped about {at}.")
    return found or ("It has no time_limit and no idle_limit, so this may last; a cancel ends it.",)


# Nobody has it yet ----------------------------------------------------------------------------------------------


def _describe_waiting(facts: ExplainInput, scheduler: Scheduler) -> str:
    agent, places = facts.record.agent, scheduler.remote_capacity
    if facts.spec is None:
        return (
            f'It waits for a worker, and no agent "{agent}" is served here: it is taken once a server or a worker '
            "has it, and a cancel ends it."
        )
    if not scheduler.runs_agents and agent not in places:
        return (
            "It waits for a process that runs its agent (--role worker, or all), and is taken as soon as one has room."
        )
    if scheduler.free_slots <= 0:
        slots, (agent, most) = scheduler.slots, scheduler.busiest
        whose = f'by agent "{agent}"' if most >= slots else f'{most} of them by agent "{agent}"'
        return (
            f"It waits for a free slot here: all {slots} are taken, {whose}. It is taken once turns have ended and "
            "those before it have had theirs, principal by principal; --slots makes room for more, a cancel ends it."
        )
    return places.describe_next(agent)


# Who is told of it ----------------------------------------------------------------------------------------------


def _describe_push(push: PushRecord) -> str:
    """Of a webhook with which something is wrong."""
    left = f"{push.lag} event{'s' if push.lag > 1 else ''}"
    if push.state is PushState.DEAD and push.lag:
        return f"{_webhook_name(push)} was given up, {left} before the end ({push.reason}): redeliver when it is there again."
    if push.state is not PushState.LIVE or not push.failing_since or not push.lag:
        return ""
    again = (
        f"the next try is at {_format_time(push.due_at)}"
        if push.due_at and not push.session
        else "it is tried right now"
    )
    return f"{_webhook_name(push)} takes nothing since {_format_time(push.failing_since)} ({push.reason}): {left} wait, {again}."


def _webhook_name(push: PushRecord) -> str:
    return f"Its webhook {push.config.url}"


# Words ----------------------------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    line = line if len(line) <= MAX_STATUS_CHARS else line[:MAX_STATUS_CHARS] + "…"
    return f': "{line}"' if line else "."


def _format_duration(seconds: float) -> str:
    whole = max(round(seconds), 0)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _option_state(state: int) -> str:
    return states.name(state).removeprefix("TASK_STATE_").replace("_", "-").lower()


def _format_date(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _format_time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%H:%M:%S} UTC"
