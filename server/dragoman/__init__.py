"""Dragoman: a durable task server for the A2A (Agent2Agent) protocol.

from dragoman import agent, Turn

@agent(name="Echo", description="Says it back")
async def echo(turn: Turn) -> str:
    return turn.text
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dragoman import types
    from dragoman.agents.functions.declaration import agent
    from dragoman.agents.functions.spec import Retry, retry
    from dragoman.agents.functions.startup import on_startup
    from dragoman.agents.functions.steps import StepCall, TurnSuspended
    from dragoman.agents.functions.turn import AgentError, Turn, TurnEnded
    from dragoman.core.cards.agent_spec import Extension, Provider, Skill
    from dragoman.core.task.steps import StepMismatch
    from dragoman.version import __version__
    from dragoman.wiring.embedding import RunningServer, open_app

__all__ = [
    "agent", "retry", "Retry", "StepCall", "StepMismatch", "TurnSuspended",
    "on_startup", "AgentError", "Turn", "TurnEnded", "Skill", "Provider", "Extension", "types",
    "open_app", "RunningServer", "__version__",
]  # fmt: skip

_MODULES: Final = {
    "agent": "agents.functions.declaration",
    "retry": "agents.functions.spec",
    "Retry": "agents.functions.spec",
    "StepCall": "agents.functions.steps",
    "StepMismatch": "core.task.steps",
    "TurnSuspended": "agents.functions.steps",
    "on_startup": "agents.functions.startup",
    "AgentError": "agents.functions.turn",
    "Turn": "agents.functions.turn",
    "TurnEnded": "agents.functions.turn",
    "Skill": "core.cards.agent_spec",
    "Provider": "core.cards.agent_spec",
    "Extension": "core.cards.agent_spec",
    "open_app": "wiring.embedding",
    "RunningServer": "wiring.embedding",
    "__version__": "version",
}
"""Where the public names are. Modules are imported on first use, because `dragoman --help` needs none of them."""


def __getattr__(name: str) -> Any:
    if name == "types":
        value: Any = import_module("dragoman.types")
    elif name in _MODULES:
        value = getattr(import_module(f"dragoman.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
