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
"""The version of the installed distribution; `0+source` without one."""


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib.metadata  # slow to import and rarely needed

    try:
        version = importlib.metadata.version("dragoman")
    except importlib.metadata.PackageNotFoundError:
        version = "0+source"
    globals()[name] = version
    return version
