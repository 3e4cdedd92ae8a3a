"""Every attack on a server in its own process.

The server must stay up, answer the sends of another caller, and stay below a memory limit. Attacks through what others
send (schemas, exceptions, results) may not hold its loop either. Prints what was measured. ABUSE_SECONDS sets the
duration of each attack.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.abuse.attacks import ATTACKS, BOUNDED_STEPS, SETTINGS
from tests.abuse.grpc_attacks import grpc_large_messages, grpc_stalled_messages
from tests.cli.server import clean_environment
from tests.overload.programs import ROOT, peak_memory, program, read_line

pytestmark = pytest.mark.longest

SECONDS: Final = os.environ.get("ABUSE_SECONDS", "0.5")
MAX_MEMORY_MIB: Final = 600
"""Enough for a few messages of the maximum size and their decoded form."""
MAX_MEMORY_OF_ATTACK_MIB: Final = dict.fromkeys([grpc_large_messages.__name__, grpc_stalled_messages.__name__], 900)
"""gRPC holds a message as fragments and as a whole: 24 of 16 MiB that are complete at once, or those that arrive before
the server looks, on a machine without a free core."""
MAX_STEP_MS: Final = 500.0
"""Maximum CPU time of one step of the loop, for the attacks in BOUNDED_STEPS, on any machine. The longest takes 40 ms,
to parse 16 MiB; unbounded, each would take seconds."""
END_TIMEOUT: Final = 120.0
"""Seconds in which calls that were accepted during an attack have ended."""


class Attacker:
    """A process that attacks, once for all tests: the libraries of every attack take longer than an attack."""

    def __init__(self) -> None:
        self._process = self._started()

    def attack(self, name: str, http: str, grpc: str) -> int:
        """Attacks, and returns how many requests were sent. A process that an attack has ended is started again."""
        if self._process.poll() is not None:
            self._process = self._started()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{name} {http} {grpc} {SECONDS}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def stop(self) -> None:
        self._process.communicate(timeout=60)

    @staticmethod
    def _started() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.abuse.attacks"],
            cwd=ROOT,
            env={**clean_environment(), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(scope="module")
def attacker() -> Iterator[Attacker]:
    attacker = Attacker()
    yield attacker
    attacker.stop()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_neither_blocks_others_nor_exhausts_memory(
    name: str, attacker: Attacker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{tmp_path}/tasks.db"}
    settings |= SETTINGS.get(name, {})
    async with program("tests.overload.server_process", json.dumps(settings)) as server:
        addresses = json.loads(await read_line(server))
        assert server.stdin is not None
        async with program("tests.overload.probe", addresses["http"], "bystander") as probe:
            assert await read_line(probe) == "probing"
            server.stdin.write(b"steps\n")  # forgets the first use of modules and caches
            await read_line(server)
            count = await asyncio.to_thread(attacker.attack, name, addresses["http"], addresses["grpc"])
            assert probe.stdin is not None
            probe.stdin.close()
            times = sorted(json.loads(await read_line(probe)))  # the probe exits at an invalid response
        server.stdin.write(b"steps\n")
        longest = json.loads(await read_line(server))
        assert count > 0
        assert server.returncode is None
        assert peak_memory(server) < MAX_MEMORY_OF_ATTACK_MIB.get(name, MAX_MEMORY_MIB)
        # The server still works, and ends what the attack has begun.
        running = 1
        async with asyncio.timeout(END_TIMEOUT):
            while running:
                server.stdin.write(b"report\n")
                running = json.loads(await read_line(server))["running"]
        with capsys.disabled():
            p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
            print(
                f"\n{name}: {count} in {SECONDS} s; {len(times)} probe responses, p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
                f"max {times[-1]:.0f} ms; longest step {longest['milliseconds']:.0f} ms; {peak_memory(server)} MiB"
            )
        assert name not in BOUNDED_STEPS or longest["milliseconds"] < MAX_STEP_MS, longest
