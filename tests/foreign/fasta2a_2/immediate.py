"""fasta2a 2 on a server with `--blocking-default return`: a send returns at once, as on fasta2a's own servers."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx
from fasta2a.client import A2AClient

sys.path.insert(0, str(Path(__file__).parents[1]))
from check import Caller, texts
from checks import Checks, arguments, finish
from fasta2a_client import until

immediate = Checks("fasta2a")


@immediate.of("non-blocking send")
async def a_send_returns_at_once_and_its_task_is_polled(caller: Caller) -> None:
    task = await caller.task("stream 10 50")
    assert task["status"]["state"] in ("submitted", "working")
    await until(lambda: caller.get(task["id"]), "completed")
    done = (await caller.get(task["id"]))["result"]
    assert texts(done) == "".join(f"chunk-{number} " for number in range(1, 11))


async def main() -> bool:
    where = arguments()
    async with httpx.AsyncClient(timeout=60) as web, httpx.AsyncClient(timeout=60) as other:
        caller = Caller(where.http, A2AClient(where.http, web), A2AClient(where.http, other))
        return await immediate.run("JSONRPC", caller)


if __name__ == "__main__":
    finish(asyncio.run(main()))
