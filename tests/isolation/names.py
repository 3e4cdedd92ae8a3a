"""Names of a victim's resources, and phantom names of the same form."""

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
    """All names that a call can contain, for one task. A real name and its phantom have the same length."""

    task: str
    context: str
    cursor: str
    token: str
    key: str
    config: str
    blob: str

    def cleaned(self, text: str) -> str:
        """The text with these names replaced by placeholders."""
        for number, name in enumerate(astuple(self)):
            text = text.replace(name, f"<{number}>")
        return text


def phantom(real: Names, agent: str) -> Names:
    """Names of the same form, of resources that never existed."""
    key = task_key_of(real.task)
    phantom_key = secrets.token_bytes(16) if key is None else key[:9] + secrets.token_bytes(7)
    task = f"mine-{uuid.uuid4()}" if key is None else task_id_of(phantom_key)
    epoch, _, number = real.cursor.split(".")
    query = TaskQuery(Owner("default", "nobody"), agent)
    phantoms = Names(
        task=task,
        context=_like(real.context),
        cursor=cursors.cursor_prefix(epoch, phantom_key) + number,
        token=cursors.page_token(query, (1_700_000_000_000, phantom_key)),
        key=real.key[::-1],  # depends on the key alone, because a repeated use of a key differs from the first
        config=_like(real.config),
        blob=secrets.token_hex(32),
    )
    for name, other in zip(astuple(real), astuple(phantoms), strict=True):
        assert len(name) == len(other), (name, other)
        assert name != other
    return phantoms


def _like(name: str) -> str:
    """A name of the same form: a new UUID, or other digits in the same places."""
    return _UUID.sub(lambda _: str(uuid.uuid4()), name) if _UUID.search(name) else _other(name)


def _other(name: str) -> str:
    others = {char: [digit for digit in "0123456789" if digit != char] for char in "0123456789"}
    return "".join(secrets.choice(others[char]) if char in others else char for char in name)


_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|seconds: \d+(\s+nanos: \d+)?")
_FRESH: Final = re.compile(rf"{_UUID.pattern}|\b[0-9a-f]{{32}}\b")
_CURSOR: Final = re.compile(r"\b[0-9a-f]{8}\.[0-9a-f]{8}\.(\d+)\b")


def settled(text: str) -> str:
    """The text with times and generated ids replaced, which differ from call to call. Ids are numbered in order."""
    fresh: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        return fresh.setdefault(match[0], f"<id {len(fresh)}>")

    return _FRESH.sub(numbered, _CURSOR.sub(r"<cursor \1>", _TIME.sub("<time>", text)))


def words(names: Names) -> Iterator[str]:
    """The names that reveal something about a victim if a response contains them unrequested."""
    yield from (names.task, names.context, names.cursor, names.token, names.config)
