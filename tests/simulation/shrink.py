"""Shrinks a failing plan: takes parts away as long as the history still fails in the same way.

    python -m tests.simulation.shrink SEED

What is left is printed with its history, and as JSON for tests/simulation/seeds.toml.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Final

from tests.simulation.history import Outcome, simulate
from tests.simulation.kinds import any_plan_of
from tests.simulation.plan import Plan, Profile, plan_to_json

_VARIABLE: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+(\.\d+)?")
_CALM: Final = Profile()


def kinds_of(problems: Iterable[str]) -> frozenset[str]:
    """The problems without their numbers and ids."""
    return frozenset(_VARIABLE.sub("#", problem)[:60] for problem in problems)


def smaller_plans(plan: Plan) -> Iterator[Plan]:
    """Plans with one thing less, the largest things first."""
    for number in range(len(plan.callers)):
        yield replace(plan, callers=plan.callers[:number] + plan.callers[number + 1 :])
    for number in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:number] + plan.faults[number + 1 :])
    for number, operations in enumerate(plan.callers):
        for at in range(len(operations)):
            fewer = operations[:at] + operations[at + 1 :]
            if fewer:
                yield replace(plan, callers=(*plan.callers[:number], fewer, *plan.callers[number + 1 :]))
    if plan.servers > 1:
        yield replace(plan, servers=plan.servers - 1)
    for one in fields(Profile):
        if getattr(plan.profile, one.name) != getattr(_CALM, one.name):
            yield replace(plan, profile=replace(plan.profile, **{one.name: getattr(_CALM, one.name)}))
    for number, fault in enumerate(plan.faults):
        if fault.seconds > 1.0:
            shorter = replace(fault, seconds=round(fault.seconds / 2, 3))
            yield replace(plan, faults=(*plan.faults[:number], shorter, *plan.faults[number + 1 :]))


def shrink(outcome: Outcome, tries: int = 400, play: Callable[[Plan], Outcome] = simulate) -> Outcome:
    """The smallest failing history that was found within so many tries. `play`: plays a plan."""
    kinds = kinds_of(outcome.problems)
    while True:
        for plan in smaller_plans(outcome.plan):
            tries -= 1
            smaller = play(plan)
            if kinds_of(smaller.problems) & kinds:
                outcome = smaller
                break
            if tries <= 0:
                return outcome
        else:
            return outcome


def main(arguments: Sequence[str]) -> int:
    """Prints the shrunk history of a seed. Returns 1 if it fails."""
    outcome = simulate(any_plan_of(" ".join(arguments)))
    if not outcome.problems:
        print(f"the history of seed {' '.join(arguments)} is good")
        return 0
    outcome = shrink(outcome)
    print(outcome.text)
    print(plan_to_json(outcome.plan))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
