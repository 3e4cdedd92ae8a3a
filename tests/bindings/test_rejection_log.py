"""The log of rejected requests: its fields, its limits, and no untrusted line breaks."""

from __future__ import annotations

import ast
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.bindings.rejection_log import (
    LIMIT_LOG_INTERVAL,
    MAX_LOGGED_FIELD_CHARS,
    MAX_LOGGED_PRINCIPALS,
    REJECTION_BURST,
    REJECTIONS_PER_MINUTE,
    RejectionLog,
)
from dragoman.core.access.identity import ANONYMOUS, Identity
from dragoman.core.errors import ContentTypeNotSupported, PermissionDenied, RateLimited, TaskNotFound, Unauthenticated

pytestmark = pytest.mark.long

PACKAGE = Path(dragoman.__file__).parent


class LogWithClock:
    def __init__(self, audit: Any = None) -> None:
        self.seconds = 0.0
        self.rejections = RejectionLog(lambda: self.seconds, audit)

    def record(self, error: Exception | None = None, agent: str = "", identity: Identity = ANONYMOUS) -> None:
        error = error or Unauthenticated("no", error="invalid_token", log_details={"key": "k"})
        self.rejections.record(error, peer="192.0.2.1", method="GetTask", agent=agent, identity=identity)


@pytest.fixture(autouse=True)
def _log_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.security")
    caplog.set_level(logging.INFO, "dragoman.requests")


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
    assert len(caplog.records) == REJECTION_BURST
    log.seconds += 60
    for _ in range(1000):
        log.record()
    assert len(caplog.records) == REJECTION_BURST + REJECTIONS_PER_MINUTE
    assert caplog.records[REJECTION_BURST].__dict__["others"] == 1000 - REJECTION_BURST
    assert "others" not in caplog.records[REJECTION_BURST + 1].__dict__


class Denials:
    """Keeps what is recorded in an audit log."""

    def __init__(self) -> None:
        self.noted: list[BaseException] = []
        self.counted: Counter[str] = Counter()

    def note_denied(self, error: BaseException, peer: str, method: str) -> None:
        self.noted.append(error)

    def count_denied(self, error: BaseException, principal: str) -> None:
        self.counted[principal] += 1


def denied(principal: str) -> PermissionDenied:
    return PermissionDenied("not yours", log_details={"principal": principal})


def test_no_noise_of_others_hides_the_rejections_of_a_principal(caplog: pytest.LogCaptureFixture) -> None:
    denials = Denials()
    log = LogWithClock(denials)
    for error in (Unauthenticated("no", error="invalid_token"), denied("mallory"), denied("anonymous")):
        for _ in range(100):
            log.record(error)
    insider = denied("insider")
    log.record(insider)
    assert denials.noted[-1] is insider
    assert len(denials.noted) == len(caplog.records) == 2 * REJECTION_BURST + 1
    assert denials.counted == {"": 200 - REJECTION_BURST, "mallory": 100 - REJECTION_BURST}


def test_calls_without_credentials_are_neither_noted_nor_counted() -> None:
    denials = Denials()
    log = LogWithClock(denials)
    for _ in range(100):
        log.record(Unauthenticated("credentials are required"))
    assert not denials.noted
    assert not denials.counted


def test_the_number_of_principals_with_a_limit_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    log = LogWithClock()
    for number in range(2 * MAX_LOGGED_PRINCIPALS):
        for _ in range(REJECTION_BURST + 1):
            log.record(denied(f"p{number}"))
    assert len(log.rejections._lines) == MAX_LOGGED_PRINCIPALS
    assert len(log.rejections._suppressed) <= MAX_LOGGED_PRINCIPALS + 1


def test_every_denial_names_who_was_denied() -> None:
    """Errors without a principal share the limit of unknown callers, and are hidden by their noise."""
    calls = [
        (path.relative_to(PACKAGE).as_posix(), node)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "PermissionDenied"
    ]
    unnamed = [file for file, call in calls if not any(one.arg == "log_details" for one in call.keywords)]
    assert unnamed == []
    assert len(calls) > 5


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
        log.rejections.record_invalid_http("LineTooLong", peer="192.0.2.1")
    log.record()
    assert len(caplog.records) == REJECTION_BURST
    assert caplog.records[0].getMessage() == "invalid HTTP request: LineTooLong"


def test_a_limit_is_logged_once_a_minute_for_each_caller(caplog: pytest.LogCaptureFixture) -> None:
    log = LogWithClock()
    ada = Identity("ada")
    for _ in range(100):
        log.record(RateLimited("live_tasks: too many", limit="live_tasks", maximum=3), identity=ada)
        log.record(RateLimited("open_streams: too many", limit="open_streams", maximum=3), identity=ada)
        log.record(RateLimited("live_tasks: too many", limit="live_tasks", maximum=3))
    assert [(line.getMessage(), line.levelname, line.__dict__.get("principal")) for line in caplog.records] == [
        ("request rejected: live_tasks: too many", "WARNING", "ada"),
        ("request rejected: open_streams: too many", "WARNING", "ada"),
        ("request rejected: live_tasks: too many", "WARNING", None),
    ]
    log.seconds += LIMIT_LOG_INTERVAL
    log.record(RateLimited("live_tasks: too many", limit="live_tasks", maximum=3), identity=ada)
    assert len(caplog.records) == 4


def test_the_author_of_an_agent_is_told_once_how_to_accept_a_file(caplog: pytest.LogCaptureFixture) -> None:
    log = LogWithClock()
    for agent in ("reader", "reader", "other"):
        log.record(ContentTypeNotSupported('message.parts[0].mediaType: "text/csv" is not accepted'), agent)
    assert [line.__dict__["agent"] for line in caplog.records] == ["reader", "other"]
    assert "@agent(input_modes=...)" in caplog.records[0].getMessage()
    assert '"text/csv" is not accepted' in caplog.records[0].getMessage()
