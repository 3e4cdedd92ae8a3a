"""Plans of histories with operators. Their seeds begin with `operated`."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.plan import Plan, PlannedOperation, plan_of, words

OPERATED_OPERATIONS: Final = {
    "erase": 8,
    "rerun": 4,
    "paused": 3,
    "limited": 4,
    "rated": 4,
    "queued": 3,
    "requests": 2,
    "slow reader": 3,
    "long": 3,
    "webhook change": 5,
    "at once": 2,
    "stream": 2,
    "cancel": 1,
}
"""Kinds of operations, by weight."""

SEED_PREFIX: Final = "operated "


def operated_plan_of(seed: str) -> Plan:
    """The plan of a seed, with operators: the faults of a plan without, and other operations."""
    rng = Random(f"operated {seed}")
    plan = plan_of(seed)
    callers = []
    for number, operations in enumerate(plan.callers):
        # One caller pauses agents, so that another does not let them run again.
        kinds = {kind: weight for kind, weight in OPERATED_OPERATIONS.items() if number == 0 or kind != "paused"}
        callers.append(tuple(_operation(rng, kinds, operation) for operation in operations))
    return replace(plan, callers=tuple(callers), operated=True)


def _operation(rng: Random, kinds: dict[str, int], operation: PlannedOperation) -> PlannedOperation:
    (kind,) = rng.choices(list(kinds), list(kinds.values()))
    return replace(operation, kind=kind, words=words(rng))
