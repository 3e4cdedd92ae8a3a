"""The stream of a worker to its server."""

from __future__ import annotations

from dragoman.agents.workers.connection import HeartbeatTimings
from dragoman.worker.stream import ServerStream


async def test_a_worker_has_a_lease_from_the_start_that_ends_before_its_server_counts_it_as_lost() -> None:
    """One that is frozen before its first heartbeat begins no turn afterwards."""
    stream = ServerStream("127.0.0.1:1", on_frame=lambda _: None, on_end=lambda _: None)
    try:
        timings = HeartbeatTimings()
        assert 0 < stream.lease.remaining <= timings.lease - timings.margin
    finally:
        stream.close()
