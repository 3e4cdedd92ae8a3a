"""Memory of a server with authentication, whose gRPC port gets large messages and messages that never end."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Final

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # generated without types
from tests.abuse import h2
from tests.abuse.grpc_attacks import CHECK, MESSAGE_BYTES, REFLECTION, SEND, SENT_OF_STALLED, Upload, upload
from tests.callers import PRINCIPAL
from tests.overload.programs import peak_memory, program, read_line

pytestmark = [
    pytest.mark.longest,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc"),
]

SECONDS: Final = 4.0
"""How long calls are held that the server need not end."""
END_TIMEOUT: Final = 600.0
"""Seconds for which calls without credentials are held, unless the server ends them, as it does within a few."""
MAX_MEMORY_MIB: Final = 400
"""For callers without credentials: an idle server, and what gRPC accepts of each call before it is read, with a margin
for the allocator. They send 384 MiB at least."""
MAX_MEMORY_OF_CALLERS_MIB: Final = 900
"""For callers with credentials: the budget of 256 MiB, and what arrives until the server looks. They send 15,000."""

PROBE_TIMEOUT: Final = 60.0
"""Seconds for a health check, during which the others go on."""
LOCAL_CHANNELS: Final = [("grpc.use_local_subchannel_pool", 1)]
"""Each channel has a connection of its own."""


@pytest.mark.parametrize(
    ("path", "calls", "sent"),
    [
        (SEND, 24, MESSAGE_BYTES),
        (SEND, 1000, SENT_OF_STALLED),
        (CHECK, 100, MESSAGE_BYTES),
        (CHECK, 1000, SENT_OF_STALLED),
        (REFLECTION, 100, MESSAGE_BYTES),
    ],
    ids=["large sends", "stalled sends", "large checks", "stalled checks", "large reflections"],
)
async def test_callers_without_credentials_hold_little(path: str, calls: int, sent: int, tmp_path: Path) -> None:
    seconds = END_TIMEOUT if path == SEND else SECONDS
    peak, started, lasted = await attacked(tmp_path, path, calls, sent, seconds=seconds)
    assert started == calls
    assert peak < MAX_MEMORY_MIB
    if path == SEND:
        assert lasted < seconds, "the server did not end the calls"


async def test_callers_with_credentials_hold_a_budget(tmp_path: Path) -> None:
    caller = h2.literal(PRINCIPAL.encode(), b"alice")
    peak, _, _ = await attacked(tmp_path, SEND, 1000, SENT_OF_STALLED, caller, seconds=SECONDS)
    assert peak < MAX_MEMORY_OF_CALLERS_MIB


async def attacked(
    folder: Path, path: str, calls: int, sent: int, headers: bytes = b"", *, seconds: float
) -> tuple[int, int, float]:
    """Makes calls and holds them for so long, or until all have ended.

    Returns the peak memory of the server in MiB, the number of calls, and the seconds until they ended.
    """
    settings = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{folder}/tasks.db"}
    async with program("tests.overload.server_process", json.dumps({**settings, "token": "x" * 20})) as server:
        addresses = json.loads(await read_line(server))
        began = time.monotonic()
        started = await upload(addresses["grpc"], seconds, path, calls=calls, sent=sent, headers=headers)
        lasted = time.monotonic() - began
        assert server.returncode is None
        return peak_memory(server), started, lasted


async def test_health_is_answered_while_others_send_no_end_of_their_checks(tmp_path: Path) -> None:
    settings = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{tmp_path}/tasks.db"}
    async with program("tests.overload.server_process", json.dumps(settings)) as server:
        address = json.loads(await read_line(server))["grpc"]
        until = time.monotonic() + 600  # canceled below
        uploads = [asyncio.create_task(Upload(CHECK, 8, 3000).run(address, until)) for _ in range(40)]
        try:
            for _ in range(20):
                async with grpc.aio.insecure_channel(address, LOCAL_CHANNELS) as channel:
                    check = health_pb2_grpc.HealthStub(channel).Check
                    response = await check(health_pb2.HealthCheckRequest(), timeout=PROBE_TIMEOUT)
                    assert response.status == health_pb2.HealthCheckResponse.SERVING
        finally:
            for upload_task in uploads:
                upload_task.cancel()
            await asyncio.gather(*uploads, return_exceptions=True)
