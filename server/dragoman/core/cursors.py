"""Cursors: where in a task's events a reader stands, as text that can be given back anywhere.

`EPOCH.TASK.N`: 8 hex digits of the store's epoch, 8 of a hash of the task's key, the decimal sequence of the last event
seen. The first two catch a cursor that is used on another store or another task, where N would mean something else. A
bare N is taken too, for people.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from dragoman.core.errors import InvalidParams

_CURSOR: Final = re.compile(r"(?:([0-9a-f]{8})\.([0-9a-f]{8})\.)?(0|[1-9][0-9]{0,15})")


def prefix(epoch: str, key: bytes) -> str:
    """What stands before the sequence in every cursor of a task, the dot included."""
    return f"{epoch}.{sha256(key).hexdigest()[:8]}."


def sequence(cursor: str, own: str, last: int) -> int:
    """The sequence that a cursor names, on a task whose cursors begin with `own` and whose last event is `last`.

    Raises InvalidParams for what is no cursor, is of another store or task, or lies beyond the last event: waiting
    there would be waiting for something else.
    """
    found = _CURSOR.fullmatch(cursor.strip())
    if found is None:
        raise InvalidParams.field("after", "must be a cursor EPOCH.TASK.N as an event carried it, or a sequence N")
    if found[1] is not None:
        epoch, task = own.split(".")[:2]
        if found[1] != epoch:
            raise InvalidParams.field("after", "is a cursor of another store; leave it out to begin with the task")
        if found[2] != task:
            raise InvalidParams.field("after", "is a cursor of another task; leave it out to begin with the task")
    number = int(found[3])
    if number > last:
        raise InvalidParams.field("after", f"lies beyond the task's last event, {last}")
    return number
