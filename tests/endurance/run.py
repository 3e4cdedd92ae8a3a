"""`make endurance`: long tasks through `dragoman flaky`, over every binding at once, on Dragoman and on a2a-sdk.

ENDURANCE_SECONDS sets the duration of the tasks (600), ENDURANCE_SEED the dropped connections. Clients of Dragoman must
receive every chunk once, with the order and cursors of the server's log. A server of a2a-sdk has no cursors: its task
must complete once, with all of its output.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.cluster import ServerPart
from tests.endurance import following_client
from tests.endurance.following_client import Followed, Mismatch
from tests.postgres import free_port

from dragoman.client import connect
from tools.environments import ROOT, Environment, NotCreated

AGENTS = Path(__file__).with_name("agents.py")
SDK = "upstream_a2a_sdk_1_3_0"
"""The folder under tests/foreign whose environment has a2a-sdk's server."""

RETRY_SECONDS = 120.0
"""Seconds that a client may take longer than the task, because of its retries."""


async def follow_dragoman(seconds: float, seed: int, folder: Path) -> list[str]:
    """Follows one task per binding. Returns one line per binding. Raises Mismatch, ClientError, TimeoutError."""
    server = ServerPart("server", [str(AGENTS), "--store", f"sqlite:///{folder}/tasks.db"], folder)
    try:
        await asyncio.to_thread(server.start)
        async with AsyncExitStack() as stack:
            all_followed = []
            async with asyncio.timeout(seconds + RETRY_SECONDS), asyncio.TaskGroup() as clients:
                for binding in following_client.DROP_MODES:
                    target = server.grpc if binding == "grpc" else server.http.removeprefix("http://")
                    proxy = await stack.enter_async_context(following_client.flaky_proxy(target, binding, seed=seed))
                    followed = Followed(binding, proxy)
                    all_followed.append(followed)
                    if binding == "ws":
                        coroutine = following_client.run_ws(f"http://{proxy.address}", seconds, followed)
                    else:
                        scheme = "grpc" if binding == "grpc" else "http"
                        coroutine = following_client.run(f"{scheme}://{proxy.address}", binding, seconds, followed)
                    clients.create_task(coroutine)
            lines = []
            for followed in all_followed:
                events = await following_client.compare(server.http, followed, seconds)
                lines.append(f"{followed.summary()}; as in the log of {events} events")
            async with connect(server.http) as client:
                tasks = [item.task.id async for item in client.list()]
            if sorted(tasks) != sorted(followed.task for followed in all_followed):
                raise Mismatch(f"{len(tasks)} tasks were created for {len(all_followed)} clients")
            return lines
    finally:
        server.kill()


async def follow_a2a_sdk(seconds: float, seed: int) -> list[str]:
    """Follows one task on a server of a2a-sdk. Returns one line. Raises the same, and NotCreated."""
    environment = Environment(SDK, (ROOT / "tests" / "foreign" / SDK / "requirements.txt",))
    await asyncio.to_thread(environment.make)
    port = free_port()
    async with following_client.flaky_proxy(f"127.0.0.1:{port}", "jsonrpc", seed=seed) as proxy:
        followed = Followed("a2a-sdk", proxy)
        async with _sdk(environment, port, proxy.address), asyncio.timeout(seconds + RETRY_SECONDS):
            await following_client.run(f"http://{proxy.address}", "jsonrpc", seconds, followed)
            expected = "".join(following_client.chunks_of(seconds))
            for name, text in (("result", followed.result), ("streamed text", "".join(followed.chunks))):
                if text != expected:
                    raise Mismatch(f"a2a-sdk: the {name} has {len(text)} characters instead of {len(expected)}")
            proxy.target = "127.0.0.1:1"  # the proxy is not needed any more
        return [f"{followed.summary()}; completed with the complete result; {followed.snapshots} snapshots"]


@asynccontextmanager
async def _sdk(environment: Environment, port: int, public: str) -> AsyncIterator[None]:
    script = Path(__file__).with_name("sdk_agent.py")
    arguments = (str(script), "--port", str(port), "--public", f"http://{public}/")
    process = await asyncio.create_subprocess_exec(environment.python, *arguments, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if await process.stdout.readline() != b"serving\n":
            raise RuntimeError("the server of a2a-sdk did not start; see its output above")
        yield
    finally:
        process.kill()
        await process.wait()


async def main() -> int:
    seconds = float(os.environ.get("ENDURANCE_SECONDS", "600"))
    seed = int(os.environ.get("ENDURANCE_SEED") or time.time())
    print(f"endurance: tasks of {seconds:g} s, ENDURANCE_SEED={seed}", flush=True)
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            results = await asyncio.gather(follow_dragoman(seconds, seed, Path(folder)), follow_a2a_sdk(seconds, seed))
    except NotCreated as error:
        print(f"endurance: {error}", file=sys.stderr)
        return 1
    for line in (*results[0], *results[1]):
        print(f"  {line}")
    print(f"endurance: no event lost or repeated in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
