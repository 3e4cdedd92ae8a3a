"""The bus contract on the in-process bus."""

from __future__ import annotations

import pytest

from dragoman.bus.local import LocalBus
from dragoman.testing.contracts.bus import BusContract


class TestLocalBus(BusContract):
    @pytest.fixture
    def bus(self) -> LocalBus:
        return LocalBus()
