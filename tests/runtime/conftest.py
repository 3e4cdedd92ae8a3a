"""Runtimes whose sessions are the tests' business."""

from __future__ import annotations

from functools import partial

import pytest

from dragoman.runtime import assembly, registry, sessions
from dragoman.runtime.maintenance import retention


@pytest.fixture(autouse=True)
def _agents_have_time(time_to_stop: None) -> None:
    """Unless a test says how much."""


@pytest.fixture(autouse=True)
def _no_background_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """But tests, that move the clock of a store: on a machine that stands still for some seconds, a round of the
    runtime's own would come in between. Nor does anybody else tidy, or give up what waits."""
    monkeypatch.setattr(sessions, "RENEW_INTERVAL", 3600.0)
    monkeypatch.setattr(assembly, "Heartbeat", partial(sessions.Heartbeat, interval=3600.0))
    monkeypatch.setattr(registry, "ABSENCE_POLL_INTERVAL", 3600.0)
    monkeypatch.setattr(retention, "COMPACTION_INTERVAL", 3600.0)
