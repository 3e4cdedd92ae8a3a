"""Shared client code for all versions of fasta2a, which have a client class for some methods, and types for others.

What its client has no method for goes through the client's connection, written and read by the package's types.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from fasta2a.client import A2AClient
from pydantic import TypeAdapter

JSON = {"Content-Type": "application/json"}


def envelope(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


async def call(
    client: A2AClient, method: str, params: dict[str, Any], asks: TypeAdapter[Any], answers: TypeAdapter[Any]
) -> Any:
    """Makes a call in the same way as the client. Returns the validated response."""
    content = asks.dump_json(envelope(method, params), by_alias=True)
    response = await client.http_client.post("/", content=content, headers=JSON)
    client._raise_for_status(response)
    answer = answers.validate_json(response.content)
    assert answer["id"] == 7
    return answer


async def stream(
    client: A2AClient, method: str, params: dict[str, Any], asks: TypeAdapter[Any], answers: TypeAdapter[Any]
) -> AsyncIterator[Any]:
    """Makes a streaming call in the same way as the client of 2.x. Yields the validated responses."""
    content = asks.dump_json(envelope(method, params), by_alias=True)
    async with client.http_client.stream("POST", "/", content=content, headers=JSON) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                answer = answers.validate_json(line[6:])
                assert answer["id"] == 7
                yield answer


def check_deliveries(deliveries: list[tuple[dict[str, str], Any]], token: str = "t0ken") -> None:
    """Checks the headers and bodies of webhook requests."""
    for headers, _ in deliveries:
        assert headers["content-type"] == "application/json"
        assert headers.get("x-a2a-notification-token", token) == token
        assert headers["dragoman-event"]


async def until(get: Callable[[], Awaitable[Any]], state: str) -> None:
    """Polls a task until it has a state; the timeout of the check limits the wait."""
    while True:
        answer = await get()
        if "result" in answer and answer["result"]["status"]["state"] == state:
            return
        await asyncio.sleep(0.02)
