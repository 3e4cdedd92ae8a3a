"""Calls that are repeated while the server is available."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from tests.extensions.mcp.servers.scripted_server import BROKEN, CONNECT_FAILURE, NOT_SENT, SESSION_LOST, ScriptedServer

from dragoman.calling.errors import CallForbidden
from dragoman.extensions.mcp.servers.calls import ServerCalls
from dragoman.extensions.mcp.servers.transport import FORBIDDEN_CODE
from dragoman.ports import WorkerLost


class Caller:
    """The calls of a turn, with its waits."""

    def __init__(self, server: ScriptedServer, *results: Any) -> None:
        self.waits: list[float] = []
        self.marked = 0
        self.results = list(results)
        self.calls = ServerCalls(server, self.mark_unsent, self.sleep)

    async def mark_unsent(self) -> None:
        self.marked += 1

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)

    async def repeat(self) -> Any:
        async def call(client: Any) -> Any:
            found = self.results.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        return await self.calls.repeat(call)


async def test_a_call_is_repeated_with_growing_pauses() -> None:
    server = ScriptedServer({}, failures=9)
    caller = Caller(server, BROKEN, NOT_SENT, SESSION_LOST, "done")
    assert await caller.repeat() == "done"
    assert caller.waits == sorted(caller.waits)
    assert (len(caller.waits), server.dropped, server.failures, caller.calls.is_sent) == (3, 1, [], False)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MCPError(types.METHOD_NOT_FOUND, "unknown"), MCPError),
        (MCPError(FORBIDDEN_CODE, "no"), CallForbidden),
    ],
)
async def test_an_answer_of_the_server_ends_the_calls(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await Caller(ScriptedServer({}), error).repeat()


async def test_a_server_that_stays_unavailable_ends_the_turn() -> None:
    caller = Caller(ScriptedServer({"connect": [CONNECT_FAILURE]}))
    with pytest.raises(WorkerLost) as raised:
        await caller.calls.client()
    assert (raised.value.may_have_started, caller.marked, len(caller.waits)) == (False, 1, 2)
    caller = Caller(ScriptedServer({}), *[BROKEN] * 3)
    with pytest.raises(WorkerLost) as raised:
        await caller.repeat()
    assert (raised.value.may_have_started, caller.marked) == (False, 1)
    caller = Caller(ScriptedServer({}), *[BROKEN] * 3)
    caller.calls.is_sent = True
    with pytest.raises(WorkerLost) as raised:
        await caller.repeat()
    assert (raised.value.may_have_started, caller.marked) == (True, 0)
