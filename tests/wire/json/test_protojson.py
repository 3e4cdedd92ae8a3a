import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.wire.random_messages import POOL, Sink, messages, settle

from dragoman.core.errors import InvalidParams, Violation
from dragoman.wire.json.protojson import Codec, JsonDialect, compile
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as v1

PLAIN = JsonDialect("json_format")
"""A dialect without aliases, which must be equivalent to json_format."""

MESSAGES = [
    GetMessageClass(descriptor)
    for module in (v03, v1)
    for descriptor in module.DESCRIPTOR.message_types_by_name.values()
] + [Sink]


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.DESCRIPTOR.full_name)
def test_every_type_is_equivalent_to_json_format(cls: type[Message]) -> None:
    codec = compile(cls, PLAIN)

    @settings(
        max_examples=200 if cls is Sink else 25,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(messages(cls), st.booleans(), st.booleans())
    def check(message: Message, snake_case: bool, numbers: bool) -> None:
        pool: Any = cls.DESCRIPTOR.file.pool
        theirs = json_format.MessageToDict(message, descriptor_pool=pool)
        assert orjson.loads(codec.encode(message)) == theirs
        spelled = json_format.MessageToDict(
            message, preserving_proto_field_name=snake_case, use_integers_for_enums=numbers, descriptor_pool=pool
        )
        expected = json_format.ParseDict(spelled, cls(), ignore_unknown_fields=True, descriptor_pool=pool)
        parsed = json.loads(json.dumps(spelled))  # json_format returns an OrderedDict for an Any
        assert settle(codec.decode(parsed)) == settle(expected)

    check()


# ---- kinds of fields that A2A does not use


def test_a_field_kind_without_a_codec_is_rejected_at_compile_time() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="group.proto", package="old")
    old = file.message_type.add(name="Old")
    old.nested_type.add(name="Inner")
    old.field.add(name="inner", number=1, label=1, type=10, type_name=".old.Old.Inner")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    with pytest.raises(TypeError, match="no JSON codec"):
        compile(pool.FindMessageTypeByName("old.Old"), JsonDialect("strange"))


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
        ({"oneDouble": "1_0.5"}, "oneDouble", "must be a number"),
        ({"oneDouble": "\u0661.5"}, "oneDouble", "must be a number"),
        ({"oneInt32": "1e-1"}, "oneInt32", "must be an integer"),
        ({"oneInt32": "1e99"}, "oneInt32", "must be an integer"),
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
        ({"oneFloat": 1e39}, "oneFloat", "float of 32 bits"),
        ({"oneDuration": "1"}, "oneDuration", "must be seconds with an s"),
        ({"oneDuration": "1.0000000001s"}, "oneDuration", "must be seconds with an s"),
        ({"oneDuration": "315576000001s"}, "oneDuration", "must be seconds with an s"),
        ({"oneDuration": 1}, "oneDuration", "must be seconds with an s"),
        ({"oneMask": ["title"]}, "oneMask", "must be a string of paths"),
        ({"oneMask": "title,"}, "oneMask", "is not a path"),
        ({"oneInt32Value": 1.5}, "oneInt32Value", "must be an integer"),
        ({"manyBoolValue": [None]}, "manyBoolValue[0]", "must not be null"),
        ({"oneAny": []}, "oneAny", "must be a JSON object"),
        ({"oneAny": {"text": ""}}, "oneAny.@type", "must name a known type"),
        ({"oneAny": {"@type": "x/no.Such"}}, "oneAny.@type", "must name a known type"),
        ({"oneAny": {"@type": "x/google.protobuf.Duration"}}, "oneAny.value", "must be given beside @type"),
        ({"oneAny": {"@type": "x/google.protobuf.Duration", "value": 1}}, "oneAny.value", "must be seconds with an s"),
        ({"oneAny": {"@type": "x/sink.Sink", "oneInt32": ""}}, "oneAny.oneInt32", "must be an integer"),
        ({"pick_text": "a", "pickRaw": ""}, "pickRaw", "cannot stand beside pickText"),
    ],
)
def test_invalid_values_of_every_kind_are_rejected(data: object, field: str, rule: str) -> None:
    with pytest.raises(InvalidParams, match=rule) as caught:
        compile(Sink, PLAIN).decode(data)
    assert caught.value.violations[0] == Violation(field, caught.value.violations[0].description)


def test_map_keys_are_converted_to_their_type() -> None:
    data = {"flagToText": {"true": "a", "false": "b"}, "int32ToText": {"-1": "c"}, "uint64ToText": {"7": "d"}}
    assert compile(Sink, PLAIN).decode(data) == Sink(
        flag_to_text={True: "a", False: "b"}, int32_to_text={-1: "c"}, uint64_to_text={7: "d"}
    )


