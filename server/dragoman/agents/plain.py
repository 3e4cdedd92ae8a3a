"""JSON in and out of protobuf: what a data part and metadata hold (A2A 1.0 §4.1.6, `google.protobuf.Value`).

A Value knows one kind of number, the double. So a whole number beyond 2^53 cannot be told from its neighbours and
is refused rather than changed, and a double without a fraction comes back as `int`.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping
from typing import Any, Final

from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.limits import DEPTH

WHOLE: Final = 2**53
"""The largest distance from zero at which every whole number is a double of its own."""


def plain(value: object, left: int = DEPTH) -> Any:
    """`value` as dict, list, str, float, int, bool and None; pydantic models and dataclasses become objects.

    Raises InvalidAgentResponse for what JSON, or the protocol's depth limit, has no place for.
    """
    match value:
        case None | bool():
            return value
        case str():
            return checked_text(value)
        case int():
            if abs(value) > WHOLE:
                raise InvalidAgentResponse(
                    f"the number {_short(value)} is beyond 2^53 and would be rounded; give it as text"
                )
            return value
        case float():
            if not math.isfinite(value):
                raise InvalidAgentResponse(f"{value} is no JSON number; give None or text instead")
            return value
        case list() | tuple():
            _go_down(left)
            return [plain(item, left - 1) for item in value]
        case Mapping():
            return _object(value, left)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _object({one.name: getattr(value, one.name) for one in dataclasses.fields(value)}, left)
    if _is_model(value):
        return plain(value.model_dump(mode="json"), left)  # type: ignore[attr-defined]
    raise InvalidAgentResponse(f"{_kind(value)} is not JSON; use dict, list, str, int, float, bool or None")


def is_record(value: object) -> bool:
    """Whether `value` is an instance of a dataclass or of a pydantic model."""
    return (dataclasses.is_dataclass(value) and not isinstance(value, type)) or _is_model(value)


def fill(target: Any, value: Any) -> None:
    """Writes a plain value into a Value, of whatever descriptor pool."""
    match value:
        case None:
            target.null_value = 0
        case bool():
            target.bool_value = value
        case str():
            target.string_value = value
        case int() | float():
            target.number_value = value
        case list():
            target.list_value.SetInParent()  # the empty list is a value too
            for item in value:
                fill(target.list_value.values.add(), item)
        case dict():
            target.struct_value.SetInParent()
            fill_object(target.struct_value, value)


def fill_object(target: Any, value: Mapping[str, Any]) -> None:
    """Writes a plain object into a Struct, of whatever descriptor pool."""
    for key, item in value.items():
        fill(target.fields[key], item)


def read(value: Any) -> Any:
    """The JSON of a Value: whole numbers up to 2^53 as int, objects as dict."""
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() and abs(number) <= WHOLE else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return read_object(value.struct_value)
        case "list_value":
            return [read(item) for item in value.list_value.values]
        case _:
            return None


def read_object(struct: Any) -> dict[str, Any]:
    """The JSON of a Struct."""
    return {key: read(item) for key, item in struct.fields.items()}


def check(what: str, value: Any, left: int = DEPTH) -> None:
    """Raises InvalidAgentResponse unless a Struct or Value that somebody else filled has a JSON form, and not too deep.

    A double without one (NaN, infinity) would be stored and then fail in every REST answer.
    """
    match value.DESCRIPTOR.name:
        case "Struct":
            inner = value.fields.values()
        case "ListValue":
            inner = value.values
        case _:
            kind = value.WhichOneof("kind")
            if kind == "number_value" and not math.isfinite(value.number_value):
                raise InvalidAgentResponse(f"{what}: {value.number_value} is no JSON number")
            if kind in ("struct_value", "list_value"):
                check(what, getattr(value, kind), left)
            return
    if left == 0:
        raise InvalidAgentResponse(f"{what} nests more than {DEPTH} levels of arrays and objects")
    for item in inner:
        check(what, item, left - 1)


def checked_text(text: str) -> str:
    """`text`, if it has a UTF-8 form. Raises InvalidAgentResponse for half of a surrogate pair."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidAgentResponse(
                f"text has half of a surrogate pair at position {error.start}, which UTF-8 cannot say"
            ) from None
    return text


def _object(value: Mapping[Any, object], left: int) -> dict[str, Any]:
    _go_down(left)
    made = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise InvalidAgentResponse(f"the key {_short(key)} of an object is {_kind(key)}; keys are text")
        made[checked_text(key)] = plain(item, left - 1)
    return made


def _go_down(left: int) -> None:
    if left == 0:
        raise InvalidAgentResponse(f"data nests more than {DEPTH} levels of arrays and objects")


def _is_model(value: object) -> bool:
    # Whoever has a model has imported pydantic; an agent without one does not pay for the import.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value, pydantic.BaseModel)


def _kind(value: object) -> str:
    name = type(value).__qualname__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _short(value: object) -> str:
    if isinstance(value, int) and abs(value) > 10**40:
        return f"of {value.bit_length()} bits"  # printing it may cost more than the whole turn
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
