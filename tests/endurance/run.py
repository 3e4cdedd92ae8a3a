"""`make patience`: long tasks through `dragoman flaky`, over every binding at once, against our server and a2a-sdk's.

PATIENCE_SECONDS says how long the tasks take (600), PATIENCE_SEED which connections break when. Our server's callers
must have every chunk once, in the order and with the numbers of the server's log. A server of a2a-sdk has no cursors:
there the task has to complete once, with all of its output.
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

ENDS = 120.0
"""Seconds that a caller may be late because of its retries."""


async def ours(seconds: float, seed: int, folder: Path) -> list[str]:
    """One line for each binding. Raises Mismatch, ClientError, TimeoutError."""
    server = ServerPart("server", [str(AGENTS), "--store", f"sqlite:///{folder}/tasks.db"], folder)
    try:
        await asyncio.to_thread(server.start)
        async with AsyncExitStack() as stack:
            everyone = []
            async with asyncio.timeout(seconds + ENDS), asyncio.TaskGroup() as callers:
                for binding in following_client.HOWS:
                    to = server.grpc if binding == "grpc" else server.http.removeprefix("http://")
                    proxy = await stack.enter_async_context(following_client.breaking(to, binding, seed=seed))
                    followed = Followed(binding, proxy)
                    everyone.append(followed)
                    if binding == "ws":
                        caller = following_client.run_ws(f"http://{proxy.address}", seconds, followed)
                    else:
                        scheme = "grpc" if binding == "grpc" else "http"
                        caller = following_client.run(f"{scheme}://{proxy.address}", binding, seconds, followed)
                    callers.create_task(caller)
            lines = []
            for followed in everyone:
                events = await following_client.compare(server.http, followed, seconds)
                lines.append(f"{followed.line()}; as in the log, which has {events} events")
            async with connect(server.http) as client:
                tasks = [found.task.id async for found in client.list()]
            if sorted(tasks) != sorted(followed.task for followed in everyone):
                raise Mismatch(f"{len(tasks)} tasks were made for {len(everyone)} callers")
            return lines
    finally:
        server.kill()


async def theirs(seconds: float, seed: int) -> list[str]:
    """One line for a server of a2a-sdk. Raises as `ours`, and NotCreated."""
    environment = Environment(SDK, (ROOT / "tests" / "foreign" / SDK / "requirements.txt",))
    await asyncio.to_thread(environment.make)
    port = free_port()
    async with following_client.breaking(f"127.0.0.1:{port}", "jsonrpc", seed=seed) as proxy:
        followed = Followed("a2a-sdk", proxy)
        async with _sdk(environment, port, proxy.address), asyncio.timeout(seconds + ENDS):
            await following_client.run(f"http://{proxy.address}", "jsonrpc", seconds, followed)
            whole = "".join(following_client.chunks_of(seconds))
            for what, text in (("result", followed.result), ("text that was told", "".join(followed.chunks))):
                if text != whole:
                    raise Mismatch(f"a2a-sdk: the {what} has {len(text)} characters and not {len(whole)}")
            proxy.target = "127.0.0.1:1"  # the proxy is not needed any more
        return [f"{followed.line()}; completed, with the whole result; {followed.again} snapshots"]


@asynccontextmanager
async def _sdk(environment: Environment, port: int, public: str) -> AsyncIterator[None]:
    script = Path(__file__).with_name("sdk_agent.py")
    words = (str(script), "--port", str(port), "--public", f"http://{public}/")
    process = await asyncio.create_subprocess_exec(environment.python, *words, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if await process.stdout.readline() != b"serving\n":
            raise RuntimeError("the server of a2a-sdk does not start; see above")
        yield
    finally:
        process.kill()
        await process.wait()


async def main() -> int:
    seconds = float(os.environ.get("PATIENCE_SECONDS", "600"))
    seed = int(os.environ.get("PATIENCE_SEED") or time.time())
    print(f"patience: tasks of {seconds:g} s, PATIENCE_SEED={seed}", flush=True)
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            both = await asyncio.gather(ours(seconds, seed, Path(folder)), theirs(seconds, seed))
    except NotCreated as error:
        print(f"patience: {error}", file=sys.stderr)
        return 1
    for line in (*both[0], *both[1]):
        print(f"  {line}")
    print(f"patience: nothing lost, nothing doubled in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
