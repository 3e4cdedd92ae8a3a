"""Plans of histories with called agents. Their seeds begin with `called`."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.simulation.plan import FAULTS, Plan, PlannedFault, PlannedOperation, Profile, words

CALLED_AGENTS: Final = ("upstream", "plain", "tools")
"""Agents with a server of their own: A2A with streams and idempotency keys, A2A without, MCP."""

AGENTS: Final = {
    "upstream": 4,
    "plain": 4,
    "tools/run": 2,
    "tools/look": 1,
    "tools/long": 4,
    "far": 2,
    "far-again": 2,
}
"""Agents, with the tool of an MCP server, by weight. Workers run those that are `far`."""

CALLED_OPERATIONS: Final = {
    "at once": 4,
    "blocking": 3,
    "stream": 3,
    "cancel": 6,
    "cancel for good": 4,
    "conversation": 2,
    "interjection": 1,
    "doubled": 2,
    "webhook": 1,
}

CALLED_FAULTS: Final = {
    "kill peer": 4,
    "pause peer": 3,
    "cut peer": 3,
    "refuse peer": 4,
    "kill worker": 2,
    "pause worker": 2,
    "cut worker": 2,
    "refuse worker": 2,
}
"""Kinds of faults that strike called agents, by weight."""

SEED_PREFIX: Final = "called "


def called_plan_of(seed: object) -> Plan:
    """The plan of a seed, with called agents."""
    rng = Random(f"plan {seed}")
    calm = rng.random() < 0.25
    profile = Profile(cuts=rng.choice((0.0, 0.05)))
    faults: list[PlannedFault] = []
    if not calm:
        profile = Profile(
            losses=rng.choice((0.0, 0.1, 1.0)),
            slow_calls=rng.choice((0.0, 0.02)),
            slowest_call=rng.choice((0.05, 0.5)),
            failures=rng.choice((0.0, 0.0, 0.002)),
            cuts=rng.choice((0.0, 0.05, 0.3)),
            lost_answers=rng.choice((0.0, 0.0, 0.1)),
            lost_calls=rng.choice((0.0, 0.0, 0.1, 0.3)),
            late_answers=rng.choice((0.0, 0.0, 0.2)),
        )
        faults = [_fault(rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    number = 0
    callers = []
    for _ in range(rng.choice((1, 2, 2, 3))):
        operations = []
        for _ in range(rng.randint(1, 3)):
            number += 1
            operations.append(_operation(rng, number))
        callers.append(tuple(operations))
    return Plan(str(seed), rng.choice((1, 2, 2)), 8, tuple(callers), tuple(faults), profile, called=True)


def _fault(rng: Random) -> PlannedFault:
    kinds = CALLED_FAULTS if rng.random() < 0.7 else FAULTS
    seconds = rng.choice((rng.uniform(0.1, 1.0), rng.uniform(1.0, 6.0), rng.uniform(9.0, 14.0)))
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    return PlannedFault(kind, round(rng.uniform(0.0, 4.0), 3), round(seconds, 3), rng.randrange(6))


def _operation(rng: Random, number: int) -> PlannedOperation:
    kind = rng.choices(list(CALLED_OPERATIONS), list(CALLED_OPERATIONS.values()))[0]
    agent = rng.choices(list(AGENTS), list(AGENTS.values()))[0]
    if agent.startswith("tools") and kind in ("conversation", "interjection"):
        kind = "at once"
    if agent.startswith("far"):
        ignores = kind == "cancel" and rng.random() < 0.5
        text = f"stubborn {rng.randint(3000, 12000)}" if ignores else words(rng)
    elif kind == "cancel for good":
        text = f"sleep {rng.randint(20_000, 30_000)}"  # ends by itself within the quiet time of a history
    else:
        text = _work(rng)
    after = round(rng.choice((0.0, rng.uniform(0.0, 0.3), rng.uniform(0.0, 1.5))), 3)
    return PlannedOperation(kind, text, after, rng.randrange(2), number, agent)


def _work(rng: Random) -> str:
    """What another server is to do."""
    return rng.choice(
        (
            "echo",
            f"stream {rng.randint(1, 8)} {rng.randint(0, 300)}",
            f"stream {rng.randint(1, 8)} {rng.randint(0, 800)}",
            f"sleep {rng.randint(0, 4000)}",
            f"sleep {rng.randint(4000, 15000)}",
            f"stubborn {rng.randint(100, 14000)}",
            f"reluctant {rng.randint(100, 6000)}",
            "fail",
        )
    )
