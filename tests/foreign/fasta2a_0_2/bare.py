"""fasta2a 0.2 on a server without capabilities: unsupported calls get the right error."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx
from fasta2a.client import A2AClient

sys.path.insert(0, str(Path(__file__).parents[1]))
from check import Caller
from checks import Checks, arguments, finish
from fasta2a_client import envelope

bare = Checks("fasta2a")

MESSAGE: dict[str, Any] = {"role": "user", "parts": [{"type": "text", "text": "hello"}]}


async def code(caller: Caller, method: str, params: dict[str, Any]) -> int:
    """Returns the error code of a call; a stream may contain it as an event."""
    response = await caller.client.http_client.post("/", json=envelope(method, params))
    assert response.status_code == 200
    text = response.text.removeprefix("data: ") if response.text.startswith("data: ") else response.text
    answer = json.loads(text)
    assert answer["id"] == 7
    return int(answer["error"]["code"])


@bare.of("refusals")
async def what_needs_no_capability_works(caller: Caller) -> None:
    assert (await caller.task("hello"))["status"]["state"] == "completed"


@bare.of("refusals")
async def streams_are_an_unsupported_operation(caller: Caller) -> None:
    task = (await caller.task("hello"))["id"]
    streamed = {"id": "streamed", "message": MESSAGE}
    assert await code(caller, "tasks/sendSubscribe", streamed) == -32603  # its response has no other error
    assert await code(caller, "tasks/resubscribe", {"id": task}) == -32004


@bare.of("refusals")
async def webhooks_are_not_supported(caller: Caller) -> None:
    task = (await caller.task("hello"))["id"]
    for method, params in (
        ("tasks/pushNotification/set", {"id": task, "pushNotificationConfig": {"url": "https://one.example/hook"}}),
        ("tasks/pushNotification/get", {"id": task}),
        (
            "tasks/send",
            {
                "id": "pushed",
                "message": MESSAGE,
                "pushNotification": {"url": "https://one.example"},
            },
        ),
    ):
        assert await code(caller, method, params) == -32003, method


async def main() -> bool:
    where = arguments()
    async with httpx.AsyncClient(timeout=60) as web, httpx.AsyncClient(timeout=60) as other:
        caller = Caller(A2AClient(where.http, web), A2AClient(where.http, other))
        return await bare.run("JSONRPC", caller)


if __name__ == "__main__":
    finish(asyncio.run(main()))
