"""Random clients of MCP: calls that wait, in both eras of the protocol, and calls with task handles.

Each call goes on over many connections, to any server, until it has its result.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

import aiohttp
from tests.chaos.history import CallLeft, Canceled, Got
from tests.chaos.load.clients import random_words
from tests.chaos.load.followers import CUT, Stage
from tests.chaos.load.mcp_calls import PAUSE, McpCall
from tests.extensions.mcp.endpoint.mcp_client import FORMS, TASKS
from tests.load.mcp_transport import (
    HANDSHAKE,
    POLL_INTERVAL,
    McpOutcome,
    accepting,
    created_handle,
    result_of,
    task_outcome,
    tool_outcome,
    tool_params,
)
from tests.load.transports import CALL_TIMEOUT

from dragoman.client import ClientError
from dragoman.core.task import states
from dragoman.extensions.mcp.endpoint.tool_call import ElicitationId
from dragoman.extensions.mcp.wire.tools import handle_of


class McpClient:
    """One client. Its number seeds its random choices."""

    def __init__(self, stage: Stage, number: int) -> None:
        self._stage = stage
        self._rng = random.Random(f"{stage.seed}/MCP client {number}")

    async def serve(self) -> None:
        """Makes calls until the run is over."""
        acts: dict[Callable[[], Awaitable[None]], int] = {
            self._stateless: 4,
            self._handshake: 4,
            self._task_handle: 4,
            self._abandoned: 2,
        }
        while not self._stage.over.is_set():
            await self._stage.victim.up.wait()
            (act,) = self._rng.choices(list(acts), list(acts.values()))
            await act()

    async def _stateless(self) -> None:
        await StatelessCall(self._stage, self._rng, random_words(self._rng, self._stage.victim)).run()

    async def _handshake(self) -> None:
        await HandshakeCall(self._stage, self._rng, random_words(self._rng, self._stage.victim)).run()

    async def _task_handle(self) -> None:
        await HandleCall(self._stage, self._rng, random_words(self._rng, self._stage.victim)).run()

    async def _abandoned(self) -> None:
        words = self._rng.choice(("sleep 12000", "stream 200 60"))
        await AbandonedCall(self._stage, self._rng, words, keyed=False).run()


class StatelessCall(McpCall):
    """2026-07-28 without tasks: repeated with its key and cursor; questions are answered by a retry of the call."""

    def __init__(self, stage: Stage, rng: random.Random, words: str, *, keyed: bool = True) -> None:
        super().__init__(stage, rng, words, keyed=keyed)
        self._question: McpOutcome | None = None

    async def _exchange(self) -> bool:
        params, meta, how = (
            tool_params(self._tool, message=self._text),
            self._meta,
            "repeat" if self._handle else "call",
        )
        question = self._question
        if question is not None:
            how = "retry"
            answer = accepting(self._answer_to(question.question))
            params |= {"requestState": question.request_state, "inputResponses": {question.question: answer}}
        self._open(how)
        body, headers = self._caller().envelope("tools/call", params, meta)
        result = await self._read("POST", headers, body, body["id"])
        if result is None:
            return False
        outcome = tool_outcome(result)
        if question is not None and outcome.question != question.question:
            self._answered(question.question)
        if self._ends(outcome):
            return True
        if outcome.question and outcome != question:
            if self._leaves_question():
                return True
            await asyncio.sleep(self._rng.random())
            self._question = outcome
        return False


class AbandonedCall(StatelessCall):
    """2026-07-28 without a key: the client closes the stream, which cancels the task."""

    BINDING = "mcp-abandoned"

    async def run(self) -> None:
        if not await self._connect():
            self._stage.record.add(CallLeft(at=self._stage.now, call=self._number, task=self._task))

    def _progress(self, params: Mapping[str, Any]) -> None:
        super()._progress(params)
        raise _Leaves

    async def _attempt(self) -> bool:
        try:
            await super()._attempt()
        except _Leaves:
            self._stage.record.add(CallLeft(at=self._stage.now, call=self._number, task=self._task, cancels=True))
        else:
            self._stage.record.add(CallLeft(at=self._stage.now, call=self._number, task=self._task))
        return True


class _Leaves(Exception):
    """The client closes its stream."""


class HandshakeCall(McpCall):
    """2025-11-25: a stream that GET with Last-Event-ID resumes; questions are answered by a POST beside it."""

    VERSION = HANDSHAKE
    BINDING = "mcp-stream"

    def __init__(self, stage: Stage, rng: random.Random, words: str) -> None:
        super().__init__(stage, rng, words)
        self._event_id = ""
        self._rpc_id: object = None
        self._gets = False
        self._left = False
        self._posts: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            for post in self._posts:
                post.cancel()

    async def _exchange(self) -> bool:
        if not self._caller_headers:
            await self._initialize()
        caller = self._caller()
        if self._event_id:
            self._open("resume")
            headers = {"Accept": "text/event-stream", "Last-Event-ID": self._event_id, **self._caller_headers}
            result = await self._read("GET", headers | {"MCP-Protocol-Version": HANDSHAKE}, None, self._rpc_id)
        else:
            if self._gets:
                self._open("poll")
                params, meta = (
                    tool_params("get_task", task=self._handle),
                    {"progressToken": self._meta["progressToken"]},
                )
            else:
                self._open("call")
                params, meta = tool_params(self._tool, message=self._text), self._meta
            body, headers = caller.envelope("tools/call", params, meta)
            self._rpc_id = body["id"] = f"call-{self._stage.number()}"
            result = await self._read("POST", headers, body, body["id"])
        if result is None:
            return self._left
        self._event_id, self._gets = "", True
        return self._ends(tool_outcome(result))

    async def _initialize(self) -> None:
        caller = self._transport.caller(HANDSHAKE)
        self._caller_headers = {}
        answer = await caller.initialize(FORMS)
        self._caller_headers = {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"]}

    def _observe(self, event_id: str, message: Mapping[str, Any]) -> None:
        self._event_id = event_id or self._event_id

    async def _take_request(self, message: Mapping[str, Any]) -> bool:
        assert message["method"] == "elicitation/create"
        id = message["id"]
        question = ElicitationId.parse(id)
        self._know(handle_of(question.tenant, question.task_id), states.INPUT_REQUIRED)
        self._stage.record.add(self._result("question", states.INPUT_REQUIRED))
        if self._leaves_question():
            self._left = True
            return True
        self._answer_to(id)
        post = asyncio.create_task(self._post_answer(id))
        self._posts.add(post)
        post.add_done_callback(self._posts.discard)
        return False

    async def _post_answer(self, id: str) -> None:
        """Posts the answer until it was accepted."""
        await asyncio.sleep(self._rng.random())
        body = {"jsonrpc": "2.0", "id": id, "result": accepting(self._answer_to(id))}
        while True:
            await self._stage.victim.up.wait()
            try:
                async with asyncio.timeout(CALL_TIMEOUT):
                    answer = await self._caller().post(body, self._caller_headers | {"MCP-Protocol-Version": HANDSHAKE})
            except (aiohttp.ClientError, ConnectionError, TimeoutError):
                await asyncio.sleep(PAUSE)
                continue
            if answer.status == 202:
                self._answered(id)
                return
            reason = answer.messages[0]["error"].get("data", {}).get("reason") if answer.messages else answer.text
            if reason != "UNAVAILABLE":
                self._stage.record.add(self._result("error", text=f"the answer had {answer.status}: {reason}"))
                return
            await asyncio.sleep(PAUSE)


class HandleCall(McpCall):
    """2026-07-28 with task handles: polled or listened to, answered by `tasks/update`, sometimes canceled."""

    CAPABILITIES: Mapping[str, Any] = {**TASKS, **FORMS}
    BINDING = "mcp-task"

    def __init__(self, stage: Stage, rng: random.Random, words: str) -> None:
        super().__init__(stage, rng, words)
        self._cancels = rng.random() < 0.15
        self._listens = rng.random() < 0.5

    async def _exchange(self) -> bool:
        if not self._handle:
            self._open("call")
            result = await self._request("tools/call", tool_params(self._tool, message=self._text), self._meta)
            self._know(created_handle(result))
        if self._cancels:
            await asyncio.sleep(self._rng.random())
            return await self._cancel()
        if self._listens:
            self._open("listen")
            outcome = await self._listen()
        else:
            self._open("poll")
            outcome = await self._poll()
        if outcome is None:
            return False
        if self._ends(outcome):
            return True
        if outcome.question:
            if self._leaves_question():
                return True
            await asyncio.sleep(self._rng.random())
            answer = accepting(self._answer_to(outcome.question))
            await self._request("tasks/update", {"taskId": self._handle, "inputResponses": {outcome.question: answer}})
            self._answered(outcome.question)
        return False

    async def _request(
        self, method: str, params: Mapping[str, Any], meta: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        body, headers = self._caller().envelope(method, params, meta or {})
        result = await self._read("POST", headers, body, body["id"])
        if result is None:
            raise ClientError("UNAVAILABLE", "the connection closed without a result")
        return result

    async def _cancel(self) -> bool:
        state, reason = int(states.WORKING), ""  # the empty result acknowledges the request (SEP-2663), no more
        try:
            await self._request("tasks/cancel", {"taskId": self._handle})
        except ClientError as error:
            if not error.reason or error.reason == "UNAVAILABLE":
                raise
            state, reason = 0, error.reason
        self._stage.record.add(Canceled(at=self._stage.now, task=self._task, state=state, reason=reason))
        self._cancels = False
        return False

    async def _poll(self) -> McpOutcome:
        while True:
            outcome = self._got(await self._request("tasks/get", {"taskId": self._handle}))
            if outcome.state != states.WORKING:
                return outcome
            await asyncio.sleep(POLL_INTERVAL)

    async def _listen(self) -> McpOutcome | None:
        """The first notification of a task that has ended, or asks something new."""
        params = {"notifications": {"taskIds": [self._handle]}}
        body, headers = self._caller().envelope("subscriptions/listen", params, {})
        messages = self._transport.messages("POST", headers, body)
        async with aclosing(messages):
            async for _, message in messages:
                match message.get("method"):
                    case "notifications/subscriptions/acknowledged":
                        if message["params"]["notifications"].get("taskIds") != [self._handle]:
                            raise ClientError("NOT_FOUND", "listen does not find the task", reason="TASK_NOT_FOUND")
                    case "notifications/tasks":
                        outcome = self._got(message["params"])
                        if outcome.is_final or (outcome.question and outcome.question not in self._answers):
                            return outcome
                        if self._rng.random() < CUT:
                            return None
                    case _:
                        result_of(message)
        return None

    def _got(self, task: Mapping[str, Any]) -> McpOutcome:
        outcome = task_outcome(task)
        self._stage.record.add(Got(at=self._stage.now, task=outcome.task, state=outcome.state))
        return outcome
