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

from dragoman.testing.store_admission import StoreAdmission
from dragoman.testing.store_apikeys import StoreApiKeys
from dragoman.testing.store_audit import StoreAudit
from dragoman.testing.store_cancels import StoreCancels
from dragoman.testing.store_census import StoreCensus
from dragoman.testing.store_papers import StorePapers
from dragoman.testing.store_pushes import StorePushes
from dragoman.testing.store_reads import StoreReads
from dragoman.testing.store_roster import StoreRoster
from dragoman.testing.store_sessions import StoreSessions
from dragoman.testing.store_sharing import StoreSharing
from dragoman.testing.store_upkeep import StoreUpkeep
from dragoman.testing.store_upstreams import StoreUpstreams
from dragoman.testing.store_writes import StoreWrites


class StoreContract(
    StoreWrites,
    StoreReads,
    StoreSessions,
    StoreUpkeep,
    StoreSharing,
    StorePushes,
    StoreAdmission,
    StoreCancels,
    StoreCensus,
    StoreApiKeys,
    StorePapers,
    StoreAudit,
    StoreRoster,
    StoreUpstreams,
):
    """Give a `store` fixture that is opened with the `clock` fixture of this class."""
