"""Compaction on PostgreSQL: the contract, and what a growing artifact records."""

from __future__ import annotations

from dragoman.testing.contracts.store_size import StoreSize


class TestSize(StoreSize):
    pass
