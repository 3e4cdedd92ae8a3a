"""Room for open files, asked for once before anything is opened."""

from __future__ import annotations

import logging

import pytest

from dragoman.cli.process_setup import EXTRA_OPEN_FILES, raise_open_file_limit

resource = pytest.importorskip("resource")


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits of a pretended system, the present one last."""
    reported = [(1024, 5000)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: reported[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limit: reported.append(limit))
    return reported


def test_the_limit_is_raised_to_what_connections_need(
    limits: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    raise_open_file_limit(1000)
    assert limits[-1] == (2000 + EXTRA_OPEN_FILES, 5000)
    raise_open_file_limit(500)  # there is enough by now
    assert limits[-1] == (2000 + EXTRA_OPEN_FILES, 5000)
    assert not caplog.records


def test_a_limit_that_is_too_low_is_told(limits: list[tuple[int, int]], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    raise_open_file_limit(4096)
    assert limits[-1] == (5000, 5000)
    assert f"may open 5000 files, but 4096 connections per port need {8192 + EXTRA_OPEN_FILES}" in caplog.text


def test_a_system_that_gives_nothing_is_left_as_it_is(
    limits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(kind: int, limit: tuple[int, int]) -> None:
        raise OSError

    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_open_file_limit(4096)
    assert "may open 1024 files" in caplog.text
