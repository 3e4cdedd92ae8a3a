"""Error responses of servers of every version."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyProto
from google.rpc import error_details_pb2, status_pb2

from dragoman.wire import remote_errors

AIP_193 = {"code": 404, "status": "NOT_FOUND", "message": "m"}


@pytest.mark.parametrize(
    ("status", "value", "code", "reason"),
    [
        (
            404,
            {"error": {"code": 404, "status": "NOT_FOUND", "message": "m", "details": [{"reason": "TASK_NOT_FOUND"}]}},
            "NOT_FOUND",
            "TASK_NOT_FOUND",
        ),
        (404, {"code": -32001, "message": "m"}, "NOT_FOUND", "TASK_NOT_FOUND"),
        (404, {"type": "TaskNotFoundError", "message": "m"}, "NOT_FOUND", "TASK_NOT_FOUND"),
        (404, {"message": "m"}, "NOT_FOUND", ""),
        (409, {"error": {"code": -32002, "message": "m"}}, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
        (401, {"detail": "x", "message": "m"}, "UNAUTHENTICATED", ""),
        (418, {"message": "m"}, "INVALID_ARGUMENT", ""),
        (599, {"message": "m"}, "INTERNAL", ""),
    ],
)
def test_a_rest_error_body_is_parsed(status: int, value: Any, code: str, reason: str) -> None:
    error = remote_errors.parse_rest_error(status, value)
    assert (error.code, error.reason, error.message) == (code, reason, "m")


@pytest.mark.parametrize("value", [None, [], "x", {"error": "x"}])
def test_an_empty_body_is_classified_by_its_status(value: Any) -> None:
    assert remote_errors.parse_rest_error(500, value).message == "status 500, and no reason given"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"code": -32601, "message": "m"}, "METHOD_NOT_FOUND"),
        ({"code": -1, "message": "m", "data": [{"reason": "OURS"}]}, "OURS"),
        ({"code": -1, "message": "m", "data": {"details": [{"reason": "OURS"}]}}, "OURS"),
        ({"code": -1, "message": "m", "data": {"reason": "OURS"}}, ""),
        ({"code": [], "message": "m", "data": [{"fieldViolations": "x"}], "details": 3}, ""),
    ],
)
def test_a_json_rpc_error_is_parsed(error: Any, reason: str) -> None:
    assert remote_errors.parse_json_error(error).reason == reason


def test_a_body_without_an_error_object_is_classified() -> None:
    assert remote_errors.parse_json_error("x").message == "no reason given"


@pytest.mark.parametrize(
    ("reported", "is_busy"),
    [
        (
            remote_errors.parse_grpc_status("RESOURCE_EXHAUSTED", "SERVER: Received message larger than max (9 vs. 4)"),
            False,
        ),
        (
            remote_errors.parse_grpc_status("RESOURCE_EXHAUSTED", "grpc: received message larger than max (9 vs. 4)"),
            False,
        ),
        (remote_errors.parse_grpc_status("RESOURCE_EXHAUSTED", "gRPC message exceeds maximum size 4: 9"), False),
        (remote_errors.parse_grpc_status("RESOURCE_EXHAUSTED", "too many calls"), True),
        (remote_errors.parse_rest_error(413, None), False),
        (remote_errors.parse_rest_error(429, None), True),
    ],
)
def test_an_oversized_message_is_not_reported_as_busy(reported: remote_errors.RemoteError, *, is_busy: bool) -> None:
    assert reported.is_busy is is_busy
    assert (reported.reason == remote_errors.PAYLOAD_TOO_LARGE_REASON) is not is_busy


def test_a_grpc_status_with_details_is_parsed() -> None:
    status = status_pb2.Status(code=5)
    for detail in (
        error_details_pb2.ErrorInfo(reason="TASK_NOT_FOUND", metadata={"taskId": "t"}),
        error_details_pb2.BadRequest(field_violations=[{"field": "id", "description": "is required"}]),
    ):
        holder = AnyProto()
        holder.Pack(detail)
        status.details.append(holder)
    error = remote_errors.parse_grpc_status("NOT_FOUND", "m", status.SerializeToString())
    assert (error.reason, dict(error.metadata)) == ("TASK_NOT_FOUND", {"taskId": "t"})
    assert (error.violations[0].field, error.violations[0].description) == ("id", "is required")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("TaskNotFoundError: no such task", "TASK_NOT_FOUND"),
        ("UnsupportedOperationError: ", "UNSUPPORTED_OPERATION"),
        ("no such task: TaskNotFoundError", ""),
        ("", ""),
    ],
)
def test_the_class_name_in_a_0_3_grpc_text_gives_the_reason(text: str, reason: str) -> None:
    assert remote_errors.parse_grpc_status("NOT_FOUND", text, b"\xff damaged").reason == reason
