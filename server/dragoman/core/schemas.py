"""Which releases may serve a store: schemas are numbered, and each migration says what it leaves able to serve.

A migration begins with `-- since N`: programs that know schema N, and those between, run on what it makes. It may say
so when it only adds what they do not look at. The store keeps the number, so that a release from before can tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

SINCE: Final = re.compile(r"-- since ([0-9]+)\n", re.ASCII)


def since(number: int, script: str) -> int:
    """The oldest schema whose programs run on what migration `number` makes: its own number if it does not say."""
    found = SINCE.match(script)
    return int(found[1]) if found else number


def oldest(steps: Iterable[tuple[int, str]]) -> int:
    """The oldest schema whose programs run on what all these migrations make; 0 for none."""
    return max((since(number, script) for number, script in steps), default=0)


def refusal(version: int, known: int, kept: str | int | None) -> str:
    """Why a program that knows schemas up to `known` may not serve a store of schema `version`; empty when it may.

    `kept`: the oldest schema whose programs may, as the store says; None from before it said so.
    """
    needed = version if kept is None else int(kept)
    if version <= known or needed <= known:
        return ""
    return (
        f"the store has schema {version}; this version of Dragoman knows up to {known}: start one that knows {needed}"
    )
