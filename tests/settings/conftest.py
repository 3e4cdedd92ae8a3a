"""Settings without those of the machine: no variables, and an empty folder."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_settings(no_settings: None) -> None:
    """For all tests here."""
