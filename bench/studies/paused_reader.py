"""Effect of a paused subscriber on the others (G8): `python -m bench.studies.paused_reader`.

Runs the same task twice with a hundred subscribers. In the second run, one subscriber stops reading for a minute. Both
runs measure the latency from the agent to the others; the second also checks that the paused subscriber receives all
events after it resumes with its last event id.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import aiohttp
import orjson

from dragoman import Turn, agent
from dragoman.client.calls import Client, message
from dragoman.settings.settings import Address, Settings
from dragoman.wire.http import sse
from dragoman.wiring.app import App, open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

PADDING = "x" * 8000
"""Padding of each chunk, so that a minute of chunks exceeds every socket buffer."""
ALL_BINDINGS = 0.1
"""Seconds between two events."""


all_subscribed = asyncio.Event()
"""Set once all subscribers have the task."""


@agent(default=True)
async def clock(turn: Turn) -> None:
    """Sends the time N times."""
    await all_subscribed.wait()
    for number in range(int(turn.text)):
        await turn.chunk(f"{number} {time.perf_counter()} {PADDING}")
        await asyncio.sleep(ALL_BINDINGS)


@dataclass(frozen=True, slots=True)
class Run:
    """Milliseconds from the agent to all other readers, and whether the paused one received all chunks."""

    delays: list[float]
    complete: bool


Read = tuple[dict[int, float], str, aiohttp.ClientResponse | None]


async def follow(
    app: App, session: aiohttp.ClientSession, task: str, subscribed: asyncio.Semaphore, after: str = "", stop: int = -1
) -> Read:
    """Returns the delay of each chunk, the last event id, and after chunk `stop` the response, which stays open."""
    seen, parser, last = {}, sse.SseParser(), after
    headers = {"Last-Event-ID": after} if after else {}
    response = await session.get(f"{app.public_url}/tasks/{task}:subscribe", headers=headers)
    async for data in response.content.iter_any():
        for event in parser.feed(data):
            last = event.id or last
            payload = orjson.loads(event.data)
            if "task" in payload:
                subscribed.release()
            elif update := payload.get("artifactUpdate"):
                number, sent, _ = update["artifact"]["parts"][0]["text"].split(" ", 2)
                seen[int(number)] = (time.perf_counter() - float(sent)) * 1000
                if int(number) == stop:
                    return seen, last, response
    response.close()
    return seen, last, None


async def run(folder: Path, seconds: float, readers: int, *, pausing: bool) -> Run:
    """Runs one task of `seconds` with `readers` subscribers and one that may pause."""
    anywhere, count = Address("127.0.0.1", 0), int(seconds / ALL_BINDINGS)
    settings = Settings(store=f"sqlite:///{folder}/{pausing}.db", http=anywhere, grpc=anywhere)
    subscribed = asyncio.Semaphore(0)
    all_subscribed.clear()
    async with (
        open_app(settings, [clock]) as app,
        Client(str(app.grpc)) as client,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=4096) as session,
    ):
        configuration = pb.SendMessageConfiguration(return_immediately=True)
        task = (await client.send(message(str(count)), configuration=configuration)).task.id
        others = [asyncio.create_task(follow(app, session, task, subscribed)) for _ in range(readers)]
        paused = asyncio.create_task(follow(app, session, task, subscribed, stop=count // 10 if pausing else -1))
        for _ in range(readers + 1):
            await subscribed.acquire()
        all_subscribed.set()
        seen, last, response = await paused
        delays = [
            delay for delays_by_chunk, _, _ in await asyncio.gather(*others) for delay in delays_by_chunk.values()
        ]
        if response is not None:
            response.close()
            rest, _, _ = await follow(app, session, task, subscribed, after=last)
            assert not seen.keys() & rest.keys(), "repeated events"
            seen |= rest
        return Run(delays, sorted(seen) == list(range(count)))


async def compare(seconds: float, readers: int) -> dict[str, Run]:
    """Returns both runs by name."""
    with tempfile.TemporaryDirectory() as folder:
        names = {"no pause": False, "one paused": True}
        return {name: await run(Path(folder), seconds, readers, pausing=pausing) for name, pausing in names.items()}


def main() -> int:
    """Prints both runs."""
    parser = argparse.ArgumentParser(prog="python -m bench.studies.paused_reader", description=__doc__)
    parser.add_argument("--seconds", type=float, default=67.0, help="of each run; the pause is nine tenths of it")
    parser.add_argument("--readers", type=int, default=99)
    namespace = parser.parse_args()
    runs = asyncio.run(compare(namespace.seconds, namespace.readers))
    for name, result in runs.items():
        late = quantiles(result.delays, n=100)[98]
        print(f"{name:16}{len(result.delays):>9} deliveries, median {median(result.delays):.1f} ms, p99 {late:.1f} ms")
    complete = runs["one paused"].complete
    print(
        f"the paused subscriber, {namespace.seconds * 0.9:.0f} s later: "
        f"{'complete' if complete else 'EVENTS ARE MISSING'}"
    )
    return 0 if complete else 1


if __name__ == "__main__":
    raise SystemExit(main())
