"""JSON-RPC envelopes: parsing of requests, and encoding of responses."""

from __future__ import annotations

import orjson
import pytest

from dragoman.core.errors import InvalidParams, InvalidRequest
from dragoman.wire import jsonrpc
from dragoman.wire.jsonrpc import JsonRpcRequest


@pytest.mark.parametrize("id", ["1", 1, None])
def test_a_request_is_parsed_with_the_type_of_its_id(id: str | int | None) -> None:
    body = {"jsonrpc": "2.0", "id": id, "method": "GetTask", "params": {"id": "t"}}
    assert jsonrpc.parse_request(body) == JsonRpcRequest(id, "GetTask", {"id": "t"})


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ([], "a batch is not supported"),
        ("x", "must be a JSON object"),
        ({"method": "GetTask"}, "jsonrpc: must be"),
        ({"jsonrpc": "2.0", "method": "GetTask", "id": True}, "id: must be"),
        ({"jsonrpc": "2.0", "method": ""}, "method: must be"),
    ],
)
def test_an_invalid_request_is_rejected_with_the_member(body: object, rule: str) -> None:
    with pytest.raises(InvalidRequest, match=rule):
        jsonrpc.parse_request(body)


def test_params_must_be_an_object() -> None:
    with pytest.raises(InvalidParams, match="params: must be a JSON object"):
        jsonrpc.parse_request({"jsonrpc": "2.0", "method": "GetTask", "params": []})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"id": 7, "method": 3, "params": "x"}, JsonRpcRequest(7, "", None)),
        ({"id": [], "method": "GetTask"}, JsonRpcRequest(None, "GetTask", None)),
        (None, JsonRpcRequest(None, "", None)),
    ],
)
def test_valid_members_of_an_invalid_request_are_kept(body: object, expected: JsonRpcRequest) -> None:
    assert jsonrpc.partial_request(body) == expected


def test_responses_repeat_the_id() -> None:
    assert orjson.loads(jsonrpc.encode_result("a", b'{"x":1}')) == {"jsonrpc": "2.0", "id": "a", "result": {"x": 1}}
    assert orjson.loads(jsonrpc.encode_error(1, {"code": -1})) == {"jsonrpc": "2.0", "id": 1, "error": {"code": -1}}
