"""Load beyond the limits, on a server in its own process (G7, G8).

Only the expected rejections occur, health responds all the time, and afterwards the server works as before and has
released its memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.overload.callers import CONNECTIONS, AllBindings, Failed, Rejected, over_all_bindings, over_websocket
from tests.overload.programs import program, read_line

pytestmark = pytest.mark.longest

SCALE: Final = int(os.environ.get("OVERLOAD", "1"))
"""Multiplies the load, for measurements."""

LIVE, STREAMS, QUEUED, RATE, SLOTS = 40, 20, 64 * 1024, 400, 64
UNKNOWN_TASK: Final = "01a1fb2a-bd29-7b48-8221-ff7b0dc19d30"
WAIT_TIMEOUT: Final = 90.0


@dataclass
class Server:
    http: str
    grpc: str
    process: asyncio.subprocess.Process

    async def report(self) -> dict[str, int]:
        """Returns the sizes of what callers can make grow."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"report\n")
        sizes: dict[str, int] = json.loads(await read_line(self.process))
        return sizes


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
    async with program("tests.overload.server_process", json.dumps(settings)) as process:
        addresses = json.loads(await read_line(process))
        yield Server(addresses["http"], addresses["grpc"], process)


async def outcome(call: Awaitable[Any]) -> Any:
    """Returns the result of a call, or its rejection. Raises any other error."""
    try:
        return await call
    except Rejected as rejected:
        if rejected.retry_after <= 0:
            raise
        return rejected


@asynccontextmanager
async def probing(server: Server) -> AsyncIterator[list[float]]:
    """Requests health while the block runs. Its list has the milliseconds of each response after the block."""
    times: list[float] = []
    async with program("tests.overload.probe", server.http) as process:
        assert await read_line(process) == "probing"
        yield times
        data, _ = await process.communicate(b"")  # closes its input
        assert process.returncode == 0, "a health check failed"
        times += json.loads(data)


async def send_with_retries(caller: AllBindings, text: str, **details: Any) -> str:
    """Sends, and waits after each rejection as long as it says."""
    while True:
        try:
            return await caller.next().send(text, **details)
        except Rejected as rejected:
            await asyncio.sleep(rejected.retry_after)


# The load of each caller ----------------------------------------------------------------------------------------------


async def exceed_live_tasks(caller: AllBindings) -> list[str]:
    """Creates far more tasks than allowed at once. Returns those that were created."""
    results = await asyncio.gather(*(outcome(caller.next().send("go")) for _ in range(300)))
    tasks = [result for result in results if isinstance(result, str)]
    assert len(set(tasks)) == LIVE
    assert {result.limit for result in results if isinstance(result, Rejected)} == {"live_tasks"}
    return tasks


async def exceed_request_rate(caller: AllBindings, server: Server) -> None:
    """Sends far more requests than allowed per second."""
    started = time.monotonic()

    async def get_repeatedly(calls: int) -> list[Any]:
        results = []
        for _ in range(calls):
            try:
                results.append(await outcome(caller.next().get(UNKNOWN_TASK)))
            except Failed as failed:
                results.append(failed.reason)
        return results

    frames = over_websocket(server.http, "bob", 300 * SCALE, "GetTask", {"id": UNKNOWN_TASK})
    batches = await asyncio.gather(*(get_repeatedly(100 * SCALE) for _ in range(20)), frames)
    results = [result.reason if isinstance(result, Failed) else result for batch in batches for result in batch]
    answered = results.count("TASK_NOT_FOUND")  # the expected response: the task does not exist
    assert answered <= RATE * 2 + RATE * (time.monotonic() - started) + 1
    rejections = [result for result in results if isinstance(result, Rejected)]
    assert answered + len(rejections) == 2300 * SCALE
    assert {rejection.limit for rejection in rejections} <= {"requests_per_second"}


async def exceed_open_streams(caller: AllBindings, server: Server, principal: str) -> None:
    """Opens more streams than allowed, and as many after closing them."""
    task = await send_with_retries(caller, "go")
    open_before = (await server.report()).get(f"open: {principal}", 0)
    for _ in range(2):
        async with AsyncExitStack() as stack:
            follows = [outcome(caller.next().follow(task, stack)) for _ in range(30)]
            rejections = [result for result in await asyncio.gather(*follows) if result is not None]
            assert [rejection.limit for rejection in rejections] == ["open_streams"] * (30 - STREAMS)
            assert (await server.report())[f"open: {principal}"] == STREAMS
        while (await server.report()).get(f"open: {principal}", 0) > open_before:
            # Closed streams are noticed at once or with their next event.
            await outcome(caller.next().send("?", task=task))
    await caller.next().cancel(task)


async def exceed_queued_bytes(caller: AllBindings) -> None:
    """Sends more messages than an agent that reads none has room for."""
    task = await send_with_retries(caller, "go")
    sends = [outcome(caller.next().send("x" * 8_000, task=task)) for _ in range(40)]
    results = await asyncio.gather(*sends)
    accepted = [result for result in results if result == task]
    assert 1 <= len(accepted) <= QUEUED // 8_000
    assert {result.limit for result in results if result != task} == {"queued_bytes"}
    await caller.next().cancel(task)


async def stay_within_limits(caller: AllBindings) -> None:
    """Sends one message after the other; each must succeed."""
    for number in range(20):
        assert await caller.next().send(f"{number}", agent="quick", wait=True)


async def test_an_overloaded_server_rejects_stays_responsive_and_recovers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_TIMEOUT * SCALE):
        server = await stack.enter_async_context(serving(tmp_path))
        names = ("alice", "bob", "carol", "dave", "erin")
        callers = [await stack.enter_async_context(over_all_bindings(server.http, server.grpc, name)) for name in names]
        alice, bob, carol, dave, erin = callers
        for caller in callers:  # opens the connections, so they are in the first report
            for _ in caller.callers:
                await caller.next().send("hello", agent="quick", wait=True)
        before = await server.report()
        async with probing(server) as times:
            async with asyncio.TaskGroup() as group:
                created = group.create_task(exceed_live_tasks(alice))
                for load in (
                    exceed_request_rate(bob, server),
                    exceed_open_streams(carol, server, "carol"),
                    stay_within_limits(dave),
                    exceed_queued_bytes(erin),
                ):
                    group.create_task(load)
            during = await server.report()
        assert during["running"] == LIVE <= during["slots"] == SLOTS
        assert during["paced"] == during["counted"] == len(names)
        # After releasing what was over the limit, every caller is served as before.
        assert isinstance(await outcome(alice.next().send("one more")), Rejected)
        await asyncio.gather(*(alice.next().cancel(task) for task in created.result()))
        for caller in callers:
            assert await send_with_retries(caller, "again", agent="quick", wait=True)
        after = await server.report()
        assert (after["running"], after["open"], after["followed"], after["unread"]) == (0, 0, 0, 0)
        assert after["queued writes"] == 0
        assert after["counted"] == len(names)
        # No asyncio task of a run or stream is left; each open connection has one or two.
        assert after["tasks of the loop"] - before["tasks of the loop"] <= 2 * len(names) * CONNECTIONS
    with capsys.disabled():
        times.sort()
        p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
        print(
            f"\nhealth under load: {len(times)} responses, p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {times[-1]:.1f} ms"
        )
