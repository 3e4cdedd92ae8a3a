"""Paused agents: no turn of them begins, on any process of the store, until they are resumed.

They are one JSON text of the store. Every process has a copy, which `refresh` renews.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Final

from dragoman.core.errors import InvalidParams
from dragoman.ids import now_ms
from dragoman.ports import KeyValues

log = logging.getLogger("dragoman.runtime")

_STORED_NAME: Final = "agent pauses"

MAX_PAUSED_AGENTS: Final = 1000  # they are read every few seconds


@dataclass(frozen=True, slots=True)
class AgentPause:
    """Since when an agent is paused (milliseconds since the epoch), by which operator, and why."""

    since: int
    principal: str
    reason: str = ""


@dataclass(eq=False, repr=False)
class AgentPauses:
    """The paused agents. `clock`: milliseconds since the epoch."""

    key_values: KeyValues
    on_resumed: Callable[[Iterable[str]], None] = lambda agents: None
    """Called when this process learns that these agents may run again."""
    clock: Callable[[], int] = now_ms  # milliseconds since the epoch
    by_agent: dict[str, AgentPause] = field(default_factory=dict, init=False)
    """The paused agents, as this process knows them."""
    _text: str = field(default="", init=False)  # the value of the last read
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """So that nothing older than `_text` is adopted."""

    async def refresh(self) -> None:
        """Reads what other processes have paused and resumed."""
        async with self._lock:
            self._adopt(await self.key_values.get(_STORED_NAME))

    async def pause(self, agent: str, principal: str, reason: str) -> AgentPause:
        """Pauses an agent; one that is paused already stays as it is. Raises InvalidParams when too many are paused."""
        pause = AgentPause(self.clock(), principal, reason)

        def add(pauses: dict[str, AgentPause]) -> None:
            if pauses.setdefault(agent, pause) is pause and len(pauses) > MAX_PAUSED_AGENTS:
                raise InvalidParams.field("agent", f"{MAX_PAUSED_AGENTS} agents are paused; resume some of them first")

        return (await self._change(add))[agent]

    async def resume(self, agent: str) -> None:
        """Lets an agent run again. No error for one that is not paused."""
        await self._change(lambda pauses: pauses.pop(agent, None))

    async def _change(self, change: Callable[[dict[str, AgentPause]], object]) -> dict[str, AgentPause]:
        async with self._lock:
            while True:  # another process may change them at the same time
                stored = await self.key_values.get(_STORED_NAME)
                pauses = _decode(stored)
                change(pauses)
                text = json.dumps({agent: asdict(pause) for agent, pause in pauses.items()})
                if text == stored or await self.key_values.compare_and_set(_STORED_NAME, text, expected=stored):
                    self._adopt(text)
                    return pauses

    def _adopt(self, text: str) -> None:
        if text == self._text:
            return
        before, self._text, self.by_agent = self.by_agent, text, _decode(text)
        for agent in sorted(self.by_agent.keys() - before.keys()):
            pause = self.by_agent[agent]
            log.warning("agent %s is paused by %s", agent, pause.principal, extra={"reason": pause.reason})
        if resumed := sorted(before.keys() - self.by_agent.keys()):
            log.info("resumed agents: %s", ", ".join(resumed))
            self.on_resumed(resumed)


def _decode(text: str) -> dict[str, AgentPause]:
    return {agent: AgentPause(**pause) for agent, pause in json.loads(text).items()} if text else {}
