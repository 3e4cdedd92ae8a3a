"""Room at agents that run elsewhere: how many of their turns may begin here, and whose tasks wait for that.

Agents of this process take as many turns as there are slots. What an agent elsewhere takes is its own to say, and
changes while the server runs; a task is claimed only when there is room for it, so that one that waits is still
SUBMITTED, and anybody with room may have it.
"""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.core.errors import Unavailable
from dragoman.ports import Agent, Elsewhere


class Places:
    """The agents elsewhere that are served here. What is asked of other agents is answered as if there were room."""

    def __init__(self, agents: Mapping[str, Agent], patience: float) -> None:
        """`patience`: seconds for which tasks wait for an agent that is not there."""
        self._patience = patience
        self._agents = {name: agent for name, agent in agents.items() if isinstance(agent, Elsewhere)}
        self._taken: dict[str, int] = {}
        self._short = set(self._agents)
        self._looking: set[str] = set()
        self._crowded = set(self._agents)
        """Those of whose tasks more wait than there is room for, as far as is known: nobody may pass them."""

    def __contains__(self, agent: str) -> bool:
        return agent in self._agents

    def add(self, agent: Elsewhere) -> None:
        """Serves an agent from now on; tasks of it may wait in the store already."""
        self._agents[agent.spec.id] = agent
        self._short.add(agent.spec.id)
        self._crowded.add(agent.spec.id)

    def remove(self, name: str) -> None:
        """Serves an agent no more."""
        self._agents.pop(name, None)
        self._short.discard(name)
        self._crowded.discard(name)

    def check(self, agent: str) -> None:
        """Raises Unavailable for an agent that has been away for so long that nobody should wait for it."""
        if agent in self._agents and self.is_given_up(agent):
            away = self._agents[agent].absence
            if not self._agents[agent].dials_in:
                raise Unavailable(f'agent "{agent}" has been away for {away:.0f} s; try again later')
            raise Unavailable(f'no worker of agent "{agent}" has been connected for {away:.0f} s; try again later')

    def is_given_up(self, agent: str) -> bool:
        """Whether it has been away for longer than tasks wait for it."""
        return self._agents[agent].absence > self._patience

    @property
    def given_up(self) -> list[str]:
        """Every such agent."""
        return [name for name in self._agents if self.is_given_up(name)]

    def dials_in(self, agent: str) -> bool:
        """Whether it is workers that have an agent elsewhere."""
        return agent not in self._agents or self._agents[agent].dials_in

    def absence(self, agent: str) -> float | None:
        """Seconds since an agent elsewhere went away, 0 while it is there; None for agents of this process."""
        found = self._agents.get(agent)
        return found.absence if found else None

    def room(self, agent: str) -> int:
        """Turns of an agent elsewhere that may begin now."""
        found = self._agents.get(agent)
        return max(found.capacity - self._taken.get(agent, 0), 0) if found else 0

    def open(self, agent: str) -> bool:
        """Whether a new message may begin a turn without passing others that wait."""
        return agent not in self._agents or (agent not in self._crowded and self.room(agent) > 0)

    @property
    def here(self) -> list[str]:
        """The agents elsewhere that can have turns by way of this process, now or once others have ended."""
        return [name for name, agent in self._agents.items() if agent.capacity > 0]

    def take(self, agent: str) -> bool:
        """Takes a place, until `give`. False when there is none."""
        if agent not in self._agents:
            return True
        if self.room(agent) <= 0:
            return False
        self.hold(agent)
        return True

    def hold(self, agent: str) -> None:
        """Takes a place for a run, which has been claimed already."""
        if agent in self._agents:
            self._taken[agent] = self._taken.get(agent, 0) + 1

    def give(self, agent: str) -> None:
        """Gives a place back."""
        if (taken := self._taken.get(agent)) is None:
            return
        if taken > 1:
            self._taken[agent] = taken - 1
        else:
            del self._taken[agent]

    def runner(self, agent: str, task_id: str) -> str:
        """Which process elsewhere runs a turn of a task; empty when none does."""
        return self._agents[agent].runner_of(task_id) if agent in self._agents else ""

    def outlook(self, agent: str, task_id: str) -> str:
        """What is to be expected of that process, in a few sentences; empty when there is nothing to say."""
        return self._agents[agent].outlook_of(task_id) if agent in self._agents else ""

    def next_for(self, agent: str) -> str:
        """What happens next to a task of it that waits for nothing else, in words."""
        if agent not in self._agents or self.room(agent) > 0:
            return "It waits for a worker, and is taken at once."
        found = self._agents[agent]
        if not (away := found.absence):
            if not found.dials_in:
                return f'It waits for room at agent "{agent}", which has as many turns as it may be given at a time.'
            return f'It waits for room at a worker of agent "{agent}"; all that are connected are busy, or drain.'
        left = max(self._patience - away, 0)
        if found.trouble:
            return (
                f'It waits for agent "{agent}", which has been away for {away:.0f} s ({found.trouble}); '
                f"it is tried again every few seconds, and in {left:.0f} s more (--worker-wait) it ends as FAILED."
            )
        return (
            f'It waits for a worker of agent "{agent}"; none has been connected for {away:.0f} s, and in {left:.0f} s '
            "more (--worker-wait) it ends as FAILED. Start one: dragoman worker."
        )

    # Who waits --------------------------------------------------------------------------------------------------

    def wait(self, agent: str) -> None:
        """Tasks of it may wait in the store."""
        self._short.add(agent)
        if self.room(agent) <= 0:
            self._crowded.add(agent)

    def found(self, agent: str, *, enough: bool) -> None:
        """Somebody has looked for tasks of it, and there is room `enough` for those that wait, or there is not."""
        if enough:
            self._crowded.discard(agent)
        else:
            self._crowded.add(agent)

    def look_again(self) -> None:
        """Tasks of any of them may wait in the store, though nobody said so."""
        self._short.update(self._agents)

    def hungry(self) -> list[str]:
        """The agents with room whose tasks may wait, and that nobody looks after yet; they are looked after from now
        on, until `looked`."""
        if not self._short:
            return []
        found = [name for name in self._short if name not in self._looking and self.room(name) > 0]
        self._looking.update(found)
        return found

    def next(self, agent: str) -> int:
        """How many waiting tasks of it to take; 0 when none wait, as far as is known, or there is no room. Nothing is
        known of what waits after that, unless `wait` says so."""
        if agent not in self._short or not (room := self.room(agent)):
            return 0
        self._short.discard(agent)
        return room

    def looked(self, agent: str) -> None:
        """Nobody looks for tasks of it any more."""
        self._looking.discard(agent)
