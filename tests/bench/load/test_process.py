"""The kinds of load, on the bare servers in this process, and on ones that response wrongly."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from bench.load.connections import WrongResponse
from bench.load.jobs import Job, LoadResult
from bench.responses import EVENTS, GET_RESPONSE_JSON, ID, SEND_RESPONSE_JSON, TICKS, chunk_json, sse
from bench.servers.gate import Gate

from bench.load import process, subscribers
from bench.servers import bare_http

Handler = bare_http.Handler


@asynccontextmanager
async def served(go: Path, **instead: Handler) -> AsyncIterator[Callable[[str, str, int], Job]]:
    """Serves the bare server, with other handlers for some paths (by their last word). Yields a factory of jobs."""
    app = web.Application()
    for route in bare_http.routes(Gate(str(go))):
        assert route.handler is not None
        word = route.path.rpartition(":")[2] if ":" in route.path else route.path.strip("/").partition("/")[0]
        app.router.add_route(route.method, route.path, instead.get(word, route.handler))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    target = f"127.0.0.1:{runner.addresses[0][1]}"

    def job(kind: str, binding: str, callers: int) -> Job:
        return Job(
            kind=kind, binding=binding, implementation="bare", target=target, pid=os.getpid(), callers=callers,
            seconds=0.02, tools=False, start_file=str(go),
        )  # fmt: skip

    try:
        yield job
    finally:
        await runner.cleanup()


async def run(job: Job) -> LoadResult:
    found = await process.KINDS[job.kind](job)
    assert isinstance(found, LoadResult)
    return found


@pytest.mark.parametrize("binding", ["rest", "jsonrpc"])
async def test_sends_reads_and_streams_are_counted(binding: str, tmp_path: Path) -> None:
    async with served(tmp_path / "go") as job:
        sent = await run(job("send", binding, 2))
        assert sent.count > 0
        assert 0 < sent.p50 <= sent.p99
        read = await run(job("get", binding, 2))
        assert read.size >= len(GET_RESPONSE_JSON)
        streamed = await run(job("stream", binding, 2))
        assert streamed.count > 0


@pytest.mark.parametrize("binding", ["rest", "jsonrpc"])
async def test_every_subscriber_gets_every_event(binding: str, tmp_path: Path) -> None:
    async with served(tmp_path / "go") as job:
        found = await run(job("subscribers", binding, 5))
    assert found.count == 5 * TICKS
    assert found.seconds > 0
    assert not (tmp_path / "go").exists()


async def test_a_single_failed_task_fails_the_measurement(tmp_path: Path) -> None:
    number = 0

    async def send(request: web.Request) -> web.Response:
        nonlocal number
        number += 1
        await request.read()
        state = b"FAILED" if number == 7 else b"COMPLETED"
        return web.Response(body=SEND_RESPONSE_JSON.replace(b"COMPLETED", state), content_type="application/json")

    async with served(tmp_path / "go", send=send) as job:
        with pytest.raises(WrongResponse, match=r"1 wrong responses, such as: .*TASK_STATE_FAILED"):
            await run(job("send", "rest", 1))


async def test_a_stream_with_a_missing_chunk_fails_the_measurement(tmp_path: Path) -> None:
    async def short(request: web.Request) -> web.StreamResponse:
        response = await bare_http._open(request, b"data: {}\n\n")
        for number in range(EVENTS - 1):
            await response.write(sse(chunk_json(number), number))
        await response.write_eof()
        return response

    async with served(tmp_path / "go", stream=short) as job:
        with pytest.raises(WrongResponse, match="99 chunks instead of 100"):
            await run(job("stream", "rest", 1))


async def test_a_history_with_a_missing_message_fails_the_measurement(tmp_path: Path) -> None:
    short = bare_http.fixed(GET_RESPONSE_JSON.replace(b"thirty-two", b"thirty-one", 1))
    async with served(tmp_path / "go", tasks=short) as job:
        with pytest.raises(WrongResponse, match="48 sentences instead of 49"):
            await run(job("get", "rest", 1))


async def test_a_rejected_subscription_fails_the_measurement(tmp_path: Path) -> None:
    async def refuse(request: web.Request) -> web.Response:
        raise web.HTTPNotFound(text=f"no task {ID}")

    async with served(tmp_path / "go", subscribe=refuse) as job:
        with pytest.raises(WrongResponse, match="404"):
            await run(job("subscribers", "rest", 3))


async def test_waiting_for_subscribers_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribers, "SUBSCRIBERS_TIMEOUT", 0.01)

    over = asyncio.Event()

    async def silent(request: web.Request) -> web.Response:
        await over.wait()
        return web.Response()

    async with served(tmp_path / "go", subscribe=silent) as job:
        with pytest.raises(WrongResponse, match="3 subscribers received 0 events"):
            await run(job("subscribers", "rest", 3))
        over.set()
