"""Mutated JSON: what another server might send in place of a valid message."""

from __future__ import annotations

import copy
import os
from random import Random
from typing import Any, Final

INPUTS: Final = int(os.environ.get("OTHERS_INPUTS", "2000"))
"""Mutated inputs for each reader."""

_STRANGE: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 2**31, 2**63, 2**80, -(2**70), 0.5, 1e308, float("nan"), float("inf"), "", " ", "x" * 99,
    "\ud800", "\x00", "é\u202e", "http://127.0.0.1:9/x", "#", [], {}, [None], [[]], {"": None},
    {"$ref": "#"}, {"$ref": "file:///etc/passwd"}, {"type": 7}, {"type": ["object", "null"]}, {"pattern": "^(a|a)+$"},
    ["a", 1],
)  # fmt: skip


def mutate(value: Any, random: Random) -> Any:
    """A copy of a JSON value with one to four changes: other values and types, missing and deep members."""
    found = copy.deepcopy(value)
    for _ in range(random.randint(1, 4)):
        found = _changed(found, random)
    return found


def _changed(found: Any, random: Random) -> Any:
    value: Any = found
    if not isinstance(value, dict | list) or not value or random.random() < 0.15:
        return _other(value, random)
    key = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
    match random.randrange(6):
        case 0:
            del value[key]
        case 1 if isinstance(value, dict):
            value[random.choice(["", "type", "$ref", "id", "name", "x" * 300, "\ud800"])] = value[key]
        case 1 if isinstance(value, list):
            value.append(copy.deepcopy(value[key]))
        case 2:
            value[key] = _other(value[key], random)
        case _:
            value[key] = _changed(value[key], random)
    return value


def _other(value: Any, random: Random) -> Any:
    if random.random() < 0.1:
        for _ in range(random.choice([1, 30, 150])):
            value = [value] if random.random() < 0.5 else {"a": value}
        return value
    return copy.deepcopy(random.choice(_STRANGE))
