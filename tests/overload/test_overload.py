"""Load beyond the limits, on a server in a process of its own (G7, G8).

The right refusals and no others, health all the while, everything as before when it is over, and nothing that grew.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cli.server import clean_environment
from tests.overload.callers import CONNECTIONS, Everywhere, Failed, Rejected, everywhere, over_websocket

ROOT: Final = Path(__file__).parents[2]
SCALE: Final = int(os.environ.get("OVERLOAD", "1"))
"""How much more is asked for than a test needs; for measuring."""

LIVE, STREAMS, QUEUED, RATE, SLOTS = 40, 20, 64 * 1024, 400, 64
NEVER: Final = "01a1fb2a-bd29-7b48-8221-ff7b0dc19d30"
WAIT_TIMEOUT: Final = 90.0


@dataclass
class Server:
    http: str
    grpc: str
    process: asyncio.subprocess.Process

    async def look(self) -> dict[str, int]:
        """What the server has in its memory."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"look\n")
        found: dict[str, int] = json.loads(await self.process.stdout.readline())
        return found


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    settings = {
        "http": "127.0.0.1:0",
        "grpc": "127.0.0.1:0",
        "store": f"sqlite:///{folder}/tasks.db",
        "slots": SLOTS,
        "live_tasks": LIVE,
        "open_streams": STREAMS,
        "queued_bytes": QUEUED,
        "requests_per_second": RATE,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.overload.served", json.dumps(settings)),
        cwd=ROOT,
        env={**clean_environment(), "PYTHONPATH": str(ROOT)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        value = json.loads(await process.stdout.readline())
        yield Server(value["http"], value["grpc"], process)
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(60):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def outcome(call: Awaitable[Any]) -> Any:
    """What a call gave, or how it was refused. Nothing else may become of it."""
    try:
        return await call
    except Rejected as refused:
        if refused.after <= 0:
            raise
        return refused


@asynccontextmanager
async def probing(server: Server) -> AsyncIterator[list[float]]:
    """Asks for health while the block runs. What each answer took, in milliseconds, is there when it has ended."""
    took: list[float] = []
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.overload.probe", server.http),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"probing\n"
        yield took
        data, _ = await process.communicate(b"")  # which ends its input
        assert process.returncode == 0, "health was not what it should be"
        took += json.loads(data)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def patiently(caller: Everywhere, text: str, **details: Any) -> str:
    """A send of a client that tries again when it is told to."""
    while True:
        try:
            return await caller.next().send(text, **details)
        except Rejected as refused:
            await asyncio.sleep(refused.after)


# What each of them does ----------------------------------------------------------------------------------------------


async def greedy(caller: Everywhere) -> list[str]:
    """Far more tasks than one may have, all at once. Gives those it got."""
    results = await asyncio.gather(*(outcome(caller.next().send("go")) for _ in range(300)))
    tasks = [result for result in results if isinstance(result, str)]
    assert len(set(tasks)) == LIVE
    assert {result.limit for result in results if isinstance(result, Rejected)} == {"live_tasks"}
    return tasks


async def hasty(caller: Everywhere, server: Server) -> None:
    """Far more requests than are answered in a second."""
    begin = time.monotonic()

    async def ask(calls: int) -> list[Any]:
        found = []
        for _ in range(calls):
            try:
                found.append(await outcome(caller.next().get(NEVER)))
            except Failed as failed:
                found.append(failed.reason)
        return found

    frames = over_websocket(server.http, "bob", 300 * SCALE, "GetTask", {"id": NEVER})
    many = await asyncio.gather(*(ask(100 * SCALE) for _ in range(20)), frames)
    results = [result.reason if isinstance(result, Failed) else result for some in many for result in some]
    answered = results.count("TASK_NOT_FOUND")  # there is no such task, which is an answer
    assert answered <= RATE * 2 + RATE * (time.monotonic() - begin) + 1
    refused = [result for result in results if isinstance(result, Rejected)]
    assert answered + len(refused) == 2300 * SCALE
    assert {one.limit for one in refused} <= {"requests_per_second"}


async def curious(caller: Everywhere) -> None:
    """More streams of its task than one may have open, and as many again when they are closed."""
    task = await patiently(caller, "go")
    for _ in range(2):
        async with AsyncExitStack() as stack:
            follows = [outcome(caller.next().follow(task, stack)) for _ in range(30)]
            refused = [result for result in await asyncio.gather(*follows) if result is not None]
            assert [result.limit for result in refused] == ["open_streams"] * (30 - STREAMS)
        while isinstance(await outcome(caller.next().send("?", agent="quick", wait=True)), Rejected):
            pass  # the server hears of streams that were closed when they next have something to say, or at once
    await caller.next().cancel(task)


async def talkative(caller: Everywhere) -> None:
    """More to say than an agent that does not listen has room for."""
    task = await patiently(caller, "go")
    says = [outcome(caller.next().send("x" * 8_000, task=task)) for _ in range(40)]
    results = await asyncio.gather(*says)
    accepted = [result for result in results if result == task]
    assert 1 <= len(accepted) <= QUEUED // 8_000
    assert {result.limit for result in results if result != task} == {"queued_bytes"}
    await caller.next().cancel(task)


async def polite(caller: Everywhere) -> None:
    """One thing after the other, and each of them is done."""
    for number in range(20):
        assert await caller.next().send(f"{number}", agent="quick", wait=True)


async def test_beyond_its_limits_a_server_refuses_answers_and_recovers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_TIMEOUT * SCALE):
        server = await stack.enter_async_context(serving(tmp_path))
        names = ("alice", "bob", "carol", "dave", "erin")
        opened = [await stack.enter_async_context(everywhere(server.http, server.grpc, name)) for name in names]
        alice, bob, carol, dave, erin = opened
        for caller in opened:  # so that connections are not counted below
            for _ in range(3):
                await caller.next().send("hello", agent="quick", wait=True)
        before = await server.look()
        async with probing(server) as took:
            async with asyncio.TaskGroup() as group:
                held = group.create_task(greedy(alice))
                for load in (hasty(bob, server), curious(carol), polite(dave), talkative(erin)):
                    group.create_task(load)
            meanwhile = await server.look()
        assert meanwhile["running"] == LIVE <= meanwhile["slots"] == SLOTS
        assert meanwhile["paced"] == meanwhile["counted"] == len(names)
        # Whoever had too much gives some of it back, and is served as before.
        assert isinstance(await outcome(alice.next().send("one more")), Rejected)
        await asyncio.gather(*(alice.next().cancel(task) for task in held.result()))
        for caller in opened:
            assert await patiently(caller, "again", agent="quick", wait=True)
        after = await server.look()
        assert (after["running"], after["open"], after["followed"], after["unread"]) == (0, 0, 0, 0)
        assert after["queued writes"] == 0
        assert after["counted"] == len(names)
        # What ran and streamed is no task any more; connections that stay open are one or two each.
        assert after["tasks of the loop"] - before["tasks of the loop"] <= 2 * len(names) * CONNECTIONS
    with capsys.disabled():
        took.sort()
        p50, p99 = statistics.median(took), took[int(len(took) * 0.99)]
        print(f"\nhealth under load: {len(took)} answers, p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {took[-1]:.1f} ms")
