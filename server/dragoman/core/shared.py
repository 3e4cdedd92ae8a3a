"""Answers that many ask for: the bytes, and the forms that were made of them, so that each is made once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

FORMS: Final = 3
"""Forms of one answer that are kept: readers of one task rarely speak more dialects than that."""


class Shared(bytes):
    """A serialized answer as a store keeps it for the next who asks. Its forms live and end with it."""

    forms: dict[Hashable, bytes]
    dialect: str = ""
    """The dialect in which its task was made."""


def shared(data: bytes, dialect: str = "") -> Shared:
    """These bytes, to be given to several."""
    made = Shared(data)
    made.forms, made.dialect = {}, dialect
    return made


def form(answer: bytes, key: Hashable, make: Callable[[], bytes]) -> bytes:
    """A form of an answer: the one that was made before, if the answer is shared."""
    if not isinstance(answer, Shared):
        return make()
    found = answer.forms.get(key)
    if found is None:
        found = make()
        if len(answer.forms) < FORMS:
            answer.forms[key] = found
    return found
