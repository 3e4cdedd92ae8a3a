"""Errors of calls: their classes, by reason, code and status, and their texts."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.calling.errors import (
    Busy,
    CallRefused,
    ClientError,
    Conflict,
    InactivityTimeout,
    Invalid,
    NotAllowed,
    NotFound,
    NotSupported,
    ResponseErrors,
    ServerUnavailable,
    is_connect_failure,
    is_resolution_failure,
)
from dragoman.wire.remote_errors import RemoteError

ERRORS = ResponseErrors("http://server")


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        ("NOT_FOUND", "TASK_NOT_FOUND", NotFound),
        ("INTERNAL", "TASK_NOT_FOUND", NotFound),
        ("NOT_FOUND", "", NotFound),
        ("PERMISSION_DENIED", "", NotAllowed),
        ("INVALID_ARGUMENT", "", Invalid),
        ("UNIMPLEMENTED", "", NotSupported),
        ("FAILED_PRECONDITION", "", Conflict),
        ("RESOURCE_EXHAUSTED", "RATE_LIMITED", Busy),
        ("UNAVAILABLE", "UNAVAILABLE", Busy),
        ("UNAVAILABLE", "", ServerUnavailable),
        ("DATA_LOSS", "", CallRefused),
    ],
)
def test_the_reason_decides_on_the_class_before_the_code(code: str, reason: str, expected: type[ClientError]) -> None:
    error = ClientError.from_remote_error(RemoteError(code, "text", reason))
    assert type(error) is expected
    assert (error.code, error.reason, error.message) == (code, reason, "text")
    assert error.remote_error == RemoteError(code, "text", reason)


def test_a_rejection_is_never_an_unavailable_server() -> None:
    assert type(CallRefused.from_answer(RemoteError("UNAVAILABLE", "overloaded"))) is CallRefused
    assert type(CallRefused.from_answer(RemoteError("NOT_FOUND", "no"))) is NotFound


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_of_a_busy_server_is_parsed(status: int) -> None:
    error = ClientError.from_response(status, {"Retry-After": "7"}, None)
    assert isinstance(error, Busy)
    assert error.retry_after == 7


@pytest.mark.parametrize(("status", "body"), [(401, {}), (403, {"error": {"message": "no key"}})])
def test_http_statuses_of_authentication_precede_jsonrpc_errors(status: int, body: Any) -> None:
    assert isinstance(ERRORS.from_jsonrpc(status, {}, body), NotAllowed)


def test_a_redirect_and_a_body_without_json_name_the_server() -> None:
    assert "http://server: responded with a redirect (302) to /x" in str(ERRORS.from_redirect(302, {"location": "/x"}))
    assert str(ERRORS.not_json(200, b"<html>\nmore")).endswith("http://server: the response (200) is not JSON: <html>")


def test_an_unavailable_server_may_have_received_the_call_unless_stated() -> None:
    assert ServerUnavailable.for_address("there", "broke off").may_have_arrived
    assert not ServerUnavailable.for_address("there", "refused", may_have_arrived=False).may_have_arrived
    assert ServerUnavailable.for_reason("lost").unreachable


def test_connect_failures_are_recognized_by_grpcs_messages() -> None:
    assert is_connect_failure("failed to connect to all addresses; last error: x")
    assert not is_connect_failure("Socket closed")
    unresolved = "errors resolving there: [field:hostname lookup error:address lookup failed for there: not found]"
    assert (is_connect_failure(unresolved), is_resolution_failure(unresolved)) == (True, True)
    assert not is_resolution_failure("failed to connect to all addresses; last error: x")


def test_an_inactivity_timeout_names_the_task_and_the_seconds() -> None:
    error = InactivityTimeout("t1", 2.5)
    assert error.task_id == "t1"
    assert error.message == "task t1 produced no event for 2.5 s"
