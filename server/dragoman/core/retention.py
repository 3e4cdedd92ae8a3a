"""How long tasks are kept: by agent and by the state they are in.

For a state in which a task has ended, the age at which it is erased. For one in which it waits for its caller, the age
at which it ends as FAILED (EXPIRED), and is then kept like any other that failed. Zero, and what nobody says, is for
ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dragoman.core import states
from dragoman.core.ages import parse_age

NAMES: Final[Mapping[str, int]] = {
    "completed": states.COMPLETED,
    "failed": states.FAILED,
    "canceled": states.CANCELED,
    "rejected": states.REJECTED,
    "input-required": states.INPUT_REQUIRED,
    "auth-required": states.AUTH_REQUIRED,
}
"""The states in which time counts, as people write them."""

Ages = Mapping[int, int]
"""Milliseconds by state."""


def parse_ages(said: str | int | Mapping[str, str | int]) -> dict[int, int]:
    """Ages as people write them: `{"completed": "30d", "input-required": "7d"}`, or one for all ended states.

    Raises ValueError, naming the rule.
    """
    if not isinstance(said, Mapping):
        return dict.fromkeys(states.TERMINAL, parse_age(str(said)))
    found = {}
    for name, age in said.items():
        state = NAMES.get(str(name).lower().replace("_", "-"))
        if state is None:
            raise ValueError(f'"{name}" is no state in which time counts; there are {", ".join(NAMES)}')
        if type(age) not in (str, int):  # TOML and authors may say anything, and True is an int
            raise ValueError(f"{name}: {age!r} is no age, such as 30d")
        found[state] = parse_age(str(age))
    return found


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for all agents, and what is said of some: for each state the most particular word counts."""

    general: Ages = field(default_factory=dict)
    declared: Mapping[str, Ages] = field(default_factory=dict)
    """What agents say of themselves, by id."""
    particular: Mapping[str, Ages] = field(default_factory=dict)
    """What the operator says of them."""

    def age(self, agent: str, state: int) -> int:
        """Milliseconds after which something happens to a task of this agent in this state; 0 for never."""
        for said in (self.particular.get(agent, {}), self.declared.get(agent, {}), self.general):
            if state in said:
                return said[state]
        return 0
