"""The log of authentication failures: its fields, its limits, and no untrusted line breaks."""

from __future__ import annotations

import logging

import pytest

from dragoman.bindings.request_log import (
    AUTH_FAILURE_BURST,
    AUTH_FAILURES_PER_MINUTE,
    MAX_LOGGED_FIELD_CHARS,
    AuthFailureLog,
)
from dragoman.core.errors import PermissionDenied, TaskNotFound, Unauthenticated


class LogWithClock:
    def __init__(self) -> None:
        self.seconds = 0.0
        self.failures = AuthFailureLog(lambda: self.seconds)

    def record(self, error: Exception | None = None) -> None:
        error = error or Unauthenticated("no", error="invalid_token", log_details={"key": "k"})
        self.failures.record(error, peer="192.0.2.1", method="GetTask")


@pytest.fixture(autouse=True)
def _log_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.security")


def test_a_failure_is_logged_with_reason_and_caller(caplog: pytest.LogCaptureFixture) -> None:
    LogWithClock().record()
    (line,) = caplog.records
    assert (line.getMessage(), line.levelname) == ("request rejected: no", "WARNING")
    assert (line.__dict__["peer"], line.__dict__["method"], line.__dict__["key"]) == ("192.0.2.1", "GetTask", "k")


def test_missing_credentials_are_not_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    log = LogWithClock()
    log.record(Unauthenticated("credentials are required"))
    log.record(PermissionDenied("not yours", log_details={"principal": "bob"}))
    log.record(TaskNotFound())
    assert [line.levelname for line in caplog.records] == ["INFO", "WARNING"]


def test_log_lines_are_rate_limited(caplog: pytest.LogCaptureFixture) -> None:
    log = LogWithClock()
    for _ in range(1000):
        log.record()
    assert len(caplog.records) == AUTH_FAILURE_BURST
    log.seconds += 60
    for _ in range(1000):
        log.record()
    assert len(caplog.records) == AUTH_FAILURE_BURST + AUTH_FAILURES_PER_MINUTE
    assert caplog.records[AUTH_FAILURE_BURST].__dict__["others"] == 1000 - AUTH_FAILURE_BURST
    assert "others" not in caplog.records[AUTH_FAILURE_BURST + 1].__dict__


def test_fields_are_single_line_and_truncated(caplog: pytest.LogCaptureFixture) -> None:
    details = {"kid": "x\nlevel=ERROR\x1b[31m", "issuer": "i" * 5000}
    LogWithClock().record(Unauthenticated("a\r\nb", error="invalid_token", log_details=details))
    (line,) = caplog.records
    assert line.getMessage() == "request rejected: a??b"
    assert line.__dict__["kid"] == "x?level=ERROR?[31m"
    assert line.__dict__["issuer"] == "i" * MAX_LOGGED_FIELD_CHARS


def test_invalid_http_requests_share_the_rate_limit(caplog: pytest.LogCaptureFixture) -> None:
    log = LogWithClock()
    for _ in range(1000):
        log.failures.record_invalid_http("LineTooLong", peer="192.0.2.1")
    log.record()
    assert len(caplog.records) == AUTH_FAILURE_BURST
    assert caplog.records[0].getMessage() == "invalid HTTP request: LineTooLong"
