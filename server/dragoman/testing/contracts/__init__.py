"""The whole contract of a store, for who writes one.

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self, tmp_path, clock):
            store = MyStore(tmp_path, clock=clock)
            yield store
            await store.close()

`clock` gives milliseconds and only the tests move it; it is the store's time in everything. Each part can be had by
itself, while a store grows. What a part means is in `dragoman.ports.store` and beside it.
"""

from __future__ import annotations

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
    StoreApiKeys,
    StoreKeyValues,
    StoreAudit,
    StoreWorkers,
    StoreUpstreams,
):
    """Give a `store` fixture that is opened with the `clock` fixture of this class."""
