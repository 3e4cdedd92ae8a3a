"""Dragoman: a durable task server for the A2A (Agent2Agent) protocol.

from dragoman import agent, Turn

@agent(name="Echo", description="Says it back")
async def echo(turn: Turn) -> str:
    return turn.text
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman import types
from dragoman.agents.functions.declaration import agent
from dragoman.agents.functions.spec import retry
from dragoman.agents.functions.startup import on_startup
from dragoman.agents.functions.turn import Turn, TurnEnded
from dragoman.core.cards.agent_spec import Extension, Provider, Skill

if TYPE_CHECKING:
    from dragoman.wiring.embedding import RunningServer, open_app

__all__ = [
    "agent", "retry", "on_startup", "Turn", "TurnEnded", "Skill", "Provider", "Extension", "types",
    "open_app", "RunningServer", "__version__",
]  # fmt: skip

__version__: str
"""The version of the installed distribution; `0+source` without one."""


def __getattr__(name: str) -> Any:
    # Imported on first use: both are slow to import, and modules of agents rarely need them.
    match name:
        case "open_app" | "RunningServer":
            from dragoman.wiring import embedding

            globals()[name] = getattr(embedding, name)
        case "__version__":
            globals()[name] = _version()
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]


def _version() -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version("dragoman")
    except importlib.metadata.PackageNotFoundError:
        return "0+source"
