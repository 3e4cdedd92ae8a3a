"""Values of steps: results as bytes, and arguments for people.

A stored result is JSON, in which values that JSON does not have are objects with one key, `$kind`.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from importlib import import_module
from math import isfinite
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from google.protobuf.message import Message

from dragoman.core.task.steps import HIDDEN, JSON_MEDIA_TYPE, SECRET_NAME

BYTES_MEDIA_TYPE: Final = "application/octet-stream"


class UnstorableResult(TypeError, ValueError):
    """The result of a step that has run cannot be stored. No further attempt can change that."""


_PLAIN_TYPES: Final = frozenset({str, int, float, bool, type(None)})

_TEXT_TYPES: Final[Mapping[type, tuple[Callable[[Any], str], Callable[[str], Any]]]] = {
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    timedelta: (
        lambda value: f"{value.days} {value.seconds} {value.microseconds}",
        lambda text: timedelta(*map(int, text.split())),
    ),
    Decimal: (str, Decimal),
    UUID: (str, UUID),
    bytes: (lambda value: b64encode(value).decode(), b64decode),
}
"""Types whose values are stored as text, under their name in lower case: how it is written and read."""

_TEXT_READERS: Final = {kind.__name__.lower(): read for kind, (_, read) in _TEXT_TYPES.items()}
_COLLECTIONS: Final = {kind.__name__: kind for kind in (tuple, set, frozenset)}


def encode_result(value: object) -> tuple[bytes, str]:
    """The bytes of a result, and their media type. Raises TypeError for a value that cannot be stored."""
    if type(value) is bytes:
        return value, BYTES_MEDIA_TYPE
    return json.dumps(_to_json(value), separators=(",", ":")).encode(), JSON_MEDIA_TYPE


def decode_result(data: bytes, media_type: str) -> Any:
    """The value of `encode_result`: equal to the original, and of the same type.

    Raises ValueError when its class has disappeared from its module since.
    """
    return data if media_type == BYTES_MEDIA_TYPE else _from_json(json.loads(data))


def _to_json(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN_TYPES:
        return value
    if kind is list:
        return [_to_json(item) for item in value]
    if kind is dict:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: _to_json(item) for key, item in value.items()}
        return {"$dict": [[_to_json(key), _to_json(item)] for key, item in value.items()]}
    if kind in _COLLECTIONS.values():
        return {f"${kind.__name__}": [_to_json(item) for item in value]}
    if kind in _TEXT_TYPES:
        return {f"${kind.__name__.lower()}": _TEXT_TYPES[kind][0](value)}
    return _class_to_json(value)


def _class_to_json(value: Any) -> Any:
    kind = type(value)
    if isinstance(value, Enum):
        return {"$enum": [_class_path(kind), value.name]}
    if isinstance(value, Message):
        return {"$protobuf": [_class_path(kind), b64encode(value.SerializeToString()).decode()]}
    if hasattr(kind, "__pydantic_validator__") and hasattr(value, "model_dump_json"):
        return {"$model": [_class_path(kind), value.model_dump_json()]}
    if dataclasses.is_dataclass(value):
        fields = {field.name: _to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"$dataclass": [_class_path(kind), fields]}
    if isinstance(value, PurePath):
        return {"$path": [_class_path(kind), str(value)]}
    raise TypeError(
        f"a {kind.__module__}.{kind.__qualname__} cannot be stored; return JSON values, bytes, a dataclass, a pydantic "
        "model or a protobuf message"
    )


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, content),) = value.items()
        if key.startswith("$"):
            return _from_kind(key[1:], content)
    return {key: _from_json(item) for key, item in value.items()}


def _from_kind(kind: str, content: Any) -> Any:
    if kind in _TEXT_READERS:
        return _TEXT_READERS[kind](content)
    if kind in _COLLECTIONS:
        return _COLLECTIONS[kind](map(_from_json, content))
    match kind:
        case "dict":
            return {_from_json(key): _from_json(item) for key, item in content}
        case "enum":
            return _find_class(content[0], Enum)[content[1]]
        case "protobuf":
            return _find_class(content[0], Message).FromString(b64decode(content[1]))
        case "model":
            return _find_class(content[0], object).model_validate_json(content[1])
        case "path":
            return _find_class(content[0], PurePath)(content[1])
        case "dataclass":
            value = object.__new__(_find_class(content[0], object))
            for name, item in content[1].items():  # not by its constructor, which may compute or check
                object.__setattr__(value, name, _from_json(item))
            return value
    raise ValueError(f'a stored result has the unknown kind "{kind}": it was written by a newer Dragoman')


def _class_path(cls: type) -> str:
    path = f"{cls.__module__}:{cls.__qualname__}"
    if "<locals>" in path:
        raise TypeError(f"{cls.__qualname__} is defined inside a function, where it cannot be found again; move it out")
    return path


def _find_class(path: str, base: type) -> Any:
    module_name, _, name = path.partition(":")
    try:
        found: Any = sys.modules.get(module_name) or import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"a stored result is a {path}, which no longer exists: {error}") from error
    if not isinstance(found, type) or not issubclass(found, base):
        raise ValueError(f"a stored result is a {path}, which is now another thing")
    return found


# For people -----------------------------------------------------------------------------------------------------------

MAX_INPUT_BYTES: Final = 64 * 1024  # of the JSON: with the failures, less than ports.remote_agents.MAX_DETAILS_BYTES
MAX_INPUT_CHARS: Final = 8_000  # characters of the arguments of a step that are stored
MAX_INPUT_TEXT_CHARS: Final = 2_000  # of one text
MAX_INPUT_ITEMS: Final = 50  # items of a list or an object
MAX_INPUT_DEPTH: Final = 8


def encode_input(call: Callable[[], Any] | None) -> str:
    """The arguments of a step's function as a JSON object, for people; empty if they are not known.

    Values say how much of them is left out. Other objects than JSON's, dataclasses and models are shown as their class.
    """
    if not isinstance(call, partial):
        return ""
    try:
        named = inspect.signature(call.func).bind(*call.args, **call.keywords).arguments
    except Exception:  # of a builtin, of wrong arguments, or of a signature of others
        named = {str(number): value for number, value in enumerate(call.args, 1)} | call.keywords
    try:
        text = json.dumps(_InputEncoder().encode(dict(named)), separators=(",", ":"), ensure_ascii=False)
        shown = text.encode(errors="backslashreplace")
        return shown.decode() if len(shown) <= MAX_INPUT_BYTES else ""
    except Exception:  # of a value of others
        return ""


class _InputEncoder:
    """Turns values into bounded JSON."""

    _left = MAX_INPUT_CHARS  # characters that may still be shown

    def encode(self, value: Any, depth: int = 0, *, is_secret: bool = False) -> Any:
        kind: type = type(value)
        self._left -= 8
        if isinstance(value, Enum):
            return value.name
        if kind is bytes:
            return f"({len(value):,} bytes)"
        if kind in (str, float) or kind in _TEXT_TYPES or isinstance(value, PurePath):
            return value if kind is float and isfinite(value) else self._text(str(value))
        if kind in _PLAIN_TYPES:
            return value if kind is not int or value.bit_length() <= MAX_INPUT_CHARS else "(int)"
        if hasattr(kind, "__pydantic_validator__"):
            value = value.__dict__
        elif dataclasses.is_dataclass(kind):
            value = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(kind)}
        if type(value) not in (dict, list, *_COLLECTIONS.values()) or depth == MAX_INPUT_DEPTH:
            return f"({kind.__name__})"
        shown: dict[str, Any] = {}
        for key, item in value.items() if type(value) is dict else enumerate(value):
            if len(shown) == MAX_INPUT_ITEMS or self._left <= 0:
                shown["…"] = f"… {len(value) - len(shown)} more"
                break
            name = self._text(str(key))
            hides = is_secret or SECRET_NAME.search(name) is not None
            is_text = type(item) in (str, bytes)
            try:
                shown[name] = HIDDEN if hides and is_text else self.encode(item, depth + 1, is_secret=hides)
            except Exception:  # of a value of others
                shown[name] = f"({type(item).__name__})"
        return shown if type(value) is dict else list(shown.values())

    def _text(self, text: str) -> str:
        shown = text[: max(min(self._left, MAX_INPUT_TEXT_CHARS), 0)]
        self._left -= len(shown)
        return shown if len(shown) == len(text) else f"{shown}… {len(text) - len(shown):,} more characters"
