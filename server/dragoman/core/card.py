"""What an agent says of itself: the arguments of `@agent`, from which every shape of card is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

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
class Extension:
    """An extension an agent supports (A2A 1.0 §4.6). `params` is JSON."""

    uri: str
    description: str = ""
    required: bool = False
    """Calls that do not activate it are refused."""
    params: Mapping[str, Any] = field(default_factory=dict)


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
    judges_modes: bool = False
    """It is asked whatever a message holds, and refuses itself what it does not take."""
    provider: Provider | None = None
    icon_url: str = ""
    documentation_url: str = ""
    extensions: tuple[Extension, ...] = ()
    security_schemes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How callers show who they are: OpenAPI security schemes by name (0.3 §5.5.3)."""
    security: tuple[Mapping[str, Sequence[str]], ...] = ()
    """Which of them are needed: any one of these, each the schemes it takes and their scopes."""
    state_transition_history: bool = False
    """For cards of 0.3 and before: the history shows what became of a task."""
    extended_skills: tuple[Skill, ...] = ()
    """Skills that only callers who have shown who they are get to see (1.0 §3.1.11)."""
    default: bool = False
    """The root agent: the one meant when a request names none."""
    streaming: bool = True
    """Its streams and subscriptions are offered; otherwise the card says that they are not, and they are refused."""
    direct: bool = False
    """May answer with a Message instead of a task."""
    cancelable: bool = True
    retries: int = 0
    """How often a turn is begun again after the process that ran it died; 0 ends the task as FAILED instead."""
    idle_limit: float = 0.0
    """Seconds without an event after which a turn is ended; 0 for none."""
    time_limit: float = 0.0
    """Seconds after which a turn is ended in any case; 0 for none."""
    while_working: Literal["queue", "refuse"] = "queue"
    """What happens to a message for a task that is running."""
    retention: Mapping[int, int] = field(default_factory=dict)
    """Milliseconds that its tasks are kept, by state, where it says so itself (core.retention)."""
