"""An MCP server over HTTP whose answers are mutated, and one turn of the agent that calls it.

Each answer is JSON or a stream of events, as the server likes. It mutates some of the first ones, then answers as it
should, so a turn that tries again must come to an end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, Final

import orjson
from tests.agents.turn_context import RecordingTurnContext
from tests.clocks import SleepingClock
from tests.fuzz.remote.agents import (
    HOST,
    MAX_ATTEMPTS,
    MAX_MUTATIONS,
    TURN_SECONDS,
    AnswerStream,
    HttpOnly,
    NoEnd,
    check_result,
)
from tests.fuzz.remote.mutations import Answer, events_answer, json_answer, mutated_answer

from dragoman.calling.breaker import CircuitBreaker
from dragoman.calling.errors import ClientError
from dragoman.extensions.mcp.servers.agent import McpAgent
from dragoman.extensions.mcp.servers.turn import McpTurn
from dragoman.extensions.mcp.sources import McpSpec
from dragoman.ports import ConnectFailed, WorkerLost

VERSION: Final = "2025-11-25"
SILENCE: Final = 0.3
"""Seconds of silence after which a call ends: an answer that names another call leaves it without one."""

_SCHEMA: Final = {
    "type": "object",
    "properties": {"text": {"type": "string", "pattern": "^[a-z ]*$"}, "tags": {"$ref": "#/$defs/tags"}},
    "$defs": {"tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}},
    "required": ["text"],
}
_OUTPUT: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
_TOOLS: Final = [
    {"name": "work", "description": "Works", "inputSchema": _SCHEMA, "outputSchema": _OUTPUT},
    {"name": "other", "title": "Other", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
]
_RESULT: Final = {
    "content": [
        {"type": "text", "text": "word"},
        {"type": "image", "data": "AAEC", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "https://we.example/r", "name": "r"},
        {"type": "resource", "resource": {"uri": "file:///r", "text": "r", "mimeType": "text/plain"}},
    ],
    "structuredContent": {"n": 1},
    "isError": False,
}


class MutatingMcpServer(HttpOnly):
    """An MCP server, as an implementation of `dragoman.ports.OutboundStreams`."""

    def __init__(self, chance: random.Random, mutations: int) -> None:
        """mutations: the most answers to mutate."""
        self.chance = chance
        self.mutations_left = mutations
        self.sent: list[Answer] = []
        """The answers so far, to explain a failure."""

    @asynccontextmanager
    async def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, idle_timeout: float
    ) -> AsyncIterator[AnswerStream]:
        """Answers a request."""
        answer = self._answer(method, orjson.loads(body or b"{}"))
        self.sent.append(answer)
        if answer.refused:
            raise ConnectFailed("refused the connection")
        yield AnswerStream(answer)

    def _answer(self, method: str, message: Any) -> Answer:
        if method != "POST":
            return Answer(status=405 if method == "GET" else 200)
        if "id" not in message:
            return Answer(status=202)
        values, is_stream = [self._response(message)], self.chance.random() < 0.5
        if message.get("method") == "tools/call" and is_stream:
            token = message["params"].get("_meta", {}).get("progressToken", "none")
            progress = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
            values.insert(0, {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        # Without a connection there is no turn, so its answers are seldom mutated.
        if self.mutations_left and self.chance.random() < (0.7 if message.get("method") == "tools/call" else 0.15):
            self.mutations_left -= 1
            return mutated_answer(values, self.chance, is_stream=is_stream)
        return events_answer(values) if is_stream else json_answer(values[-1])

    def _response(self, message: Any) -> Any:
        head = {"jsonrpc": "2.0", "id": message["id"]}
        match message.get("method"):
            case "initialize":
                info = {"name": "words", "version": "1"}
                result: Any = {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                result = {"tools": _TOOLS}
            case "tools/call":
                result = _RESULT if message["params"]["name"] == "work" else {"content": []}
            case "ping":
                result = {}
            case _:
                return {**head, "error": {"code": -32601, "message": "unknown method"}}
        return {**head, "result": result}


async def check_mcp_turn(chance: random.Random, mutations: int = MAX_MUTATIONS) -> str:
    """One turn at a mutating server. Returns how it ended, and raises NoEnd if the runtime would not expect it."""
    server = MutatingMcpServer(chance, mutations)
    clock, numbers = SleepingClock(), count(1)
    spec = McpSpec(url=f"{HOST}/mcp", id="there", silence=SILENCE)
    context = RecordingTurnContext('work {"text": "hello"}')
    for attempt in range(1, MAX_ATTEMPTS + 1):
        new_turn = partial(McpTurn, new_id=lambda: f"id-{next(numbers)}", clock=clock, sleep=clock.sleep)
        agent = McpAgent(spec, server, 1 << 20, CircuitBreaker(clock), new_turn)
        try:
            async with asyncio.timeout(TURN_SECONDS):
                try:
                    agent.apply(await agent.discover())
                except ClientError:
                    continue  # as the registry does: it tries again later
                context.attempt, context.task_state = attempt, context.task_states[-1]
                return check_result(context, await agent.take_turn(context))
        except WorkerLost:
            continue
        except NoEnd:
            raise
        except Exception as error:
            raise NoEnd(f"{type(error).__name__}: {error}") from error
        finally:
            await agent.close()
    raise NoEnd(f"{MAX_ATTEMPTS} attempts did not end the turn")
