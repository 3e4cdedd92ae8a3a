"""The kinds of histories, by the first word of their seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.simulation.called import plan as called
from tests.simulation.operated import plan as operated
from tests.simulation.plan import Plan, plan_of

SHARES: Final[Mapping[str, int]] = {"": 1, called.SEED_PREFIX: 4, operated.SEED_PREFIX: 4}
"""For each prefix of seeds, how many histories without one are played for each history of it, if no seed is given."""


def prefix_of(seed: str) -> str:
    """The prefix of a seed."""
    return next((prefix for prefix in SHARES if prefix and seed.startswith(prefix)), "")


def any_plan_of(seed: object) -> Plan:
    """The plan of a seed of any kind."""
    match prefix_of(str(seed)):
        case called.SEED_PREFIX:
            return called.called_plan_of(seed)
        case operated.SEED_PREFIX:
            return operated.operated_plan_of(str(seed))
    return plan_of(seed)
