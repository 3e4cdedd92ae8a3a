from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import struct_pb2

from dragoman.core.errors import InvalidParams, PayloadTooLarge
from dragoman.core.limits import message_limits
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def nested(levels: int, wrap: Any) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda value: {"a": value}, lambda value: [value]])
def test_24_levels_pass_and_25_do_not(wrap: Any) -> None:
    for levels, passes in ((24, True), (25, False)):
        part = pb.Part()
        part.data.list_value.extend([])
        part.metadata.update({"x": nested(levels - 1, wrap)})
        if passes:
            message_limits.check_value("metadata", part.metadata)
        else:
            with pytest.raises(InvalidParams, match="metadata: nests more than 24 levels"):
                message_limits.check_value("metadata", part.metadata)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_cannot_express_is_rejected(number: float) -> None:
    value = struct_pb2.Value(number_value=number)
    with pytest.raises(InvalidParams, match="NaN or infinity"):
        message_limits.check_value("data", value)
    struct = struct_pb2.Struct()
    struct["deep"] = [{"n": number}]
    with pytest.raises(InvalidParams, match="NaN or infinity"):
        message_limits.check_value("data", struct)


def test_the_error_for_an_oversized_message_names_the_limit() -> None:
    message_limits.check_size(10, 10)
    with pytest.raises(PayloadTooLarge, match="11 bytes decoded; at most 10"):
        message_limits.check_size(11, 10)
