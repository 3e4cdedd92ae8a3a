"""Why is it stuck, who holds it, what happens next: one task as an operator asks about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dragoman.core import states, trace
from dragoman.core.card import AgentSpec
from dragoman.core.log import Head, TaskRef
from dragoman.core.push import Push
from dragoman.core.usage import NONE, Usage
from dragoman.ports import Store
from dragoman.runtime.dispatch import Dispatch
from dragoman.runtime.follow import Followers
from dragoman.runtime.outlook import Sight, next_of
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


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
        age: Callable[[str, int], int] = lambda agent, state: 0,
        now: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`carriers`: how many followers of a task are there to push it, and no readers. `age`: for how many
        milliseconds a task of an agent may be in a state, 0 for ever. `now`: milliseconds since the epoch."""
        self._age = age
        self._now = now
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
                self._one(head, sessions, await self._store.pushes.of(head.ref), await self._said(head)),
                usage=await self._store.usage(head.ref),
                trace=trace.id_of(trace.of(await self._store.envelope(head.ref, 1))),
            )
            for head in heads
        ]

    async def _said(self, head: Head) -> str:
        """What a task says of itself that ended or waits for its caller."""
        if head.running or head.ready or head.state == states.COMPLETED:
            return ""
        snapshot = await self._store.read(head.ref, history=0, artifacts=False)
        if snapshot is None:
            return ""
        return " ".join(part.text for part in pb.Task.FromString(snapshot.task).status.message.parts if part.text)

    def _one(self, head: Head, sessions: Mapping[int, int], pushes: Sequence[Push], said: str) -> Explanation:
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
            next=next_of(
                Sight(head, spec, allowed, expires, self._now(), self._age(head.agent, head.state), said, pushes),
                self._dispatch,
            ),
            pushes=pushes,
            worker=self._dispatch.places.runner(head.agent, head.id),
        )
