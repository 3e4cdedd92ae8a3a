"""Replicated servers behind a TCP round-robin, for `--replicated`.

No connection is sticky: each one goes to the next server. What a client began on one server it reads, follows and
cancels on any of them. All clients have the same servers.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.cluster import Cluster
from tests.roundrobin import RoundRobin

SERVERS: Final = 3


@contextmanager
def replicas(*arguments: str) -> Iterator[dict[str, str]]:
    """Starts servers with the arguments, by default the playground. Yields the addresses of the round-robin."""
    app, *options = arguments or ("dragoman.playground",)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        http, grpc = (stack.enter_context(_round_robin()) for _ in range(2))
        public = ("--public-url", f"http://{http.address}", "--public-grpc", grpc.address)
        cluster = stack.enter_context(Cluster(folder, app=app, servers=SERVERS, serving=(*public, *options)))
        cluster.start()
        http.targets = [server.http.removeprefix("http://") for server in cluster.servers]
        grpc.targets = [server.grpc for server in cluster.servers]
        yield {"http": f"http://{http.address}", "grpc": grpc.address}
        for one in (http, grpc):
            if idle := set(one.targets) - set(one.taken):
                print(f"no client was led to {', '.join(sorted(idle))}")


@contextmanager
def _round_robin() -> Iterator[RoundRobin]:
    """A round-robin in its own thread."""
    found, there, over = RoundRobin(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with found.open():
            there.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="round-robin", daemon=True)
    thread.start()
    there.wait()
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
