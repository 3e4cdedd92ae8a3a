"""Random messages of any type, and a type with every kind of field."""

from __future__ import annotations

from functools import cache
from math import inf
from typing import Any, Final

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

# ---- a message type with the field kinds that A2A does not use

F = descriptor_pb2.FieldDescriptorProto
WRAPPERS: Final = [
    f"{kind}Value" for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
]
SCALARS = {
    "text": F.TYPE_STRING,
    "raw": F.TYPE_BYTES,
    "flag": F.TYPE_BOOL,
    "int32": F.TYPE_INT32,
    "sint32": F.TYPE_SINT32,
    "uint32": F.TYPE_UINT32,
    "fixed32": F.TYPE_FIXED32,
    "int64": F.TYPE_INT64,
    "uint64": F.TYPE_UINT64,
    "sfixed64": F.TYPE_SFIXED64,
    "double": F.TYPE_DOUBLE,
    "float": F.TYPE_FLOAT,
    "kind": F.TYPE_ENUM,
    "null": F.TYPE_ENUM,
    "child": F.TYPE_MESSAGE,
    "value": F.TYPE_MESSAGE,
    "struct": F.TYPE_MESSAGE,
    "list": F.TYPE_MESSAGE,
    "time": F.TYPE_MESSAGE,
    "empty": F.TYPE_MESSAGE,
    "duration": F.TYPE_MESSAGE,
    "mask": F.TYPE_MESSAGE,
    "any": F.TYPE_MESSAGE,
} | dict.fromkeys(WRAPPERS, F.TYPE_MESSAGE)
TYPES = {
    "kind": ".sink.Kind",
    "null": ".google.protobuf.NullValue",
    "child": ".sink.Sink",
    "value": ".google.protobuf.Value",
    "struct": ".google.protobuf.Struct",
    "list": ".google.protobuf.ListValue",
    "time": ".google.protobuf.Timestamp",
    "empty": ".google.protobuf.Empty",
    "duration": ".google.protobuf.Duration",
    "mask": ".google.protobuf.FieldMask",
    "any": ".google.protobuf.Any",
} | {name: f".google.protobuf.{name}" for name in WRAPPERS}


def build_sink() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="sink.proto", package="sink", syntax="proto3")
    kind = file.enum_type.add(name="Kind", options={"allow_alias": True})
    for name, number in (("KIND_NONE", 0), ("KIND_ONE", 1), ("KIND_UNO", 1), ("KIND_MINUS", -1)):
        kind.value.add(name=name, number=number)
    sink = file.message_type.add(name="Sink")
    numbers = iter(range(1, 1000))

    def add(name: str, like: str, **more: Any) -> F:
        field = sink.field.add(
            name=name, number=next(numbers), type=SCALARS[like], label=more.pop("label", F.LABEL_OPTIONAL), **more
        )
        if like in TYPES:
            field.type_name = TYPES[like]
        return field

    def add_map(key: str, like: str) -> None:
        entry = sink.nested_type.add(
            name=f"{key.title()}To{like[0].upper()}{like[1:]}Entry", options={"map_entry": True}
        )
        entry.field.add(name="key", number=1, type=SCALARS[key], label=F.LABEL_OPTIONAL)
        field = entry.field.add(name="value", number=2, type=SCALARS[like], label=F.LABEL_OPTIONAL)
        if like in TYPES:
            field.type_name = TYPES[like]
        sink.field.add(
            name=f"{key}_to_{like}",
            number=next(numbers),
            type=F.TYPE_MESSAGE,
            label=F.LABEL_REPEATED,
            type_name=f".sink.Sink.{entry.name}",
        )

    for like in SCALARS:
        add(f"one_{like}", like)
        if like != "null":  # json_format cannot read a repeated NullValue
            add(f"many_{like}", like, label=F.LABEL_REPEATED)
    sink.oneof_decl.add(name="choice")
    for like in ("text", "raw", "flag", "int32", "kind", "child", "value", "duration", "any", "StringValue"):
        add(f"pick_{like}", like, oneof_index=0)
    for index, like in enumerate(("text", "int32", "flag", "double", "kind"), start=1):
        sink.oneof_decl.add(name=f"_maybe_{like}")
        add(f"maybe_{like}", like, oneof_index=index, proto3_optional=True)
    for key in ("text", "int32", "uint64", "flag"):
        add_map(key, "text")
    for like in ("raw", "int64", "kind", "child", "value", "struct", "time", "double", "float", "duration", "any"):
        add_map("text", like)
    add("renamed", "text", json_name="otherName")

    pool = descriptor_pool.DescriptorPool()
    for module in (struct_pb2, timestamp_pb2, empty_pb2, any_pb2, duration_pb2, field_mask_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        file.dependency.append(module.DESCRIPTOR.name)
    pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL = build_sink()
Sink: Any = GetMessageClass(POOL.FindMessageTypeByName("sink.Sink"))

# ---- random messages

INTEGERS = {
    FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SINT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_FIXED32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SFIXED64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: st.integers(0, 2**64 - 1),
}
INSIDE: Final = [f"google.protobuf.{name}" for name in ("Duration", "Value", "Any", "Empty", "Int64Value")]
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def fill_value(message: Any, data: object) -> None:
    if data is None:
        message.null_value = 0
    elif isinstance(data, bool):
        message.bool_value = data
    elif isinstance(data, float):
        message.number_value = data
    elif isinstance(data, str):
        message.string_value = data
    elif isinstance(data, dict):
        message.struct_value.SetInParent()
        for key, item in data.items():
            fill_value(message.struct_value.fields[key], item)
    elif isinstance(data, list):
        message.list_value.SetInParent()
        for item in data:
            fill_value(message.list_value.values.add(), item)


NANOS: Final = st.sampled_from([0, 5_000_000, 7_000, 1, 999_999_999])
SIGN: Final = st.sampled_from([1, -1])
SECONDS: Final = st.integers(-62135596800, 253402300799)
DURATIONS: Final = st.integers(0, 315576000000)
PATHS: Final = st.lists(st.from_regex(r"[a-z]{1,3}(_[a-z]{1,2})?", fullmatch=True), max_size=2)
OBJECTS: Final = st.dictionaries(st.text(max_size=3), JSON, max_size=2)
LISTS: Final = st.lists(JSON, max_size=2)
ANYTHING: Final = st.sampled_from(["sink.Sink", *INSIDE])
FEW: Final = st.integers(0, 2)
"""Created once: creating a strategy and its first use take longer than drawing from it."""


@cache
def names_of(descriptor: Descriptor) -> st.SearchStrategy[set[str]]:
    return st.sets(st.sampled_from([*descriptor.fields_by_name, ""]), max_size=12)


@cache
def lists_of(field: FieldDescriptor) -> st.SearchStrategy[list[Any]]:
    return st.lists(scalars(field), max_size=2)


@cache
def scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type in INTEGERS:
        return INTEGERS[field.type]
    if field.type == FieldDescriptor.TYPE_STRING:
        return st.text(max_size=8)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=8)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return st.floats()
    if field.type == FieldDescriptor.TYPE_FLOAT:
        # json_format writes the largest floats in a form that it rejects (3.4028235e+38).
        return st.floats(width=32).filter(lambda value: not 3.4e38 < abs(value) < inf)
    assert field.enum_type is not None
    return st.sampled_from(sorted(field.enum_type.values_by_number))


