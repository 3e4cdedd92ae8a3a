"""Fixtures for the tests of the runtime: generous timeouts, and no background polls."""

from __future__ import annotations

from functools import partial

import pytest
from tests.conftest import set_timings

from dragoman.runtime import assembly, sessions
from dragoman.runtime.maintenance import retention


@pytest.fixture(autouse=True)
def _agents_have_time(time_to_stop: None) -> None:
    """Canceled agents get time to stop, unless a test sets a timeout."""


@pytest.fixture(autouse=True)
def _no_background_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables renewal, reaping, compaction and ending of abandoned tasks in the background.

    Tests move the clock of a store and call these themselves; on a slow machine a background round would interfere.
    """
    monkeypatch.setattr(sessions, "RENEW_INTERVAL", 3600.0)
    monkeypatch.setattr(assembly, "Heartbeat", partial(sessions.Heartbeat, interval=3600.0))
    set_timings(monkeypatch, absence_poll_interval=3600.0)
    monkeypatch.setattr(retention, "COMPACTION_INTERVAL", 3600.0)
