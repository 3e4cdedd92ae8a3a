"""What a receiver of push notifications costs those who stream (G6): streams with a webhook beside streams with none.

The receivers are in the process of the load. They are down (every connection is closed as it comes), silent (they read,
and never answer), or well (they take everything at once). Each case has a fresh server, and its receiver has to have
been called: else the comparison would be of nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Final

import orjson
import uvloop

from bench.answers import EVENTS
from bench.asking import FORMS, Wire
from bench.lines import Wrong, connect
from bench.load import Meter, drive, streaming
from bench.rows import Key
from bench.run import FEW, Run
from bench.sections import HOOKED
from bench.servers import CONTESTANTS, OURS, Running, started

STREAMS: Final = 4
WARM_UP: Final = 0.5
LEAST: Final = 0.5
"""Seconds of each case: retries begin after up to one."""

NONE: Final = "no webhook"
DOWN: Final = "its receiver is down"
SILENT: Final = "its receiver is silent"
WELL: Final = "its receiver is well"
CASES: Final = (NONE, DOWN, SILENT, WELL)

TAKEN: Final = b"HTTP/1.1 204 No Content\r\n\r\n"


def measure(run: Run) -> None:
    """A fresh server for each case of each round; every other round goes backwards."""
    for number in range(min(run.plan.rounds, FEW)):
        for case in CASES[:: -1 if number % 2 else 1]:
            key = Key(HOOKED, case, OURS)
            try:
                with started(CONTESTANTS[OURS]) as server:
                    found = uvloop.run(_streams(server, case, max(run.plan.seconds, LEAST)))
            except (RuntimeError, Wrong, OSError, TimeoutError) as error:
                run.failed(key, number, str(error) or type(error).__name__)
                continue
            text = f"a stream in {found['p50']:.1f} ms, p99 {found['p99']:.1f} ms, {found['letters']} letters"
            run.figure(key, number, found.pop("p50"), "ms", text=text, **found)


async def _streams(server: Running, case: str, seconds: float) -> dict[str, float]:
    """Milliseconds of a stream of EVENTS chunks, and how often the receiver was called. Raises Wrong."""
    form, target = FORMS["rest", OURS], server.target("rest")
    async with receiver(case) as (url, calls):
        plain = form.stream(f"chunks {EVENTS}")
        wire = hooked(plain, url) if url else plain
        meter = Meter(server.pid)
        lines = [await connect("rest", target, form) for _ in range(STREAMS)]
        measured = await drive([streaming(line, wire, meter) for line in lines], meter, "stream", WARM_UP, seconds)
        for line in lines:
            line.close()
    if bool(url) != bool(calls):
        raise Wrong(f"the receiver was called {len(calls)} times")
    return {"p50": measured.p50, "p99": measured.p99, "letters": len(calls)}


def hooked(wire: Wire, url: str) -> Wire:
    """The same send over REST, with a webhook for its task."""
    value = orjson.loads(wire.body)
    value["configuration"] = {"taskPushNotificationConfig": {"url": url}}
    return replace(wire, body=orjson.dumps(value))


@asynccontextmanager
async def receiver(case: str) -> AsyncIterator[tuple[str, list[None]]]:
    """Its URL, empty for none, and an entry for each time that it was called."""
    calls: list[None] = []
    here: set[asyncio.StreamWriter] = set()

    async def come(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            if case == DOWN:
                calls.append(None)
            else:
                await _serve(reader, writer if case == WELL else None, calls)
        here.discard(writer)
        writer.close()

    if case == NONE:
        yield "", calls
        return
    server = await asyncio.start_server(come, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook", calls
    finally:
        server.close()
        for writer in here:
            writer.close()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None, calls: list[None]) -> None:
    """Takes requests until the caller leaves. Without a writer it answers none."""
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
        calls.append(None)
        if writer is not None:
            writer.write(TAKEN)
