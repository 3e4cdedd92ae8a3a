"""What an agent says of itself: the arguments of `@agent`, from which every shape of card is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

DEFAULT_MODES: Final = ("text/plain", "application/json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One thing an agent can do (A2A 1.0 §4.4.5). Empty modes mean the agent's own."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Who stands behind an agent (A2A 1.0 §4.4.2)."""

    organization: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """One agent as the server knows it. `id` is its address, `name` is for people."""

    id: str
    name: str
    description: str
    version: str = "1.0.0"
    skills: tuple[Skill, ...] = ()
    input_modes: tuple[str, ...] = DEFAULT_MODES
    output_modes: tuple[str, ...] = DEFAULT_MODES
    provider: Provider | None = None
    icon_url: str = ""
    documentation_url: str = ""
    default: bool = False
    """The root agent: the one meant when a request names none."""
    direct: bool = False
    """May answer with a Message instead of a task."""
    cancelable: bool = True
    while_working: Literal["queue", "refuse"] = "queue"
    """What happens to a message for a task that is running."""
