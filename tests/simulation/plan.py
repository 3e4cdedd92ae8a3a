"""What happens in a history besides chance: callers with their operations, faults, and how unreliable everything is.

A plan is data, so that `tests.simulation.shrink` can take parts of it away.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Final


@dataclass(frozen=True, slots=True)
class Profile:
    """Probabilities from 0 to 1, and times in seconds."""

    losses: float = 0.0
    """Of a message on the bus to one server."""
    repeats: float = 0.0
    delays: float = 0.0
    longest_delay: float = 0.5
    slow_calls: float = 0.0
    """Calls of the store."""
    slowest_call: float = 1.0
    failures: float = 0.0
    """Calls of the store that fail, or stay without an answer."""
    cuts: float = 0.05
    """A follower disconnects after a batch of events."""
    lost_answers: float = 0.0
    """Answers to callers."""
    skew: float = 0.0
    """Seconds between the wall clocks of the servers, and of the store."""
    drift: float = 0.0
    """The largest difference in the rate of clocks."""
    lost_calls: float = 0.0
    """Calls of other servers whose request or answer is lost."""
    late_answers: float = 0.0
    """Answers of other servers that take seconds."""


@dataclass(frozen=True, slots=True)
class PlannedOperation:
    """One operation of a caller. `after`: seconds since the one before. `server`: preferred."""

    kind: str
    words: str
    after: float
    server: int
    number: int
    """Unique in the plan; seeds its random choices."""
    agent: str = ""
    """The id of a called agent, and after a slash the tool; empty: one of the server's own agents."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """`kind` strikes `target` at a time, for so many seconds."""

    kind: str
    at: float
    seconds: float
    target: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole history."""

    seed: str
    servers: int = 2
    slots: int = 8
    callers: tuple[tuple[PlannedOperation, ...], ...] = ()
    faults: tuple[PlannedFault, ...] = ()
    profile: Profile = field(default_factory=Profile)
    tail_seconds: float = 5.0
    """Seconds for which callers go on while everything is unreliable, after the last fault."""
    called: bool = False
    """Whether the servers call upstream agents and MCP servers, and workers run agents."""
    operated: bool = False
    """Whether operators act, and principals have quotas."""

    @property
    def operations(self) -> int:
        """The number of all operations."""
        return sum(map(len, self.callers))


OPERATIONS: Final = {
    "at once": 5,
    "blocking": 3,
    "stream": 4,
    "cancel": 4,
    "conversation": 3,
    "interjection": 2,
    "doubled": 3,
    "direct": 2,
    "listener": 2,
    "reused": 1,
    "cancel for good": 2,
    "stranger": 1,
    "webhook": 4,
    "burst": 2,
}
"""Kinds of operations, by weight."""

FAULTS: Final = {
    "kill": 4,
    "kill at an action": 4,
    "kill for good": 3,
    "pause": 5,
    "restart": 1,
    "separate": 2,
    "unreachable": 2,
    "away": 1,
    "storm": 2,
}
"""Kinds of faults, by weight."""


def words(rng: Random) -> str:
    """What an agent is to do."""
    return rng.choice(
        (
            "echo",
            "echo",
            f"stream {rng.randint(1, 8)} {rng.randint(0, 300)}",
            f"stream {rng.randint(1, 8)} {rng.randint(0, 60)}",
            f"append {rng.randint(1, 6)} {rng.randint(0, 800)}",
            f"sleep {rng.randint(0, 4000)}",
            f"steps {rng.randint(1, 5)}",
            f"steps {rng.randint(2, 4)} nap",
            "ask",
            "fail",
            f"stubborn {rng.randint(100, 14000)}",
            f"count {rng.randint(1, 4)}",
        )
    )


def plan_of(seed: object) -> Plan:
    """The plan of a seed."""
    rng = Random(f"plan {seed}")
    calm = rng.random() < 0.25
    profile = Profile()
    faults: list[PlannedFault] = []
    if not calm:
        profile = Profile(
            losses=rng.choice((0.0, 0.0, 0.1, 0.5, 1.0)),
            repeats=rng.choice((0.0, 0.1, 0.5)),
            delays=rng.choice((0.0, 0.1, 0.5)),
            longest_delay=rng.choice((0.1, 1.0, 4.0)),
            slow_calls=rng.choice((0.0, 0.02, 0.2)),
            slowest_call=rng.choice((0.05, 0.5, 3.0)),
            failures=rng.choice((0.0, 0.0, 0.002, 0.02)),
            cuts=rng.choice((0.0, 0.05, 0.3)),
            lost_answers=rng.choice((0.0, 0.0, 0.1)),
            skew=rng.choice((0.0, 0.0, 1.0, 5.0)),
            drift=rng.choice((0.0, 0.0, 0.01)),
        )
        count = rng.choice((0, 0, 1, 1, 2, 3))
        faults = [
            PlannedFault(
                rng.choices(list(FAULTS), list(FAULTS.values()))[0],
                round(rng.uniform(0.0, 4.0), 3),
                round(rng.choice((rng.uniform(0.1, 1.0), rng.uniform(1.0, 6.0), rng.uniform(9.0, 14.0))), 3),
                rng.randrange(2),
            )
            for _ in range(count)
        ]
    number = 0
    callers = []
    for _ in range(rng.choice((1, 2, 2, 3))):
        operations = []
        for _ in range(rng.randint(1, 3)):
            number += 1
            kind = rng.choices(list(OPERATIONS), list(OPERATIONS.values()))[0]
            after = round(rng.choice((0.0, rng.uniform(0.0, 0.3), rng.uniform(0.0, 1.5))), 3)
            operations.append(PlannedOperation(kind, words(rng), after, rng.randrange(2), number))
        callers.append(tuple(operations))
    return Plan(str(seed), rng.choice((1, 2, 2, 2)), rng.choice((1, 2, 8)), tuple(callers), tuple(faults), profile)


def plan_to_json(plan: Plan) -> str:
    """A plan as one line."""
    return json.dumps(asdict(plan))


def plan_from_json(text: str) -> Plan:
    """The plan in a line of `plan_to_json`."""
    values = json.loads(text)
    return Plan(
        **{
            **values,
            "callers": tuple(tuple(PlannedOperation(**one) for one in caller) for caller in values["callers"]),
            "faults": tuple(PlannedFault(**fault) for fault in values["faults"]),
            "profile": Profile(**values["profile"]),
        }
    )
