"""Dragoman: a durable task server for the A2A (Agent2Agent) protocol.

from dragoman import agent, Turn

@agent(name="Echo", description="Says it back")
async def echo(turn: Turn) -> str:
    return turn.text
"""

from __future__ import annotations

from dragoman import types
from dragoman.agents.functions.declaration import agent
from dragoman.agents.functions.spec import retry
from dragoman.agents.functions.turn import Turn, TurnEnded
from dragoman.core.cards.agent_spec import Extension, Provider, Skill

__all__ = ["agent", "retry", "Turn", "TurnEnded", "Skill", "Provider", "Extension", "types", "__version__"]

__version__: str


def __getattr__(name: str) -> str:
    if name == "__version__":
        from dragoman.release import version  # slow to import, and seldom asked

        return version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
