"""Errors in each dialect over gRPC, REST and JSON-RPC."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2

from dragoman.core import errors as core
from dragoman.core.errors import A2AError, InvalidParams, Violation
from dragoman.wire import errors
from dragoman.wire.dialects import Dialect
from dragoman.wire.errors import ErrorCodes, ErrorTable, MethodNotAllowed, RpcCode
from dragoman.wire.remote_errors import parse_json_error

V1, V03, GOOGLE = Dialect.V1, Dialect.V03, Dialect.GOOGLE

EVERY: list[type[A2AError]] = [
    kind
    for kind in vars(core).values()
    if isinstance(kind, type) and issubclass(kind, A2AError) and kind is not A2AError
]


def details(status_bin: bytes) -> tuple[error_details_pb2.ErrorInfo, list[tuple[str, str]]]:
    """The ErrorInfo and the field violations of a serialized Status."""
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status_pb2.Status.FromString(status_bin).details:
        assert detail.Unpack(info) or detail.Unpack(bad)
    return info, [(violation.field, violation.description) for violation in bad.field_violations]


def test_violations_use_the_terms_of_the_dialect() -> None:
    context = InvalidParams.field("message.contextId", "is not the context of message.taskId; leave it out")
    part = InvalidParams.field("message.parts[0]", "must have exactly one of text, raw, url, data")
    _, bad, localized = errors.jsonrpc_error(context, Dialect.V01)["data"]["details"]
    assert localized["message"] == "sessionId: is not the session of the task; leave it out"
    assert bad["fieldViolations"][0]["field"] == "sessionId"
    assert errors.jsonrpc_error(context, V03)["data"]["details"][-1]["message"] == context.message
    rule = "must have exactly one of text, file, data"
    for dialect, field in ((V03, "request.content[0]"), (GOOGLE, "message.content[0]")):
        text = f"message.content[0]: {rule}"
        assert json.loads(errors.rest_error(part, dialect).body)["error"]["message"] == text
        assert errors.grpc_status(part, dialect).details.endswith(f"{field}: {rule}")
    localized = errors.jsonrpc_error(part, V03)["data"]["details"][-1]["message"]
    assert localized == f"message.parts[0]: {rule}"
    assert errors.jsonrpc_error(part, V1)["message"] == part.message


LITERALS = {
    core.ParseError: (-32700, "Invalid JSON payload"),
    core.InvalidRequest: (-32600, "Request payload validation error"),
    core.MethodNotFound: (-32601, "Method not found"),
    core.InvalidParams: (-32602, "Invalid parameters"),
    core.AgentNotFound: (-32602, "Invalid parameters"),
    core.TaskNotCancelable: (-32002, "Task not cancelable"),
    core.PushNotificationNotSupported: (-32003, "Push notification not supported"),
    core.UnsupportedOperation: (-32004, "This operation is not supported"),
    core.ContentTypeNotSupported: (-32005, "Incompatible content types"),
    core.InvalidAgentResponse: (-32006, "Invalid agent response"),
    core.InternalError: (-32603, "Internal error"),
}


@pytest.mark.parametrize("error_class", LITERALS)
@pytest.mark.parametrize("dialect", [Dialect.V01, V03, Dialect.FASTA2A])
def test_before_1_0_jsonrpc_texts_are_literal_and_data_says_the_rest(
    error_class: type[A2AError], dialect: Dialect
) -> None:
    error = errors.jsonrpc_error(error_class("what happened, and where"), dialect)
    number, text = LITERALS[error_class]
    if dialect is Dialect.V01 and number == -32006:  # 0.1 has no such number
        number, text = LITERALS[core.InternalError]
    assert (error["code"], error["message"]) == (number, text)
    assert error["data"]["details"][-1] == {
        "@type": "type.googleapis.com/google.rpc.LocalizedMessage",
        "locale": "en-US",
        "message": "what happened, and where",
    }
    assert parse_json_error(error).message == "what happened, and where"
    listed = errors.jsonrpc_error(error_class("what happened, and where"), dialect, names_version=True)
    assert listed["data"] == error["data"]["details"]
    assert errors.jsonrpc_error(error_class(text), dialect).get("data") is None
    assert errors.jsonrpc_error(error_class("what happened, and where"), V1)["message"] == "what happened, and where"


def test_streams_of_0_1_have_internal_errors_only() -> None:
    """fasta2a 0.2: SendTaskStreamingResponse = JSONRPCResponse[..., InternalError]."""
    for error in (
        core.TaskEnded(),
        core.InvalidParams("x: must be y"),
        core.TaskNotFound(),
        core.VersionNotSupported(),
    ):
        found = errors.jsonrpc_error(error, Dialect.V01, in_stream=True)
        assert (found["code"], found["message"]) == (-32603, "Internal error")
        assert parse_json_error(found).message == error.message
    assert errors.jsonrpc_error(core.TaskEnded(), V03, in_stream=True)["code"] == -32602


# The table -----------------------------------------------------------------------------------------------------

ROWS: list[tuple[type[A2AError], Dialect, ErrorTable, ErrorCodes]] = [
    (core.TaskNotFound, V1, "1.0.1", ErrorCodes(RpcCode.NOT_FOUND, 404, -32001, "TASK_NOT_FOUND")),
    (core.TaskNotFound, V03, "1.0.1", ErrorCodes(RpcCode.NOT_FOUND, 404, -32001, "TASK_NOT_FOUND")),
    (core.TaskNotCancelable, V1, "1.0.1", ErrorCodes(RpcCode.FAILED_PRECONDITION, 400, -32002, "TASK_NOT_CANCELABLE")),
    (core.TaskNotCancelable, V1, "1.0.0", ErrorCodes(RpcCode.FAILED_PRECONDITION, 409, -32002, "TASK_NOT_CANCELABLE")),
    (core.TaskNotCancelable, V03, "1.0.1", ErrorCodes(RpcCode.FAILED_PRECONDITION, 409, -32002, "TASK_NOT_CANCELABLE")),
    (
        core.TaskNotCancelable,
        GOOGLE,
        "1.0.0",
        ErrorCodes(RpcCode.FAILED_PRECONDITION, 400, -32002, "TASK_NOT_CANCELABLE"),
    ),
    (
        core.UnsupportedOperation,
        V1,
        "1.0.1",
        ErrorCodes(RpcCode.FAILED_PRECONDITION, 400, -32004, "UNSUPPORTED_OPERATION"),
    ),
    (core.UnsupportedOperation, V1, "1.0.0", ErrorCodes(RpcCode.UNIMPLEMENTED, 400, -32004, "UNSUPPORTED_OPERATION")),
    (core.UnsupportedOperation, V03, "1.0.1", ErrorCodes(RpcCode.UNIMPLEMENTED, 501, -32004, "UNSUPPORTED_OPERATION")),
    (
        core.ContentTypeNotSupported,
        V1,
        "1.0.0",
        ErrorCodes(RpcCode.INVALID_ARGUMENT, 415, -32005, "CONTENT_TYPE_NOT_SUPPORTED"),
    ),
    (
        core.ContentTypeNotSupported,
        V03,
        "1.0.1",
        ErrorCodes(RpcCode.UNIMPLEMENTED, 415, -32005, "CONTENT_TYPE_NOT_SUPPORTED"),
    ),
    (core.InvalidAgentResponse, V1, "1.0.0", ErrorCodes(RpcCode.INTERNAL, 502, -32006, "INVALID_AGENT_RESPONSE")),
    (core.InvalidAgentResponse, V1, "1.0.1", ErrorCodes(RpcCode.INTERNAL, 500, -32006, "INVALID_AGENT_RESPONSE")),
    (core.VersionNotSupported, V1, "1.0.0", ErrorCodes(RpcCode.UNIMPLEMENTED, 400, -32009, "VERSION_NOT_SUPPORTED")),
    (
        core.VersionNotSupported,
        V03,
        "1.0.1",
        ErrorCodes(RpcCode.FAILED_PRECONDITION, 400, -32009, "VERSION_NOT_SUPPORTED"),
    ),
    (core.InvalidParams, V1, "1.0.1", ErrorCodes(RpcCode.INVALID_ARGUMENT, 400, -32602, "INVALID_PARAMS")),
    (core.InvalidParams, V03, "1.0.1", ErrorCodes(RpcCode.INVALID_ARGUMENT, 422, -32602, "INVALID_PARAMS")),
    (core.TaskEnded, V1, "1.0.1", ErrorCodes(RpcCode.FAILED_PRECONDITION, 400, -32004, "UNSUPPORTED_OPERATION")),
    (core.TaskEnded, V1, "1.0.0", ErrorCodes(RpcCode.UNIMPLEMENTED, 400, -32004, "UNSUPPORTED_OPERATION")),
    (core.TaskEnded, V03, "1.0.1", ErrorCodes(RpcCode.INVALID_ARGUMENT, 422, -32602, "INVALID_PARAMS")),
    (core.AgentNotFound, V1, "1.0.1", ErrorCodes(RpcCode.NOT_FOUND, 404, -32602, "AGENT_NOT_FOUND")),
    (core.PayloadTooLarge, V1, "1.0.1", ErrorCodes(RpcCode.RESOURCE_EXHAUSTED, 413, -32600, "PAYLOAD_TOO_LARGE")),
    (core.RateLimited, V1, "1.0.1", ErrorCodes(RpcCode.RESOURCE_EXHAUSTED, 429, -32603, "RATE_LIMITED")),
    (core.RateLimited, V03, "1.0.1", ErrorCodes(RpcCode.RESOURCE_EXHAUSTED, 429, -32603, "RATE_LIMITED")),
    (core.Unavailable, V03, "1.0.1", ErrorCodes(RpcCode.UNAVAILABLE, 503, -32603, "UNAVAILABLE")),
]


@pytest.mark.parametrize(
    ("kind", "dialect", "table", "expected"), ROWS, ids=[f"{row[0].__name__}-{row[1].name}-{row[2]}" for row in ROWS]
)
def test_each_dialect_has_its_own_codes(
    kind: type[A2AError], dialect: Dialect, table: ErrorTable, expected: ErrorCodes
) -> None:
    assert errors.codes(kind(), dialect, table=table) == expected


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("table", ["1.0.1", "1.0.0"])
def test_every_error_has_a_row(kind: type[A2AError], dialect: Dialect, table: ErrorTable) -> None:
    row = errors.codes(kind(), dialect, table=table)
    assert (row.reason == "INTERNAL_ERROR") == (kind is core.InternalError)


def test_the_names_of_the_codes_are_those_of_grpc() -> None:
    for code in RpcCode:
        assert code_pb2.Code.Value(code.name) == code
        assert grpc.StatusCode[code.name].value[0] == code


class Narrower(core.TaskNotFound):
    """A subclass of a known error."""


class Unheard(A2AError):
    """An error without a row in the table."""


def test_a_subclass_of_a_known_error_uses_its_row() -> None:
    assert errors.codes(Narrower(), V1) == errors.codes(core.TaskNotFound(), V1)


@pytest.mark.parametrize("error", [KeyError("secret"), Unheard("secret")])
def test_an_unlisted_exception_is_an_internal_error(error: Exception) -> None:
    assert errors.codes(error, V1) == ErrorCodes(RpcCode.INTERNAL, 500, -32603, "INTERNAL_ERROR")


@pytest.mark.parametrize("dialect", Dialect)
def test_a_foreign_exception_reveals_nothing(dialect: Dialect) -> None:
    error = KeyError("secret")
    assert "secret" not in errors.grpc_status(error, dialect).details
    assert b"secret" not in errors.grpc_status(error, dialect).status_bin
    assert b"secret" not in errors.rest_error(error, dialect).body


def test_0_x_clients_get_the_literal_text_of_a_missing_task() -> None:
    error = core.TaskNotFound('Task not found: "42"')
    assert errors.error_message(error, V03) == "Task not found"
    assert errors.error_message(error, V1) == 'Task not found: "42"'


# gRPC ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", Dialect)
def test_a_grpc_status_contains_reason_metadata_and_violations(dialect: Dialect) -> None:
    error = InvalidParams.field("message.parts[0]", "must have content")
    error.metadata["taskId"] = "42"
    code, text, status_bin = errors.grpc_status(error, dialect)
    info, violations = details(status_bin)
    assert code is RpcCode.INVALID_ARGUMENT
    assert (info.reason, info.domain, dict(info.metadata)) == ("INVALID_PARAMS", "a2a-protocol.org", {"taskId": "42"})
    fields = {Dialect.GOOGLE: "message.content[0]", Dialect.V03: "request.content[0]"}
    field = fields.get(dialect, "message.parts[0]")
    assert violations == [(field, "must have content")]
    # Clients drop the details unless both texts are equal.
    status = status_pb2.Status.FromString(status_bin)
    assert (status.code, status.message) == (code, text)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (core.TaskNotFound("gone"), "TaskNotFoundError: Task not found"),
        (core.TaskNotCancelable(), "TaskNotCancelableError: Task cannot be canceled"),
        (core.InvalidParams("name: no"), "InvalidParamsError: name: no"),
        (core.TaskEnded("over"), "InvalidParamsError: over"),
        (core.AgentNotFound('tenant: no agent "x" here'), 'AgentNotFoundError: no agent "x" here'),
        (core.ParseError(), "JSONParseError: Invalid JSON payload"),
        (core.Unavailable("later"), "InternalError: later"),
        (ValueError("secret"), "InternalError: Internal error"),
    ],
)
def test_a_0_3_grpc_text_begins_with_the_sdk_class_name(error: Exception, text: str) -> None:
    assert errors.grpc_status(error, V03).details == text


@pytest.mark.parametrize("filler", ["x", "界"])
def test_a_grpc_status_fits_into_the_trailers_for_any_input(filler: str) -> None:
    error = InvalidParams(filler * 9000, violations=[Violation(f"f{n}", filler * 500) for n in range(50)])
    error.metadata.update({str(n): filler * 300 for n in range(50)})
    _, text, status_bin = errors.grpc_status(error, V1)
    info, violations = details(status_bin)
    assert len(quote(text)) + len(base64.b64encode(status_bin)) < 6 * 1024
    assert text.endswith("…")
    assert info.reason == "INVALID_PARAMS"
    assert len(violations) < 50


def test_violations_are_truncated_to_the_size_limit() -> None:
    every = [Violation(f"message.parts[{n}]", "must have content") for n in range(200)]
    _, violations = details(errors.grpc_status(InvalidParams("bad parts", violations=every), V1).status_bin)
    assert 20 < len(violations) < 200
    assert violations == [(v.field, v.description) for v in every][: len(violations)]


# REST ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [V1, GOOGLE])
def test_a_rest_body_is_the_one_of_aip_193(dialect: Dialect) -> None:
    error = InvalidParams.field("pageSize", "must be 1 to 100")
    status, body = errors.rest_error(error, dialect)
    assert status == 400
    assert json.loads(body) == {
        "error": {
            "code": 400,
            "status": "INVALID_ARGUMENT",
            "message": "pageSize: must be 1 to 100",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "INVALID_PARAMS",
                    "domain": "a2a-protocol.org",
                },
                {
                    "@type": "type.googleapis.com/google.rpc.BadRequest",
                    "fieldViolations": [{"field": "pageSize", "description": "must be 1 to 100"}],
                },
            ],
        }
    }


def test_a_0_3_rest_body_has_the_fields_of_every_client() -> None:
    status, body = errors.rest_error(core.TaskNotFound(metadata={"taskId": "42"}), V03)
    assert status == 404
    assert json.loads(body) == {
        "code": -32001,
        "type": "TaskNotFoundError",
        "message": "Task not found",
        "error": {
            "code": 404,
            "status": "NOT_FOUND",
            "message": "Task not found",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "TASK_NOT_FOUND",
                    "domain": "a2a-protocol.org",
                    "metadata": {"taskId": "42"},
                }
            ],
        },
    }


@pytest.mark.parametrize(
    ("error", "http", "rpc", "reason"),
    [
        (core.MethodNotFound("POST /nowhere"), 404, "NOT_FOUND", "METHOD_NOT_FOUND"),
        (MethodNotAllowed("PUT", ["GET", "POST"]), 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED"),
    ],
)
def test_an_unknown_path_and_an_unsupported_method_differ(error: A2AError, http: int, rpc: str, reason: str) -> None:
    for dialect in Dialect:
        status, body = errors.rest_error(error, dialect)
        values: dict[str, Any] = json.loads(body)["error"]
        assert (status, values["code"], values["status"], values["details"][0]["reason"]) == (http, http, rpc, reason)
        assert values["message"] == error.message


def test_an_unsupported_method_is_rejected_with_the_allowed_ones() -> None:
    error = MethodNotAllowed("PUT", ["GET", "POST"])
    assert error.allowed == ("GET", "POST")
    assert error.message == "PUT is not served at this path; use GET or POST"


def test_the_405_error_name_is_unknown_to_sdks_so_they_try_the_other_method() -> None:
    body = json.loads(errors.rest_error(MethodNotAllowed("POST", ["GET"]), V03).body)
    assert body["type"] not in {errors._SDK_NAMES[code] for code in errors._SDK_NAMES}


@pytest.mark.parametrize("dialect", Dialect)
def test_an_error_body_is_one_line_for_a_stream(dialect: Dialect) -> None:
    body = errors.rest_error(core.InvalidRequest("two\nlines\r\n"), dialect).body
    assert b"\n" not in body
    assert b"\r" not in body


@pytest.mark.parametrize("dialect", Dialect)
def test_lone_surrogates_are_replaced_in_both_forms(dialect: Dialect) -> None:
    error = InvalidParams("bad \ud800", violations=[Violation("\ud800", "\ud800")])
    error.metadata["\ud800"] = "\ud800"
    assert errors.grpc_status(error, dialect).details.endswith("bad ?")
    assert json.loads(errors.rest_error(error, dialect).body)["error"]["message"] == "bad ?"


# When to try again ---------------------------------------------------------------------------------------------


def limited(seconds: float) -> core.RateLimited:
    return core.RateLimited("too much", limit="live_tasks", maximum=7, retry_after=seconds)


@pytest.mark.parametrize(("seconds", "response"), [(2.0, "2s"), (0.25, "0.250s")])
def test_a_rate_limit_error_contains_the_retry_delay(seconds: float, response: str) -> None:
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": response}
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "RATE_LIMITED",
        "domain": errors.ERROR_DOMAIN,
        "metadata": {"limit": "live_tasks", "maximum": "7"},
    }
    for dialect in Dialect:
        assert errors.jsonrpc_error(limited(seconds), dialect, names_version=True)["data"][:2] == [info, retry]
        assert json.loads(errors.rest_error(limited(seconds), dialect).body)["error"]["details"] == [info, retry]


@pytest.mark.parametrize("dialect", [V1, V03])
def test_the_retry_delay_over_grpc_is_a_detail(dialect: Dialect) -> None:
    found = error_details_pb2.RetryInfo()
    status = status_pb2.Status.FromString(errors.grpc_status(limited(0.25), dialect).status_bin)
    assert [detail.Unpack(found) for detail in status.details] == [False, True]
    assert found.retry_delay.ToMilliseconds() == 250


def test_a_permanent_error_has_no_retry_delay() -> None:
    assert "data" not in errors.jsonrpc_error(core.TaskNotFound(), V03)
    assert len(errors.jsonrpc_error(core.TaskNotFound(), V1)["data"]) == 1


@pytest.mark.parametrize("dialect", [V1, V03, GOOGLE])
def test_a_lack_of_memory_is_the_same_error_wherever_it_was_raised(dialect: Dialect) -> None:
    wrapped = ValueError("the query could not be encoded")
    wrapped.__cause__ = MemoryError()
    for error in (MemoryError(), wrapped, RuntimeError("can't start new thread"), core.OutOfMemory()):
        status = errors.grpc_status(error, dialect)
        assert status.code is RpcCode.RESOURCE_EXHAUSTED
        assert b"OUT_OF_MEMORY" in status.status_bin
        assert errors.rest_error(error, dialect).status == 503
        assert errors.jsonrpc_error(error, dialect)["code"] == -32603
        assert "memory" in status.details
