"""Compaction on PostgreSQL: the contract, and what a growing artifact records."""

from __future__ import annotations

import pytest

from dragoman.testing.contracts.store_size import StoreSize

pytestmark = pytest.mark.long


class TestSize(StoreSize):
    pass
