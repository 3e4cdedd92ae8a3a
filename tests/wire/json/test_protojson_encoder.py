import math
from typing import cast

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor

from dragoman.wire.dialects.json_proto import PROTOJSON_V03, PROTOJSON_V1
from dragoman.wire.json.protojson import JsonDialect, compile
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as v1


def test_unset_fields_are_omitted_and_set_optionals_kept() -> None:
    assert compile(v1.GetTaskRequest, PROTOJSON_V1).to_dict(v1.GetTaskRequest(id="t", history_length=0)) == {
        "id": "t",
        "historyLength": 0,
    }
    assert compile(v1.Task, PROTOJSON_V1).encode(v1.Task()) == b"{}"


def test_always_emitted_fields_are_written_with_their_defaults() -> None:
    assert compile(v1.ListTasksResponse, PROTOJSON_V1).to_dict(v1.ListTasksResponse()) == {
        "tasks": [],
        "nextPageToken": "",
        "pageSize": 0,
        "totalSize": 0,
    }
    assert compile(v03.ListTasksResponse, PROTOJSON_V03).to_dict(v03.ListTasksResponse()) == {
        "tasks": [],
        "nextPageToken": "",
        "totalSize": 0,
    }


@pytest.mark.parametrize(
    ("field", "reason"), [("nothing", "has no field nothing"), ("history_length", "cannot be forced")]
)
def test_a_field_that_cannot_always_be_emitted_is_rejected_at_compile_time(field: str, reason: str) -> None:
    dialect = JsonDialect("wrong", always_emitted={"lf.a2a.v1.GetTaskRequest": {field}})
    with pytest.raises(TypeError, match=reason):
        compile(v1.GetTaskRequest, dialect)


def test_an_enum_number_of_a_later_version_is_written_as_a_number() -> None:
    assert compile(v1.TaskStatus, PROTOJSON_V1).to_dict(v1.TaskStatus(state=77)) == {"state": 77}  # type: ignore[arg-type]


def test_integers_in_data_are_written_without_a_fraction() -> None:
    part = v1.Part()
    part.data.list_value.extend([1, 1.5, -0.0, 2.0**53, 1e300])
    text = compile(v1.Part, PROTOJSON_V1).encode(part).replace(b"e+", b"e")  # newer versions of orjson write the plus
    assert text == b'{"data":[1,1.5,-0.0,9007199254740992,1e300]}'


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_in_data_are_rejected_as_in_json_format(number: float) -> None:
    part = v1.Part()
    part.data.number_value = number
    with pytest.raises(ValueError, match="NaN or infinite"):
        compile(v1.Part, PROTOJSON_V1).encode(part)
    with pytest.raises(json_format.SerializeToJsonError):
        json_format.MessageToJson(part)


def test_a_codec_is_compiled_once_per_class_and_dialect() -> None:
    assert compile(v1.Task, PROTOJSON_V1) is compile(cast(Descriptor, v1.Task.DESCRIPTOR), PROTOJSON_V1)
    assert compile(v1.Task, PROTOJSON_V1) is not compile(v1.Task, JsonDialect("another"))
