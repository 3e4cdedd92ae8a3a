"""One subscriber among a hundred does not read for a minute (G8): do the others notice, does it miss anything?

`python -m bench.paused`. Two runs of the same task: all read, and one looks away. In both, how long an event takes from
its agent to the others; in the second, whether the one that looked away has everything after it came back with the
last id that it saw.
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
from dragoman.client import Client, message
from dragoman.settings.settings import Address, Settings
from dragoman.wire.http import sse
from dragoman.wiring.app import App, open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

PADDING = "x" * 8000
"""So much that a minute of it fits in no socket's buffers."""
EVERY = 0.1
"""Seconds between two events."""


everybody = asyncio.Event()
"""Set once all who are to read have the task."""


@agent(default=True)
async def clock(turn: Turn) -> None:
    """Says what time it is, as often as it is told."""
    await everybody.wait()
    for number in range(int(turn.text)):
        await turn.chunk(f"{number} {time.perf_counter()} {PADDING}")
        await asyncio.sleep(EVERY)


@dataclass(frozen=True, slots=True)
class Run:
    """Milliseconds from agent to reader, of all readers but the one in question; and what that one has."""

    delays: list[float]
    complete: bool


Read = tuple[dict[int, float], str, aiohttp.ClientResponse | None]


async def follow(
    app: App, session: aiohttp.ClientSession, task: str, here: asyncio.Semaphore, after: str = "", stop: int = -1
) -> Read:
    """The chunks of a task with the delay of each, and the last id. Ends after chunk `stop`, with its response open."""
    seen, parser, last = {}, sse.SseParser(), after
    headers = {"Last-Event-ID": after} if after else {}
    response = await session.get(f"{app.public_url}/tasks/{task}:subscribe", headers=headers)
    async for data in response.content.iter_any():
        for event in parser.feed(data):
            last = event.id or last
            found = orjson.loads(event.data)
            if "task" in found:
                here.release()
            elif update := found.get("artifactUpdate"):
                number, sent, _ = update["artifact"]["parts"][0]["text"].split(" ", 2)
                seen[int(number)] = (time.perf_counter() - float(sent)) * 1000
                if int(number) == stop:
                    return seen, last, response
    response.close()
    return seen, last, None


async def run(folder: Path, seconds: float, readers: int, *, pausing: bool) -> Run:
    """One task of `seconds`, read by so many and one more."""
    anywhere, count = Address("127.0.0.1", 0), int(seconds / EVERY)
    settings = Settings(store=f"sqlite:///{folder}/{pausing}.db", http=anywhere, grpc=anywhere)
    here = asyncio.Semaphore(0)
    everybody.clear()
    async with (
        open_app(settings, [clock]) as app,
        Client(str(app.grpc)) as client,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=4096) as session,
    ):
        requested = pb.SendMessageConfiguration(return_immediately=True)
        task = (await client.send(message(str(count)), configuration=requested)).task.id
        others = [asyncio.create_task(follow(app, session, task, here)) for _ in range(readers)]
        one = asyncio.create_task(follow(app, session, task, here, stop=count // 10 if pausing else -1))
        for _ in range(readers + 1):
            await here.acquire()
        everybody.set()
        seen, last, response = await one
        delays = [delay for found, _, _ in await asyncio.gather(*others) for delay in found.values()]
        if response is not None:
            response.close()
            rest, _, _ = await follow(app, session, task, here, after=last)
            assert not seen.keys() & rest.keys(), "something came twice"
            seen |= rest
        return Run(delays, sorted(seen) == list(range(count)))


async def compare(seconds: float, readers: int) -> dict[str, Run]:
    """Both runs, by name."""
    with tempfile.TemporaryDirectory() as folder:
        names = {"all read": False, "one is paused": True}
        return {name: await run(Path(folder), seconds, readers, pausing=pausing) for name, pausing in names.items()}


def main() -> int:
    """Both runs, side by side."""
    parser = argparse.ArgumentParser(prog="python -m bench.paused", description=__doc__)
    parser.add_argument("--seconds", type=float, default=67.0, help="of each run; the pause is nine tenths of it")
    parser.add_argument("--readers", type=int, default=99)
    namespace = parser.parse_args()
    runs = asyncio.run(compare(namespace.seconds, namespace.readers))
    for name, one in runs.items():
        late = quantiles(one.delays, n=100)[98]
        print(f"{name:16}{len(one.delays):>9} deliveries, median {median(one.delays):.1f} ms, p99 {late:.1f} ms")
    complete = runs["one is paused"].complete
    print(
        f"the paused one, {namespace.seconds * 0.9:.0f} s later: {'complete' if complete else 'SOMETHING IS MISSING'}"
    )
    return 0 if complete else 1


if __name__ == "__main__":
    raise SystemExit(main())
