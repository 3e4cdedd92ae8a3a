"""How webhook receivers respond, in chaos runs and in simulation."""

from __future__ import annotations

import random
from typing import Final

CHARACTERS: Final = ("well", "slow", "down", "flapping", "lying")
"""A lying receiver takes a request, but responds with an error, late, or never."""


def draw_response(character: str, rng: random.Random, longest_delay: float) -> tuple[float, int]:
    """Returns the delay in seconds and the status of a response; 0 for no response.

    `longest_delay`: that of a slow receiver.
    """
    match character:
        case "slow":
            return rng.uniform(0.02, longest_delay), 200
        case "down":
            return 0.0, 503
        case "flapping":
            return 0.0, rng.choice((200, 200, 200, 503, 429, 0))
        case "lying":
            return rng.choice(((0.0, 200), (0.3, 200), (0.0, 500), (0.1, 0), (0.0, 302)))
    return 0.0, 200
