"""Checks that the arguments of `@agent` share. They raise TypeError or ValueError, naming the argument."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any


def fields(argument: str, value: object, form: type[Any]) -> dict[str, Any]:
    """The fields of `form` that `value` (one itself, or a mapping) sets."""
    known = [field.name for field in dataclasses.fields(form)]
    if isinstance(value, form):
        return {name: getattr(value, name) for name in known}
    if not isinstance(value, Mapping):
        article = "an" if form.__name__[0] in "AEIO" else "a"
        raise TypeError(f"@agent: {argument}={value!r} must be {article} {form.__name__} or a dict")
    if unknown := [str(key) for key in value if key not in known]:
        raise ValueError(f"@agent: {argument} has no field {', '.join(unknown)}; it may have {', '.join(known)}")
    return dict(value)


def texts(argument: str, values: Iterable[str]) -> tuple[str, ...]:
    """A list of texts, none of them empty."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"@agent: {argument}={values!r} must be a list of texts")
    return tuple(text(argument, value) for value in values)


def text(argument: str, value: object, *, empty: bool = False) -> str:
    """A text; `empty`: it may be so."""
    if not isinstance(value, str):
        raise TypeError(f"@agent: {argument}={value!r} must be text")
    if not value and not empty:
        raise ValueError(f"@agent: {argument} is empty")
    return value
