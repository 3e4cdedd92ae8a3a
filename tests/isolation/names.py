"""What a victim's things are called, and names of the same form that never were."""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Final

from dragoman.core.names import Owner, task_id_of, task_key_of
from dragoman.core.task import cursors
from dragoman.core.task.cursors import TaskQuery


@dataclass(frozen=True)
class Names:
    """Everything that a call can name, for one task. All are texts, and two of a pair are equally long."""

    task: str
    context: str
    cursor: str
    token: str
    key: str
    config: str
    blob: str

    def cleaned(self, text: str) -> str:
        """`text` with these names taken out of it."""
        for number, name in enumerate(astuple(self)):
            text = text.replace(name, f"<{number}>")
        return text


def phantom(real: Names, agent: str) -> Names:
    """Names that look like these, of things that were never there."""
    key = task_key_of(real.task)
    never = secrets.token_bytes(16) if key is None else key[:9] + secrets.token_bytes(7)
    task = f"mine-{uuid.uuid4()}" if key is None else task_id_of(never)
    epoch, _, number = real.cursor.split(".")
    query = TaskQuery(Owner("default", "nobody"), agent)
    found = Names(
        task=task,
        context=_like(real.context),
        cursor=cursors.cursor_prefix(epoch, never) + number,
        token=cursors.page_token(query, (1_700_000_000_000, never)),
        key=real.key[::-1],  # the same for all whose key is the same: the second use of one is another thing
        config=_like(real.config),
        blob=secrets.token_hex(32),
    )
    for one, other in zip(astuple(real), astuple(found), strict=True):
        assert len(one) == len(other), (one, other)
        assert one != other
    return found


def _like(name: str) -> str:
    """Other letters and digits in the same places, never the same ones."""
    return _UUID.sub(lambda _: str(uuid.uuid4()), name) if _UUID.search(name) else _other(name)


def _other(name: str) -> str:
    others = {one: [digit for digit in "0123456789" if digit != one] for one in "0123456789"}
    return "".join(secrets.choice(others[one]) if one in others else one for one in name)


_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|seconds: \d+(\s+nanos: \d+)?")
_FRESH: Final = re.compile(rf"{_UUID.pattern}|\b[0-9a-f]{{32}}\b")
_CURSOR: Final = re.compile(r"\b[0-9a-f]{8}\.[0-9a-f]{8}\.(\d+)\b")


def settled(text: str) -> str:
    """`text` without what is another each time: moments, and ids that the server has just made, in their order."""
    fresh: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return fresh.setdefault(found[0], f"<id {len(fresh)}>")

    return _FRESH.sub(numbered, _CURSOR.sub(r"<cursor \1>", _TIME.sub("<time>", text)))


def words(names: Names) -> Iterator[str]:
    """What of these names says something about a victim when a stranger is told it unasked."""
    yield from (names.task, names.context, names.cursor, names.token, names.config)