@pytest.mark.parametrize("value", [2, 2.5, "2.5", "1e3", "NaN", "Infinity", "-Infinity"])
def test_doubles_are_decoded_from_numbers_and_strings(value: object) -> None:
    expected = json_format.ParseDict({"oneDouble": value}, Sink())
    assert compile(Sink, PLAIN).decode({"oneDouble": value}).SerializeToString() == expected.SerializeToString()


@pytest.mark.parametrize(("text", "number"), [("1e3", 1000), ("-1.5E+1", -15), ("100e-2", 1), ("0e99", 0)])
def test_an_integer_in_quotes_may_have_an_exponent(text: str, number: int) -> None:
    # ProtoJSON format guide, "int32": exponent notation is accepted in both quoted and unquoted forms.
    assert compile(Sink, PLAIN).decode({"oneInt32": text, "oneUint64": "1e3"}) == Sink(
        one_int32=number, one_uint64=1000
    )


def test_a_descriptor_without_a_python_module_has_a_codec() -> None:
    descriptor: Descriptor = POOL.FindMessageTypeByName("sink.Sink")
    assert compile(descriptor, PLAIN).encode(Sink(renamed="x")) == b'{"otherName":"x"}'


def test_a_wrapper_is_encoded_as_its_value_and_absent_as_null() -> None:
    codec = compile(Sink, PLAIN)
    message = codec.decode({"oneInt64Value": 0, "oneStringValue": None, "one_BoolValue": False})
    assert message.HasField("one_Int64Value")
    assert not message.HasField("one_StringValue")
    assert codec.to_dict(message) == {"oneInt64Value": "0", "oneBoolValue": False}


def test_a_mask_is_decoded_in_both_spellings_and_encoded_in_one() -> None:
    codec = compile(Sink, PLAIN)
    for text in ("pageCount,author.fullName", "page_count,author.full_name"):
        message = codec.decode({"oneMask": text})
        assert list(message.one_mask.paths) == ["page_count", "author.full_name"]
        assert codec.to_dict(message) == {"oneMask": "pageCount,author.fullName"}
    assert codec.to_dict(codec.decode({"oneMask": ""})) == {"oneMask": ""}


@pytest.mark.parametrize(
    "fields",
    [
        {"one_mask": {"paths": ["Title"]}},
        {"one_mask": {"paths": ["a__b"]}},
        {"one_duration": {"seconds": 1, "nanos": -1}},
        {"one_duration": {"seconds": 315576000001}},
        {"one_any": {"type_url": "x/no.Such"}},
        {"one_any": {"value": b"x"}},
        {"one_any": {"type_url": "x/sink.Sink", "value": b"\xff"}},
    ],
)
def test_values_without_a_json_form_are_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cannot be written|Duration is not valid"):
        compile(Sink, PLAIN).encode(Sink(**fields))


@pytest.mark.parametrize("text", ["1e-7", "0.1", "16777217", "3.4028234e38", "1e-45", "-0"])
def test_a_float_is_written_with_no_more_digits_than_it_has(text: str) -> None:
    message = Sink(one_float=float(text))
    assert json.dumps(compile(Sink, PLAIN).to_dict(message)) == json.dumps(json_format.MessageToDict(message))


def test_an_any_resolves_types_in_its_own_pool() -> None:
    """The default pool has no sink.Sink, so its Any does not resolve that type."""
    codec = compile(any_pb2.Any, PLAIN)
    with pytest.raises(InvalidParams, match="must name a known type"):
        codec.decode({"@type": "x/sink.Sink"})
    assert codec.to_dict(codec.decode({"@type": "x/google.protobuf.Any", "value": {}})) == {
        "@type": "x/google.protobuf.Any",
        "value": {},
    }


@pytest.mark.parametrize("text", ["3.4028235e38", "-3.4028235e38", "3.4028234e38"])
def test_the_largest_floats_round_trip(text: str) -> None:
    codec = compile(Sink, PLAIN)
    message = Sink(one_float=float(text), one_FloatValue={"value": float(text)})
    assert codec.decode(orjson.loads(codec.encode(message))) == message


def test_threads_may_use_a_codec_for_the_first_time_together() -> None:
    task = v1.Task(id="t", history=[v1.Message(message_id="m", parts=[v1.Part(text="x")])])
    start = threading.Barrier(8)

    def round_trip(codec: Codec[v1.Task]) -> bool:
        start.wait()
        return codec.decode(codec.to_dict(task)) == task

    for _ in range(20):
        codec = Codec(v1.Task, JsonDialect("fresh"))
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(round_trip, [codec] * 8))
