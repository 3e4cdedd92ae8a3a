"""The log of who was refused: what it says, what it never says, and how much of it there can be."""

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


class World:
    def __init__(self) -> None:
        self.seconds = 0.0
        self.refusals = AuthFailureLog(lambda: self.seconds)

    def refuse(self, error: Exception | None = None) -> None:
        error = error or Unauthenticated("no", error="invalid_token", log_details={"key": "k"})
        self.refusals.record(error, peer="192.0.2.1", method="GetTask")


@pytest.fixture(autouse=True)
def _log_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.security")


def test_a_refusal_is_told_with_its_reason_and_who_it_was(caplog: pytest.LogCaptureFixture) -> None:
    World().refuse()
    (line,) = caplog.records
    assert (line.getMessage(), line.levelname) == ("a caller was refused: no", "WARNING")
    assert (line.__dict__["peer"], line.__dict__["method"], line.__dict__["key"]) == ("192.0.2.1", "GetTask", "k")


def test_who_shows_nothing_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.refuse(Unauthenticated("credentials are required"))
    world.refuse(PermissionDenied("not yours", log_details={"principal": "bob"}))
    world.refuse(TaskNotFound())
    assert [line.levelname for line in caplog.records] == ["INFO", "WARNING"]


def test_a_stranger_can_cause_so_many_lines_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for _ in range(1000):
        world.refuse()
    assert len(caplog.records) == AUTH_FAILURE_BURST
    world.seconds += 60
    for _ in range(1000):
        world.refuse()
    assert len(caplog.records) == AUTH_FAILURE_BURST + AUTH_FAILURES_PER_MINUTE
    assert caplog.records[AUTH_FAILURE_BURST].__dict__["others"] == 1000 - AUTH_FAILURE_BURST
    assert "others" not in caplog.records[AUTH_FAILURE_BURST + 1].__dict__


def test_what_a_stranger_sent_stays_on_one_line_and_is_short(caplog: pytest.LogCaptureFixture) -> None:
    about = {"kid": "x\nlevel=ERROR\x1b[31m", "issuer": "i" * 5000}
    World().refuse(Unauthenticated("a\r\nb", error="invalid_token", log_details=about))
    (line,) = caplog.records
    assert line.getMessage() == "a caller was refused: a??b"
    assert line.__dict__["kid"] == "x?level=ERROR?[31m"
    assert line.__dict__["issuer"] == "i" * MAX_LOGGED_FIELD_CHARS


def test_what_is_no_request_takes_room_from_the_same_lines(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for _ in range(1000):
        world.refusals.record_invalid_http("LineTooLong", peer="192.0.2.1")
    world.refuse()
    assert len(caplog.records) == AUTH_FAILURE_BURST
    assert caplog.records[0].getMessage() == "what came is no HTTP that can be read: LineTooLong"
