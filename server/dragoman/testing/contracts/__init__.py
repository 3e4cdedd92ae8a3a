"""The complete contract of a store, for authors of a store.

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self, tmp_path, clock):
            store = MyStore(tmp_path, clock=clock)
            yield store
            await store.close()

`clock` returns milliseconds and is moved only by the tests; it is the store's only clock. While a store is under
construction, use the parts separately. `dragoman.ports.store` defines what they test.
"""

from __future__ import annotations

from dragoman.testing.contracts.store_daily_usage import StoreDailyUsage
from dragoman.testing.contracts.store_erasure import StoreErasure
from dragoman.testing.contracts.store_pushes import StorePushes
from dragoman.testing.contracts.store_reads import StoreReads
from dragoman.testing.contracts.store_sessions import StoreSessions, StoreSharing
from dragoman.testing.contracts.store_tables import (
    StoreApiKeys,
    StoreAudit,
    StoreKeyValues,
    StoreUpstreams,
    StoreWorkers,
)
from dragoman.testing.contracts.store_usage import StoreAdmission, StoreUsage
from dragoman.testing.contracts.store_writes import StoreCancels, StoreWrites


class StoreContract(
    StoreWrites,
    StoreReads,
    StoreSessions,
    StoreErasure,
    StoreSharing,
    StorePushes,
    StoreAdmission,
    StoreCancels,
    StoreUsage,
    StoreDailyUsage,
    StoreApiKeys,
    StoreKeyValues,
    StoreAudit,
    StoreWorkers,
    StoreUpstreams,
):
    """Provide a `store` fixture that is opened with the `clock` fixture of this class."""
