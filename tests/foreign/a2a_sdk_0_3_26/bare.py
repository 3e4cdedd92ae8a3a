"""a2a-sdk 0.3.26 on a server without capabilities: unsupported calls are rejected.

The SDK checks the card before it streams, so its clients get a card with all capabilities. Over gRPC and HTTP+JSON it
evaluates only the status of an error.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import grpc
import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from a2a.client import A2ACardResolver
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import AgentCapabilities
from check import Caller, callers, config_params, message, webhook
from checks import Checks, arguments, finish

bare = Checks("a2a-sdk")

URL = "https://one.example/hook"
UNSUPPORTED = (-32004, 501, 400, grpc.StatusCode.UNIMPLEMENTED)
"""The SDK itself raises 400 for a response over HTTP+JSON that is not a stream."""
NO_PUSH = (-32003, 501, grpc.StatusCode.UNIMPLEMENTED)


async def refused(call: Any, codes: tuple[Any, ...]) -> None:
    """Awaits `call`, which has to fail with one of these JSON-RPC codes, HTTP statuses or gRPC codes."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        found: Any = error.code()
    except A2AClientHTTPError as error:
        found = error.status_code
    except A2AClientJSONRPCError as error:
        found = error.error.code
    else:
        raise AssertionError(f"no error, but {answer!r}")
    assert found in codes, found


@bare.of("refusals")
async def what_needs_no_capability_works(caller: Caller) -> None:
    assert (await caller.send("hello")).status.state.value == "completed"


@bare.of("refusals")
async def streams_are_an_unsupported_operation(caller: Caller) -> None:
    task = (await caller.send("hello")).id
    await refused(caller.stream("hello"), UNSUPPORTED)
    await refused(caller.follow(task), UNSUPPORTED)


@bare.of("refusals")
async def webhooks_are_not_supported(caller: Caller) -> None:
    task = (await caller.send("hello")).id
    await refused(caller.blocking.set_task_callback(webhook(task, URL)), NO_PUSH)
    await refused(caller.blocking.get_task_callback(config_params(task, "c")), NO_PUSH)
    await refused(caller.ask(message("hello"), webhook(task, URL).push_notification_config), NO_PUSH)


async def main() -> bool:
    where, good = arguments(), True
    async with httpx.AsyncClient(timeout=60) as web:
        card = await A2ACardResolver(web, where.http).get_agent_card()
        assert not card.capabilities.streaming
        assert not card.capabilities.push_notifications
        assert not card.supports_authenticated_extended_card
        card.capabilities = AgentCapabilities(streaming=True, push_notifications=True)
        for transport, caller in callers(web, card):
            good &= await bare.run(transport.value, caller)
    return good


if __name__ == "__main__":
    finish(asyncio.run(main()))
