"""Outages in a chaos run that take seconds or minutes: which ones, and when.

CHAOS_OUTAGES selects them by name, separated by commas, such as `postgres-failover-3,nats-kill-75` or, for one server,
`disk-fill-5`; `all` selects every usual one, which fit in a run of five minutes. Outages of one part follow each other;
the parts fail independently.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SHORTEST_GAP: Final = 4.0
"""Seconds between two outages of a part, at least."""
SHORT: Final = 10.0
"""Seconds of an outage that a run of a minute and a half may have, at most."""
ENOUGH_FOR_SHORT: Final = 90.0
"""Seconds of faults in a run that has all short outages unless CHAOS_OUTAGES says otherwise."""
ENOUGH: Final = 270.0
"""The same for all outages."""


@dataclass(frozen=True, slots=True)
class Outage:
    """What happens to `part` for so many seconds."""

    part: str
    how: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.part}-{self.how}-{self.seconds:g}"


@dataclass(frozen=True, slots=True)
class Outages:
    """The outages of one target."""

    kinds: Mapping[str, Sequence[str]]
    """What can happen to each part."""
    usual: Sequence[Outage]
    """Those of a long run."""

    def parse(self, names: str, seconds: float) -> Sequence[Outage]:
        """The selected outages. Without names: those usual ones for which the seconds of faults are enough.

        Raises ValueError for an unknown name, with the names that exist.
        """
        if names == "all" or (not names and seconds >= ENOUGH):
            return self.usual
        if not names and seconds >= ENOUGH_FOR_SHORT:
            return [outage for outage in self.usual if outage.seconds <= SHORT]
        return [self._parse(name.strip()) for name in names.split(",") if name.strip() not in ("", "none")]

    def _parse(self, name: str) -> Outage:
        part, how, seconds = (*name.split("-"), "", "")[:3]
        if how not in self.kinds.get(part, ()) or not seconds.replace(".", "", 1).isdecimal():
            known = ", ".join(f"{part}-{how}-SECONDS" for part, hows in self.kinds.items() for how in hows)
            raise ValueError(f'CHAOS_OUTAGES: "{name}" is not an outage here; use all, none, or names like {known}')
        return Outage(part, how, float(seconds))


CLUSTER: Final = Outages(
    {
        "postgres": ("freeze", "kill", "failover", "hang"),
        "nats": ("freeze", "kill", "wipe"),
    },
    (
        *(Outage(part, how, seconds) for seconds in (30.0, 75.0) for part in ("postgres", "nats")
          for how in ("freeze", "kill")),
        Outage("postgres", "failover", 2.0),
        Outage("postgres", "hang", 4.0),
        Outage("nats", "wipe", 2.0),
    ),
)  # fmt: skip
"""Of several servers. failover: the primary is killed, and its standby promoted after so many seconds. hang: the same,
while the primary is frozen, as behind a dead network. wipe: NATS is killed, and starts again with an empty store."""

SERVER: Final = Outages(
    {"disk": ("fill",), "files": ("take",), "clock": ("forward", "back")},
    (
        Outage("disk", "fill", 5.0),
        Outage("disk", "fill", 2.0),
        Outage("files", "take", 5.0),
        Outage("files", "take", 2.0),
        Outage("clock", "back", 8.0),
    ),
)
"""Of one server. fill: the disk with its store has no space. take: it may open no more files or connections. clock: its
clock is minutes off for so long. Not usual is `forward`: durable sleeps that begin meanwhile end minutes too late."""


def plan_outages(
    outages: Iterable[Outage], part: str, seconds: float, rng: random.Random
) -> Sequence[tuple[float, Outage]]:
    """The outages of one part with their starts, in seconds from now; in random order and with random gaps.

    An empty part stands for all. Those that do not fit into `seconds` are left out.
    """
    left = [outage for outage in outages if part in ("", outage.part)]
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