def fill(draw: st.DrawFn, message: Any, depth: int) -> None:
    descriptor = message.DESCRIPTOR
    match descriptor.full_name:
        case "google.protobuf.Timestamp":
            message.seconds = draw(SECONDS)
            message.nanos = draw(NANOS)
        case "google.protobuf.Value":
            fill_value(message, draw(JSON))
        case "google.protobuf.Struct":
            message.SetInParent()
            for key, item in draw(OBJECTS).items():
                fill_value(message.fields[key], item)
        case "google.protobuf.ListValue":
            for item in draw(LISTS):
                fill_value(message.values.add(), item)
        case "google.protobuf.Duration":
            sign = draw(SIGN)
            message.seconds = sign * draw(DURATIONS)
            message.nanos = sign * draw(NANOS)
        case "google.protobuf.FieldMask":
            message.paths.extend(draw(PATHS))
        case "google.protobuf.Any":
            if depth:
                pool = descriptor.file.pool
                inner = pool.FindMessageTypeByName(draw(ANYTHING))
                message.Pack(draw(messages(GetMessageClass(inner), depth=depth - 1)))
        case name if name.rpartition(".")[2] in WRAPPERS:
            message.value = draw(scalars(descriptor.fields_by_name["value"]))
        case _:
            names = draw(names_of(descriptor))
            for name in sorted(names - {""}):
                fill_field(draw, message, descriptor.fields_by_name[name], depth)


def fill_field(draw: st.DrawFn, message: Any, field: FieldDescriptor, depth: int) -> None:
    count = draw(FEW) if field.is_repeated else 1
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        container = getattr(message, field.name)
        value = field.message_type.fields_by_name["value"]
        for _ in range(count):
            key = draw(scalars(field.message_type.fields_by_name["key"]))
            if value.message_type is None:
                container[key] = draw(scalars(value))
            elif depth:
                fill(draw, container[key], depth - 1)
    elif field.message_type is not None:
        if not depth:
            return
        for _ in range(count):
            inner = getattr(message, field.name)
            if field.is_repeated:
                inner = inner.add()
            inner.SetInParent()
            fill(draw, inner, depth - 1)
    elif field.is_repeated:
        getattr(message, field.name).extend(draw(lists_of(field)))
    else:
        setattr(message, field.name, draw(scalars(field)))


@st.composite
def messages(draw: st.DrawFn, cls: type[Message], depth: int = 3) -> Message:
    message = cls()
    fill(draw, message, depth)
    return message


def settle(message: Message) -> bytes:
    """Bytes that are equal for equal messages, also inside Anys: the order of map entries is normalized."""
    _settle(message)
    return message.SerializeToString(deterministic=True)


def _settle(message: Any) -> None:
    if message.DESCRIPTOR.full_name == "google.protobuf.Any":
        if message.type_url:
            name = message.type_url.rpartition("/")[2]
            inner = GetMessageClass(message.DESCRIPTOR.file.pool.FindMessageTypeByName(name)).FromString(message.value)
            message.value = settle(inner)
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            held = value.values() if field.message_type.fields_by_name["value"].message_type else ()
        else:
            held = value if field.is_repeated else (value,)
        for inner in held:
            _settle(inner)
