"""Which connection is dropped, and when: a choice that a seed repeats, connection by connection."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple, Self, get_args

How = Literal["close", "reset", "hang"]
"""What a drop looks like: the end of the stream (FIN), a reset (RST), or nothing at all, not even an end."""

HOWS: Final[tuple[str, ...]] = get_args(How)


class Moment(StrEnum):
    """When a connection is dropped, and what a caller may conclude."""

    REQUEST = "before its request went up"
    """Nobody has heard of it."""
    UNANSWERED = "after its request went up, before the answer"
    """It was carried out, or is, and the caller does not know."""
    ANSWER = "in the middle of its answer"
    LATER = "in the middle of an answer, after a while"
    """As `--after` has it."""


AT_ONCE: Final = (Moment.REQUEST, Moment.UNANSWERED, Moment.ANSWER)

_SPAN: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|B|KiB|MiB)", re.ASCII)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "B": 1, "KiB": 1024, "MiB": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class Span:
    """For how long connections are left alone: one of the two is positive."""

    seconds: float = 0.0
    size: int = 0
    """Bytes of answers."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `5s`, `500ms`, `2m`, `100B`, `64KiB` or `1MiB`. Raises ValueError, naming the form."""
        found = _SPAN.fullmatch(text.strip())
        if not found or not float(found[1]):
            raise ValueError(f'"{text}" is neither a time nor a size: a positive number with ms, s, m, B, KiB or MiB')
        amount = float(found[1]) * _UNITS[found[2]]
        return cls(size=max(1, round(amount))) if found[2].endswith("B") else cls(seconds=amount)


class Fault(NamedTuple):
    """What happens to one connection."""

    moment: Moment | None
    """None: nothing does."""
    share: float
    """How much of the piece in which it happens still gets through, from 0 to below 1."""
    span: Span
    """For LATER: for how long it is left alone."""


class Drop(NamedTuple):
    """One connection that was dropped."""

    number: int
    """Of the connection, from 1."""
    moment: Moment
    how: How
    up: int
    down: int
    """Bytes that got through, to the server and back."""
    seconds: float
    """How old it was."""


def fault_of(number: int, *, seed: int, every: int, after: Span | None) -> Fault:
    """The fault of connection `number`, counted from 1: the same for the same arguments, whatever the others do."""
    chance = random.Random(f"{seed}/{number}")
    moment, share, length = chance.choice(AT_ONCE), chance.random(), chance.uniform(0.5, 1.5)
    if every and number % every == 0:
        return Fault(moment, share, Span())
    if after is None:
        return Fault(None, 0.0, Span())
    # Between half and one and a half times of it, so that connections that began together do not end together.
    return Fault(Moment.LATER, share, Span(after.seconds * length, round(after.size * length)))
