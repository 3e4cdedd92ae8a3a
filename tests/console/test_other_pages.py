"""A browser's requests from other origins, from rebound host names, and through proxies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web
from tests.console.served import Stage, staged

pytestmark = pytest.mark.browser

MESSAGE: Final = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
CALL: Final = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": MESSAGE}

TRIED: Final = """(async (at, sent, call) => {
    const post = (path, value) => fetch(at + path, {
        method: "POST", mode: "no-cors", body: new Blob([JSON.stringify(value)])
    }).then(answer => answer.type, String);
    const socket = await new Promise(done => {
        const line = new WebSocket(at.replace("http", "ws") + "/ws");
        line.onopen = () => done("open");
        line.onerror = () => done("refused");
    });
    return [await post("/message:send", sent), await post("/", call), socket];
})(%s, %s, %s)"""
"""Requests that a page may send cross-origin without preflight."""


@asynccontextmanager
async def serving(handler: Any) -> AsyncIterator[int]:
    """Runs a separate server and yields its port."""
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def other_page(request: web.BaseRequest) -> web.Response:
    return web.Response(text="<!doctype html><title>other page</title>", content_type="text/html")


async def tasks(stage: Stage) -> int:
    async with stage.http.get("/tasks") as answer:
        return int((await answer.json())["totalSize"])


async def test_pages_of_other_origins_start_no_task_and_read_no_response(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage, serving(other_page) as port:
        own = f"http://127.0.0.1:{stage.proxy.port}"
        tried = TRIED % (json.dumps(own), json.dumps(MESSAGE), json.dumps(CALL))
        # another port of this machine, and another site
        for origin in (f"http://127.0.0.1:{port}", f"http://localhost:{port}"):
            await stage.page.go(origin)
            assert await stage.page.run(tried) == ["opaque", "opaque", "refused"]
            assert await tasks(stage) == 0
        # a link from that page works
        await stage.page.run(f"(location.href = {stage.url!r}, 0)")
        await stage.page.see("No tasks in the last day")
        stage.conductor.say(None, None)
        assert (await stage.page.run(tried))[2] == "open", "the server's own page may"
        assert await tasks(stage) == 2
        stage.page.errors.clear()


async def test_a_page_of_a_rebound_name_reads_no_response(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        await stage.put("hello", "plain")
        await stage.page.go(f"http://rebound.evil.example:{stage.proxy.port}/tasks")
        assert "is not a known name of this server" in await stage.page.text("body")
        for text in ("fetch('/plain/tasks')", "fetch('/message:send', {method: 'POST', body: '{}'})"):
            assert await stage.page.run(f"{text}.then(answer => answer.status)") == 403
        assert await tasks(stage) == 0
        stage.page.errors.clear()


async def test_the_console_works_behind_a_proxy_that_changes_the_host(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage, aiohttp.ClientSession() as client:

        async def passing(request: web.BaseRequest) -> web.Response:
            headers = {name: value for name, value in request.headers.items() if name != "Host"}
            url = f"http://{stage.app.http}{request.rel_url.raw_path_qs}"
            async with client.request(
                request.method, url, headers={**headers, "Host": f"{stage.app.http}"}, data=await request.read()
            ) as answer:
                kept = {name: answer.headers[name] for name in ("Content-Type", "ETag") if name in answer.headers}
                return web.Response(status=answer.status, body=await answer.read(), headers=kept)

        async with serving(passing) as port:
            await stage.page.go(f"http://localhost:{port}/console#/tasks")
            await stage.page.see("No tasks yet")
            await stage.send("hello", "plain")
            await stage.page.see("plainly: hello")
