"""Codes and statuses of errors over MCP."""

from __future__ import annotations

import pytest

from dragoman.core import errors
from dragoman.extensions.mcp.wire.errors import (
    HeaderMismatch,
    InvalidSession,
    MissingClientCapability,
    UnsupportedVersion,
    error_code,
    http_status,
    mcp_error,
)

CASES = [
    (errors.ParseError(), -32700, 400, 400),
    (errors.InvalidRequest(), -32600, 400, 400),
    (errors.MethodNotFound(), -32601, 404, 200),
    (errors.InvalidParams(), -32602, 200, 200),
    (errors.TaskNotFound(), -32602, 200, 200),
    (errors.TaskNotCancelable(), -32602, 200, 200),
    (errors.AgentNotFound(), -32602, 200, 200),
    (errors.Unauthenticated(), -32603, 401, 401),
    (errors.PermissionDenied(), -32603, 403, 403),
    (errors.PayloadTooLarge(), -32600, 413, 413),
    (errors.RateLimited(), -32603, 200, 200),
    (errors.Unavailable(), -32603, 200, 200),
    (errors.InvalidAgentResponse(), -32603, 200, 200),
    (RuntimeError("secret"), -32603, 200, 200),
    (HeaderMismatch("x"), -32020, 400, 400),
    (MissingClientCapability("x", {"elicitation": {}}), -32021, 400, 400),
    (UnsupportedVersion("1", ["2"]), -32022, 400, 400),
    (InvalidSession(), -32600, 404, 404),
]


@pytest.mark.parametrize(("error", "code", "stateless", "handshake"), CASES)
def test_each_error_has_a_code_of_json_rpc_or_of_mcp(
    error: Exception, code: int, stateless: int, handshake: int
) -> None:
    assert error_code(error) == mcp_error(error)["code"] == code
    assert http_status(error, is_stateless=True) == stateless
    assert http_status(error, is_stateless=False) == handshake


@pytest.mark.parametrize("error", [error for error, *_ in CASES])
def test_no_code_is_from_the_range_that_mcp_reserves_but_its_own(error: Exception) -> None:
    code = error_code(error)
    assert code in (-32020, -32021, -32022) or not -32099 <= code <= -32000


def test_an_error_tells_its_reason_and_when_to_retry() -> None:
    data = mcp_error(errors.RateLimited("slow down", limit="open_streams", maximum=1, retry_after=2.5))["data"]
    assert data == {"reason": "RATE_LIMITED", "retryAfterSeconds": 2.5, "limit": "open_streams", "maximum": "1"}


def test_the_text_of_an_unknown_exception_is_not_sent() -> None:
    assert "secret" not in str(mcp_error(RuntimeError("secret")))


def test_mcps_own_errors_carry_the_data_of_their_schemas() -> None:
    assert mcp_error(UnsupportedVersion("1", ["2"]))["data"] == {"supported": ["2"], "requested": "1"}
    assert mcp_error(MissingClientCapability("x", {"a": {}}))["data"] == {"requiredCapabilities": {"a": {}}}


def test_a_lack_of_memory_says_so() -> None:
    assert mcp_error(MemoryError())["data"]["reason"] == "OUT_OF_MEMORY"
