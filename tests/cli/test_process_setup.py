"""The open-file limit is raised at the start."""

from __future__ import annotations

import logging

import pytest

from dragoman.cli.process_setup import EXTRA_OPEN_FILES, raise_open_file_limit

resource = pytest.importorskip("resource")


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits of a simulated system; the current one is last."""
    reported = [(1024, 5000)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: reported[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limit: reported.append(limit))
    return reported


def test_the_limit_is_raised_for_the_connections(
    limits: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    raise_open_file_limit(1000)
    assert limits[-1] == (2000 + EXTRA_OPEN_FILES, 5000)
    raise_open_file_limit(500)  # already high enough
    assert limits[-1] == (2000 + EXTRA_OPEN_FILES, 5000)
    assert not caplog.records


def test_a_limit_that_is_too_low_is_logged(limits: list[tuple[int, int]], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    raise_open_file_limit(4096)
    assert limits[-1] == (5000, 5000)
    assert f"may open 5000 files, but 4096 connections per port need {8192 + EXTRA_OPEN_FILES}" in caplog.text


def test_a_rejected_limit_is_left_unchanged(
    limits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(kind: int, limit: tuple[int, int]) -> None:
        raise OSError

    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_open_file_limit(4096)
    assert "may open 1024 files" in caplog.text
