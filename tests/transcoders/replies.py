"""Random messages that JSON can represent, for the replies of the gRPC server."""

from __future__ import annotations

import random
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

_INTEGERS: Final = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}
_TEXTS: Final = ("", "a", "two words", "ünï", "日本", "<b>&'\"\\", "\u2028", "\x7f\t\n")
_NANOS: Final = (0, 0, 5_000_000, 7_000, 1, 999_999_999)
_DEPTH: Final = 2
_COUNT: Final = 200


def random_message(cls: type[Message], rng: random.Random) -> Any:
    """One of some messages with random fields, nested at most two deep."""
    return rng.choice(_messages(cls.DESCRIPTOR))


@cache
def _messages(descriptor: Descriptor) -> list[Any]:
    """Created once for each type: creating a message takes longer than everything else of a case."""
    rng, cls = random.Random(descriptor.full_name), GetMessageClass(descriptor)
    messages = [cls() for _ in range(_COUNT)]
    for message in messages:
        _fill(message, rng, _DEPTH)
    return messages


def _fill(message: Any, rng: random.Random, depth: int) -> None:
    match message.DESCRIPTOR.full_name:
        case "google.protobuf.Timestamp":
            message.seconds, message.nanos = rng.randint(-62135596800, 253402300799), rng.choice(_NANOS)
        case "google.protobuf.Duration":
            sign = rng.choice((1, -1))
            message.seconds, message.nanos = sign * rng.randint(0, 315_576_000_000 - 1), sign * rng.choice(_NANOS)
        case "google.protobuf.FieldMask":
            message.paths.extend(rng.sample(("text", "maybe_text", "child.maybe_text"), rng.randint(0, 2)))
        case "google.protobuf.Struct":
            message.update({"a": rng.choice([1, 1.5, None, "b", True]), "c": {"d": [1, "e"]}})
        case "google.protobuf.Value":
            message.string_value = rng.choice(_TEXTS)
        case "google.protobuf.ListValue":
            message.extend([1, "a", None])
        case "google.protobuf.Any":
            pass
        case _:
            for field in rng.sample(list(message.DESCRIPTOR.fields), min(5, len(message.DESCRIPTOR.fields))):
                _fill_field(message, field, rng, depth)


def _fill_field(message: Any, field: FieldDescriptor, rng: random.Random, depth: int) -> None:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        if inner.fields_by_name["value"].message_type is None:
            container = getattr(message, field.name)
            container[_scalar(inner.fields_by_name["key"], rng)] = _scalar(inner.fields_by_name["value"], rng)
    elif inner is not None:
        if depth:
            held = getattr(message, field.name)
            held = held.add() if field.is_repeated else held
            held.SetInParent()
            _fill(held, rng, depth - 1)
    elif field.is_repeated:
        getattr(message, field.name).extend(_scalar(field, rng) for _ in range(rng.randint(0, 2)))
    else:
        setattr(message, field.name, _scalar(field, rng))


def _scalar(field: FieldDescriptor, rng: random.Random) -> Any:
    if bounds := _INTEGERS.get(field.type):
        return rng.choice((0, 1, *bounds, rng.randint(*bounds)))
    if field.type == FieldDescriptor.TYPE_STRING:
        return rng.choice(_TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.randbytes(rng.randint(0, 5))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return rng.choice((0.0, 1.0, -1.5, 0.1, 1e10, float("nan"), float("inf"), -float("inf")))
    assert field.enum_type is not None
    return rng.choice([value.number for value in field.enum_type.values])
