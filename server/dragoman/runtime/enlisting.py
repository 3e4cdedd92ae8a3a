"""Agents that come while the server runs, and the tasks of those that do not come back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from dragoman.core.card import AgentSpec
from dragoman.core.log import Append, Head, Ready, Refused, Runner, StatusChange
from dragoman.core.retention import Ages
from dragoman.ports import Agent, Elsewhere, Store
from dragoman.runtime.dispatch import Dispatch
from dragoman.runtime.log import Log
from dragoman.runtime.notices import AWAY, NO_WORKER, notice

log = logging.getLogger("dragoman.runtime")

LOOK: Final = 5.0
"""Seconds between two looks for tasks that wait for agents that stayed away."""

BATCH: Final = 256


class Enlisting:
    """The agents of this process, where they may become more. Implements `dragoman.ports.Enlist`."""

    def __init__(
        self,
        store: Store,
        appends: Log,
        dispatch: Dispatch,
        agents: dict[str, Agent],
        specs: dict[str, AgentSpec],
        declared: dict[str, Ages],
    ) -> None:
        """The three dicts are those that the rest of the runtime reads: what is said there is known everywhere."""
        self._store = store
        self._appends = appends
        self._dispatch = dispatch
        self._agents = agents
        self._specs = specs
        self._declared = declared
        self._shown: list[Callable[[AgentSpec], None]] = []
        self._hidden: list[Callable[[str], None]] = []
        self._reserved: frozenset[str] = frozenset()
        self._gone: dict[str, StatusChange] = {}
        """Agents that were discharged, and how tasks end that are left of them."""
        self._left: set[str] = set()
        """Those of them of whose tasks some may still wait: the store did not answer."""
        self._ending: set[asyncio.Task[None]] = set()
        dispatch.unserved = self._unserved

    def reserve(self, agents: Iterable[str]) -> None:
        """Ids of agents elsewhere that are this server's own all the same."""
        self._reserved = frozenset(agents)

    def show(self, shown: Callable[[AgentSpec], None], hidden: Callable[[str], None] | None = None) -> None:
        """Calls `shown` with the spec of each agent that comes, or says something new of itself, `hidden` with the id
        of each that goes."""
        self._shown.append(shown)
        if hidden is not None:
            self._hidden.append(hidden)

    def is_of_this_process(self, agent: str) -> bool:
        """Whether an id is that of an agent which no worker can have."""
        found = self._agents.get(agent)
        return agent in self._reserved or (found is not None and not (isinstance(found, Elsewhere) and found.dials_in))

    def knows(self, agent: str) -> bool:
        """Whether an agent of this id is served, by whomever."""
        return agent in self._agents

    async def enlist(self, agent: Elsewhere) -> None:
        """Serves an agent from now on, or what it says of itself now."""
        spec = agent.spec
        new = spec.id not in self._agents
        self._gone.pop(spec.id, None)
        self._left.discard(spec.id)
        self._agents[spec.id] = agent
        self._specs[spec.id] = spec
        self._declared[spec.id] = spec.retention
        for shown in self._shown:
            shown(spec)
        if new:
            self._dispatch.places.add(agent)
        self._dispatch.changed()

    async def discharge(self, agent: str) -> int:
        """Serves an agent no more, and ends what waits for it as FAILED. Gives how many tasks that were."""
        self._specs.pop(agent, None)  # first, so that nobody sends to it any more
        for hidden in self._hidden:
            hidden(agent)
        self._declared.pop(agent, None)
        why = self._gone[agent] = self._why(agent)
        self._left.add(agent)
        self._dispatch.places.remove(agent)  # before the look: of what is written after that `unserved` is told
        self._agents.pop(agent, None)
        self._dispatch.changed()
        return await self._end_waiting(agent, why)

    def changed(self) -> None:
        """Some agent elsewhere came or went, or has more room."""
        self._dispatch.changed()

    # Those that do not come back --------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Looks every LOOK seconds. Runs until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self.give_up()
            except Exception:
                log.exception("could not look for tasks that wait for no worker")

    async def give_up(self) -> int:
        """Ends as FAILED what waits for agents that stayed away for too long, or are gone. Gives how many tasks."""
        whys = {agent: self._why(agent) for agent in self._dispatch.places.given_up}
        whys.update((agent, self._gone[agent]) for agent in self._left)
        return sum([await self._end_waiting(agent, why) for agent, why in whys.items()])

    async def close(self) -> None:
        """Gives up what it is still ending: claims end with the session."""
        for ending in self._ending:
            ending.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _unserved(self, head: Head) -> None:
        """Ends a task that was on its way into the store, or had a turn, when its agent was discharged."""
        ending = asyncio.create_task(self._end_unserved(head), name=f"end {head.id}, whose agent is gone")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _end_unserved(self, head: Head) -> None:
        guard = Runner(head.session, head.token) if head.running else Ready()
        why = self._gone.get(head.agent) or notice(NO_WORKER)
        end = Append(task=head.ref, guard=guard, events=[why], release=True)
        with suppress(Refused):  # another process has such an agent, or it was canceled
            await self._appends.insist(end, lambda _: None, lambda: {"task": head.id})

    def _why(self, agent: str) -> StatusChange:
        return notice(NO_WORKER if self._dispatch.places.dials_in(agent) else AWAY)

    async def _end_waiting(self, agent: str, why: StatusChange) -> int:
        found = 0
        while heads := await self._store.waiting((agent,), BATCH):
            done = await asyncio.gather(*(self._end(head, why) for head in heads))
            found += sum(done)
            if not any(done):
                break
        if found:
            log.warning("tasks that nobody came to take, ended as FAILED: %d", found, extra={"agent": agent})
        self._left.discard(agent)
        return found

    async def _end(self, head: Head, why: StatusChange) -> bool:
        change = Append(task=head.ref, guard=Ready(), events=[why], release=True)
        try:
            await self._appends.append(change)
        except Refused:  # taken, or canceled
            return False
        return True
