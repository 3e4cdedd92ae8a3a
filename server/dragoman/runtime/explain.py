"""Why is it stuck, who holds it, what happens next: one task as an operator asks about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from dragoman.core import states, trace
from dragoman.core.card import AgentSpec
from dragoman.core.log import Head, TaskRef
from dragoman.core.push import Push
from dragoman.core.usage import NONE, Usage
from dragoman.ports import Store
from dragoman.runtime.dispatch import Dispatch
from dragoman.runtime.follow import Followers


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known of a task beside the task. Times are milliseconds since the epoch, 0 for none."""

    head: Head
    attempts_allowed: int
    session_expires: int
    here: bool
    stopping: bool
    subscribers: int
    free_slots: int
    next: str
    pushes: Sequence[Push] = ()
    """Who is told of it by push."""
    worker: str = ""
    """The process elsewhere that runs its turn, for people."""
    usage: Usage = NONE
    """What it has used, as its agent reported."""
    trace: str = ""
    """The id of its trace."""


class Explainer:
    """Explains tasks of one store from where one process sees them."""

    def __init__(
        self,
        store: Store,
        dispatch: Dispatch,
        followers: Followers,
        agents: Mapping[str, AgentSpec],
        carriers: Callable[[TaskRef], int] | None = None,
    ) -> None:
        """`carriers`: how many followers of a task are there to push it, and no readers."""
        self._carriers = carriers
        self._store = store
        self._dispatch = dispatch
        self._followers = followers
        self._agents = agents

    def left_behind(self, agent: str) -> int:
        """Threads of an agent that go on here although their turn is over."""
        return self._dispatch.left_behind(agent)

    async def explain(self, task_id: str) -> list[Explanation]:
        """Every task that clients call so; none when there is none."""
        heads = await self._store.locate(task_id)
        sessions = await self._store.sessions() if heads else {}
        return [
            replace(
                self._one(head, sessions, await self._store.pushes.of(head.ref)),
                usage=await self._store.usage(head.ref),
                trace=trace.id_of(trace.of(await self._store.envelope(head.ref, 1))),
            )
            for head in heads
        ]

    def _one(self, head: Head, sessions: Mapping[int, int], pushes: Sequence[Push]) -> Explanation:
        run = self._dispatch.run_of(head.ref)
        spec = self._agents.get(head.agent)
        allowed = 1 + (spec.retries if spec else 0)
        expires = sessions.get(head.session, 0)
        return Explanation(
            head,
            attempts_allowed=allowed,
            session_expires=expires,
            here=head.running and head.session == self._dispatch.session,
            stopping=run is not None and run.cancelled,
            subscribers=self._followers.count(head.ref) - (self._carriers(head.ref) if self._carriers else 0),
            free_slots=max(self._dispatch.free, 0),
            next=_next(head, spec, allowed, expires, self._dispatch, run is not None and run.cancelled),
            pushes=pushes,
            worker=self._dispatch.places.runner(head.agent, head.id),
        )


def _next(head: Head, spec: AgentSpec | None, allowed: int, expires: int, dispatch: Dispatch, stopping: bool) -> str:
    if states.is_terminal(head.state):
        return "Nothing: it has ended."
    if head.running and stopping:
        return "Its agent was asked to stop; it is fenced off when it has not within 10 s of that."
    if head.running:
        crash = f"begins attempt {head.attempt + 1} of {allowed}" if head.attempt < allowed else "ends it as FAILED"
        if not expires:
            return f"Its process is gone: within some seconds another one {crash}."
        limit = f" Its turn may take {spec.time_limit:g} s." if spec and spec.time_limit else ""
        return f"Its agent works on it. Should the process die, another one {crash} after {_clock(expires)}.{limit}"
    if head.ready and spec is None:
        return f'It waits for a worker, and no agent "{head.agent}" is served here.'
    if head.ready and not dispatch.runs and head.agent not in dispatch.places:
        return (
            "It waits for a process that runs its agent (--role worker, or all), and is taken as soon as one has room."
        )
    if head.ready and dispatch.free <= 0:
        return "It waits for a free slot here; all are taken."
    if head.ready:
        return dispatch.places.next_for(head.agent)
    return "It waits for a message of its caller."


def _clock(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%H:%M:%S} UTC"
