"""Fixtures for the tests of the runtime: generous timeouts, and no background polls."""

from __future__ import annotations

import pytest
from tests.conftest import set_timings


@pytest.fixture(autouse=True)
def _agents_have_time(time_to_stop: None) -> None:
    """Canceled agents get time to stop, unless a test sets a timeout."""


@pytest.fixture(autouse=True)
def _no_background_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables renewal, reaping, compaction and ending of abandoned tasks in the background.

    Tests move the clock of a store and call these themselves; on a slow machine a background round would interfere.
    """
    set_timings(monkeypatch, renew_interval=3600.0, absence_poll_interval=3600.0, compaction_interval=3600.0)
