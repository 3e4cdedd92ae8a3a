"""Long outages of PostgreSQL and NATS in a chaos run: each frozen, or killed and restarted later.

CHAOS_OUTAGES selects them by name, separated by commas, such as `postgres-freeze-30,nats-kill-75`; `all` selects every
one of ALL, which fit in a run of five minutes. Outages of one part follow each other; the parts fail independently.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

PARTS: Final = ("postgres", "nats")
KINDS: Final = ("freeze", "kill")
SHORTEST_GAP: Final = 4.0
"""Seconds between two outages of a part, at least."""
ENOUGH: Final = 270.0
"""Seconds of faults in a run that has all outages unless CHAOS_OUTAGES says otherwise."""


@dataclass(frozen=True, slots=True)
class Outage:
    """`part` is frozen (SIGSTOP) or killed, and continued or restarted after `seconds`."""

    part: str
    how: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.part}-{self.how}-{self.seconds:g}"


ALL: Final = tuple(Outage(part, how, seconds) for seconds in (30.0, 75.0) for part in PARTS for how in KINDS)


def parse_outages(names: str, seconds: float) -> Sequence[Outage]:
    """The selected outages. Without names: all of them in a run with ENOUGH seconds of faults, otherwise none.

    Raises ValueError for an unknown name.
    """
    if names == "all" or (not names and seconds >= ENOUGH):
        return ALL
    return [_parse(name.strip()) for name in names.split(",") if name.strip() not in ("", "none")]


def _parse(name: str) -> Outage:
    part, how, seconds = (*name.split("-"), "", "")[:3]
    if part not in PARTS or how not in KINDS or not seconds.replace(".", "", 1).isdecimal():
        raise ValueError(f'CHAOS_OUTAGES: "{name}" is not an outage; use all, none, or names like {ALL[0]},{ALL[-1]}')
    return Outage(part, how, float(seconds))


def plan_outages(
    outages: Iterable[Outage], part: str, seconds: float, rng: random.Random
) -> Sequence[tuple[float, Outage]]:
    """The outages of one part with their starts, in seconds from now; in random order and with random gaps.

    Those that do not fit into `seconds` are left out.
    """
    left = [outage for outage in outages if outage.part == part]
    rng.shuffle(left)
    while left and sum(outage.seconds + SHORTEST_GAP for outage in left) > seconds:
        left.pop()
    spare = seconds - sum(outage.seconds + SHORTEST_GAP for outage in left)
    cuts = sorted(rng.uniform(0, spare) for _ in left)
    planned, taken = [], 0.0
    for cut, outage in zip(cuts, left, strict=True):
        planned.append((cut + taken + SHORTEST_GAP, outage))
        taken += outage.seconds + SHORTEST_GAP
    return planned
