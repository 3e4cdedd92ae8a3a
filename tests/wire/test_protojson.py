import json
import math
from typing import Any

import orjson
import pytest
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    json_format,
    struct_pb2,
    timestamp_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.core.errors import InvalidParams, Violation
from dragoman.wire.protojson import JsonDialect, compile
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as v1

PLAIN = JsonDialect("json_format")
"""No spelling of our own: what is left must mean what json_format means."""

# ---- a message with what the A2A packages do not use

F = descriptor_pb2.FieldDescriptorProto
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
    "kind": F.TYPE_ENUM,
    "null": F.TYPE_ENUM,
    "child": F.TYPE_MESSAGE,
    "value": F.TYPE_MESSAGE,
    "struct": F.TYPE_MESSAGE,
    "list": F.TYPE_MESSAGE,
    "time": F.TYPE_MESSAGE,
    "empty": F.TYPE_MESSAGE,
}
TYPES = {
    "kind": ".sink.Kind",
    "null": ".google.protobuf.NullValue",
    "child": ".sink.Sink",
    "value": ".google.protobuf.Value",
    "struct": ".google.protobuf.Struct",
    "list": ".google.protobuf.ListValue",
    "time": ".google.protobuf.Timestamp",
    "empty": ".google.protobuf.Empty",
}


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
        entry = sink.nested_type.add(name=f"{key.title()}To{like.title()}Entry", options={"map_entry": True})
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
    for like in ("text", "raw", "flag", "int32", "kind", "child", "value"):
        add(f"pick_{like}", like, oneof_index=0)
    for index, like in enumerate(("text", "int32", "flag", "double", "kind"), start=1):
        sink.oneof_decl.add(name=f"_maybe_{like}")
        add(f"maybe_{like}", like, oneof_index=index, proto3_optional=True)
    for key in ("text", "int32", "uint64", "flag"):
        add_map(key, "text")
    for like in ("raw", "int64", "kind", "child", "value", "struct", "time", "double"):
        add_map("text", like)
    add("renamed", "text", json_name="otherName")

    strange = file.message_type.add(name="Strange")
    strange.field.add(
        name="any", number=1, type=F.TYPE_MESSAGE, type_name=".google.protobuf.Any", label=F.LABEL_OPTIONAL
    )
    narrow = file.message_type.add(name="Narrow")
    narrow.field.add(name="float", number=1, type=F.TYPE_FLOAT, label=F.LABEL_OPTIONAL)

    pool = descriptor_pool.DescriptorPool()
    for module in (struct_pb2, timestamp_pb2, empty_pb2, any_pb2, duration_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        file.dependency.append(module.DESCRIPTOR.name)
    pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL = build_sink()
Sink: Any = GetMessageClass(POOL.FindMessageTypeByName("sink.Sink"))

MESSAGES = [
    GetMessageClass(descriptor)
    for module in (v03, v1)
    for descriptor in module.DESCRIPTOR.message_types_by_name.values()
] + [Sink]

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
    assert field.enum_type is not None
    return st.sampled_from(sorted(field.enum_type.values_by_number))


def fill(draw: st.DrawFn, message: Any, depth: int) -> None:
    descriptor = message.DESCRIPTOR
    match descriptor.full_name:
        case "google.protobuf.Timestamp":
            message.seconds = draw(st.integers(-62135596800, 253402300799))
            message.nanos = draw(st.sampled_from([0, 5_000_000, 7_000, 1, 999_999_999]))
        case "google.protobuf.Value":
            fill_value(message, draw(JSON))
        case "google.protobuf.Struct":
            message.SetInParent()
            for key, item in draw(st.dictionaries(st.text(max_size=3), JSON, max_size=2)).items():
                fill_value(message.fields[key], item)
        case "google.protobuf.ListValue":
            for item in draw(st.lists(JSON, max_size=2)):
                fill_value(message.values.add(), item)
        case _:
            names = draw(st.sets(st.sampled_from([*descriptor.fields_by_name, ""]), max_size=12))
            for name in sorted(names - {""}):
                fill_field(draw, message, descriptor.fields_by_name[name], depth)


def fill_field(draw: st.DrawFn, message: Any, field: FieldDescriptor, depth: int) -> None:
    count = draw(st.integers(0, 2)) if field.is_repeated else 1
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
        getattr(message, field.name).extend(draw(st.lists(scalars(field), max_size=2)))
    else:
        setattr(message, field.name, draw(scalars(field)))


@st.composite
def messages(draw: st.DrawFn, cls: type[Message]) -> Message:
    message = cls()
    fill(draw, message, 3)
    return message


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.DESCRIPTOR.full_name)
def test_every_type_means_what_json_format_means(cls: type[Message]) -> None:
    codec = compile(cls, PLAIN)

    @settings(
        max_examples=400 if cls is Sink else 25,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(messages(cls), st.booleans(), st.booleans())
    def check(message: Message, snake_case: bool, numbers: bool) -> None:
        theirs = json_format.MessageToDict(message)
        assert orjson.loads(codec.encode(message)) == theirs
        spelled = json_format.MessageToDict(
            message, preserving_proto_field_name=snake_case, use_integers_for_enums=numbers
        )
        expected = json_format.ParseDict(spelled, cls(), ignore_unknown_fields=True)
        assert codec.decode(spelled).SerializeToString(deterministic=True) == expected.SerializeToString(
            deterministic=True
        )

    check()


# ---- kinds of fields that A2A does not use


@pytest.mark.parametrize("name", ["Strange", "Narrow"])
def test_a_kind_of_field_without_a_codec_is_refused_at_compile_time(name: str) -> None:
    with pytest.raises(TypeError, match="no JSON codec"):
        compile(POOL.FindMessageTypeByName(f"sink.{name}"), JsonDialect("strange"))


@pytest.mark.parametrize("number", [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf])
def test_a_plain_double_is_written_as_json_format_writes_it(number: float) -> None:
    message = Sink(one_double=number, many_double=[number], maybe_double=number)
    assert json.dumps(compile(Sink, PLAIN).to_dict(message)) == json.dumps(json_format.MessageToDict(message))


@pytest.mark.parametrize(
    ("data", "field", "rule"),
    [
        ({"oneInt32": 2**31}, "oneInt32", "from -2147483648 to 2147483647"),
        ({"oneInt32": 1.5}, "oneInt32", "must be an integer"),
        ({"oneInt32": "1_0"}, "oneInt32", "must be an integer"),
        ({"oneInt32": True}, "oneInt32", "must be an integer"),
        ({"oneUint32": -1}, "oneUint32", "from 0 to 4294967295"),
        ({"oneUint64": str(2**64)}, "oneUint64", "from 0 to 18446744073709551615"),
        ({"oneFlag": "true"}, "oneFlag", "must be true or false"),
        ({"oneDouble": "fast"}, "oneDouble", "must be a number"),
        ({"oneDouble": "nan"}, "oneDouble", "must be a number"),
        ({"oneDouble": True}, "oneDouble", "must be a number"),
        ({"oneDouble": math.inf}, "oneDouble", "must be a number"),
        ({"manyInt32": 1}, "manyInt32", "must be a JSON array"),
        ({"manyInt32": [1, None]}, "manyInt32[1]", "must be an integer"),
        ({"textToText": []}, "textToText", "must be a JSON object"),
        ({"textToText": {"k": 1}}, "textToText.k", "must be a string"),
        ({"textToText": {"k": None}}, "textToText.k", "must be a string"),
        ({"flagToText": {"yes": "x"}}, "flagToText.yes", '"true" or "false"'),
        ({"int32ToText": {"x": "x"}}, "int32ToText.x", "must be an integer"),
        ({"textToChild": []}, "textToChild", "must be a JSON object"),
        ({"textToChild": {"k": None}}, "textToChild.k", "must not be null"),
        ({"textToChild": {"k": {"oneInt32": ""}}}, "textToChild.k.oneInt32", "must be an integer"),
        ({"oneList": {}}, "oneList", "must be a JSON array"),
        ({"oneValue": object()}, "oneValue", "must be a JSON value"),
        ({"oneEmpty": 1}, "oneEmpty", "must be a JSON object"),
        ({"pick_text": "a", "pickRaw": ""}, "pickRaw", "cannot stand beside pickText"),
    ],
)
def test_bad_values_of_every_kind_are_refused(data: object, field: str, rule: str) -> None:
    with pytest.raises(InvalidParams, match=rule) as caught:
        compile(Sink, PLAIN).decode(data)
    assert caught.value.violations[0] == Violation(field, caught.value.violations[0].description)


def test_keys_of_maps_are_read_in_their_own_type() -> None:
    data = {"flagToText": {"true": "a", "false": "b"}, "int32ToText": {"-1": "c"}, "uint64ToText": {"7": "d"}}
    assert compile(Sink, PLAIN).decode(data) == Sink(
        flag_to_text={True: "a", False: "b"}, int32_to_text={-1: "c"}, uint64_to_text={7: "d"}
    )


@pytest.mark.parametrize("value", [2, 2.5, "2.5", "1e3", "NaN", "Infinity", "-Infinity"])
def test_doubles_are_read_from_numbers_and_strings(value: object) -> None:
    expected = json_format.ParseDict({"oneDouble": value}, Sink())
    assert compile(Sink, PLAIN).decode({"oneDouble": value}).SerializeToString() == expected.SerializeToString()


def test_a_descriptor_without_a_python_module_has_a_codec_too() -> None:
    descriptor: Descriptor = POOL.FindMessageTypeByName("sink.Sink")
    assert compile(descriptor, PLAIN).encode(Sink(renamed="x")) == b'{"otherName":"x"}'
