"""Parsers of JSON: request bodies, JSON-RPC requests of every dialect, and responses to our client."""

from __future__ import annotations

import json
from typing import Any, Final

import orjson
from google.protobuf.message import Message
from tests.fuzz.parser import Parser

from dragoman.bindings import method_table
from dragoman.calling.errors import ClientError
from dragoman.core.errors import A2AError
from dragoman.core.limits import message_checks, message_limits
from dragoman.wire.client_operations import JSONRPC_OPERATIONS
from dragoman.wire.dialects import Dialect, json_mixed, json_proto, json_v01, json_v03
from dragoman.wire.json import protojson
from dragoman.wire.json import request as json_request
from dragoman.wire.remote_errors import parse_json_error
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_TASK: Final = "01a1fb2a-bd29-7b48-8221-ff7b0dc19d30"


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    assert len(dict(pairs)) == len(pairs), "a duplicate key was accepted"
    return dict(pairs)


def _integer(digits: str) -> int:
    assert abs(int(digits[:40])) <= json_request.MAX_JSON_INTEGER, (
        "an integer that is not exact as a double was accepted"
    )
    return int(digits)


def _depth(value: object) -> int:
    deepest, level = 0, [value]
    while level:
        deepest += 1
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
            if isinstance(child, dict | list)
        ]
    return deepest


def read_text(data: bytes) -> None:
    """Accepted JSON is equivalent to the standard library's, without duplicate keys and large integers."""
    try:
        value = json_request.loads(data)
    except A2AError:
        return
    assert json.loads(data, object_pairs_hook=_pairs, parse_int=_integer) == value
    assert _depth(value) <= json_request.MAX_JSON_DEPTH + 1
    assert json_request.loads(data, lossy_numbers=True) == value


def check(request: Any) -> None:
    """The checks of the service before it stores a request. Raises A2AError."""
    if isinstance(request, pb.SendMessageRequest):
        message_checks.check_message(request, ("*/*",))
    elif isinstance(request, pb.CancelTaskRequest):
        message_limits.check_value("metadata", request.metadata)


def _calls(dialect: Dialect, codec: protojson.JsonDialect) -> Parser:
    rows = {row.name: row for row in method_table.JSONRPC_ROWS if row.dialect is dialect}

    def read(data: bytes) -> None:
        try:
            call = json_request.parse_request(json_request.loads(data))
            if call.method not in rows:
                return
            row = rows[call.method]
            value = row.read(call.params)
            check(value)
        except A2AError:
            return
        assert isinstance(value, row.op.request)
        assert type(value).FromString(value.SerializeToString()) == value
        values = protojson.compile(type(value), codec).to_dict(value)
        orjson.dumps(values)
        if dialect is Dialect.V1:
            assert protojson.compile(type(value), codec).decode(values) == value

    seeds = [_request(row.name, _params(row, codec)) for row in rows.values()]
    words = ("file", "data", "raw", "text", "kind", "type", "metadata", "parts", "role", "blocking", "historyLength")
    return Parser(read, tuple(seeds), (*words, *sorted(rows)))


def _request(method: str, params: object) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def _params(row: method_table.JsonRpcRow, codec: protojson.JsonDialect) -> Any:
    part = pb.Part(text="hi", metadata={"k": [1.5, None, True, {"x": "y"}]})
    message = pb.Message(
        message_id="m", context_id="c", role=pb.ROLE_USER, parts=[part, pb.Part(raw=b"abc", media_type="a/b")]
    )
    filled: dict[Any, Message] = {
        method_table.SEND_MESSAGE: pb.SendMessageRequest(message=message, configuration={"history_length": 3}),
        method_table.GET_TASK: pb.GetTaskRequest(id=_TASK, history_length=2),
        method_table.LIST_TASKS: pb.ListTasksRequest(context_id="c", page_size=3, status=pb.TASK_STATE_WORKING),
        method_table.CREATE_PUSH_CONFIG: pb.TaskPushNotificationConfig(
            task_id=_TASK, url="https://a.example/x", token="t"
        ),
        method_table.CANCEL_TASK: pb.CancelTaskRequest(id=_TASK, metadata={"why": "so"}),
    }
    filled[method_table.SET_PUSH_CONFIG] = filled[method_table.CREATE_PUSH_CONFIG]
    filled[method_table.STREAM_MESSAGE] = filled[method_table.SEND_MESSAGE]
    request = filled.get(row.op) or row.op.request(
        **({"id": _TASK} if "id" in row.op.request.DESCRIPTOR.fields_by_name else {})
    )
    written = protojson.compile(row.op.request, codec).to_dict(request)
    return {"id": _TASK, **written} if row.names_tasks else written


def read_answer(data: bytes) -> None:
    """A server's response to our client. Any error object becomes a ClientError."""
    try:
        value = json_request.loads(data)
    except A2AError:
        return
    if not isinstance(value, dict):
        return
    if "error" in value:
        str(ClientError.from_remote_error(parse_json_error(value["error"])))
    for operations in JSONRPC_OPERATIONS.values():
        for client_operation in operations.values():
            try:
                client_operation.decode_response(value.get("result"))
            except A2AError:
                continue


_DETAILS: Final = {"@type": "t", "reason": "R", "metadata": {"a": "b"}, "fieldViolations": [{"field": "a.b"}]}
_ANSWERS: Final = (
    {"result": {"task": {"id": _TASK, "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}},
    {"result": {"kind": "task", "id": _TASK, "contextId": "c", "status": {"state": "working"}, "artifacts": []}},
    {"result": {"id": _TASK, "status": {"state": "completed"}, "artifacts": [{"index": 0, "parts": []}]}},
    {"result": {"kind": "status-update", "taskId": _TASK, "final": True, "status": {"state": "failed"}}},
    {"error": {"code": -32001, "message": "no", "data": [_DETAILS]}},
    {"error": {"code": [], "data": [{"reason": [], "metadata": 1, "fieldViolations": 1}, {"fieldViolations": [1]}]}},
    {"error": {"code": 404, "message": "no", "status": "NOT_FOUND", "details": [_DETAILS]}},
)

PARSERS: Final = {
    "json": Parser(
        read_text,
        (
            b'{"a": [1, -2.5e3, "x\\u0041\\n", true, null, {"b": {}}]}',
            b'{"a":1,"\\u0061":2}',
            b"[9007199254740993, 18446744073709551616]",
        ),
        ("\\u00", "e+1", "-0", "[[[["),
    ),
    "json-1.0": _calls(Dialect.V1, json_proto.PROTOJSON_V1),
    "json-0.3": _calls(Dialect.V03, json_v03.JSON_V03),
    "json-0.1": _calls(Dialect.V01, json_v01.JSON_V01),
    "json-fasta2a": _calls(Dialect.FASTA2A, json_mixed.JSON_FASTA2A),
    "json-rust": _calls(Dialect.RUST, json_mixed.JSON_RUST),
    "answers": Parser(read_answer, tuple(orjson.dumps(one) for one in _ANSWERS), ("details", "data", "reason")),
}
