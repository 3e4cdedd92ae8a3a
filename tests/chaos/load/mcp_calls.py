"""One call of MCP over many connections: what it records, and how it answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final

import aiohttp
from tests.chaos.history import Acknowledged, CallLeft, CallOpened, CallResult, Left, Progressed, Sent
from tests.chaos.load.followers import CUT, Stage
from tests.extensions.mcp.endpoint.mcp_client import FORMS, STATELESS, McpCaller
from tests.load.mcp_transport import CURSOR, KEY, ROOT_AGENT, TASK, McpOutcome, McpTransport, result_of
from tests.load.transports import CALL_TIMEOUT

from dragoman.client import ClientError
from dragoman.core.task import states

LEAVES: Final = 0.15
"""Probability that a client leaves a question unanswered."""
PAUSE: Final = 0.1
"""Seconds before a broken connection is replaced."""


class McpCall:
    """One call of the tool of an agent, over many connections."""

    VERSION = STATELESS
    CAPABILITIES: Mapping[str, Any] = FORMS
    BINDING = "mcp-wait"

    def __init__(self, stage: Stage, rng: random.Random, words: str, *, keyed: bool = True) -> None:
        self._stage = stage
        self._rng = rng
        self._number = stage.number()
        self._tool = rng.choice(stage.victim.agents) or ROOT_AGENT
        self._text = f"{words} #{self._number}"
        self._meta: dict[str, Any] = {"progressToken": f"p{self._number}"}
        if keyed:
            self._meta[KEY] = f"mcp-{self._number}"
        self._op = self._sent(self._text, key=self._meta.get(KEY, ""))
        self._handle = ""
        self._answers: dict[str, tuple[int, str]] = {}
        """The number and text of the answer to each question."""
        self._caller_headers: dict[str, str] = {}

    @property
    def _task(self) -> str:
        return self._handle.rpartition("/")[2]

    @property
    def _transport(self) -> McpTransport:
        transports = self._stage.victim.client_transports
        assert transports is not None
        return transports.mcp

    def _caller(self) -> McpCaller:
        """A caller of any server, with the session of this client."""
        return self._transport.caller(self.VERSION, self.CAPABILITIES, self._caller_headers)

    async def run(self) -> None:
        """Connects until the call has ended for its client."""
        ended = False
        while not ended:
            ended = await self._connect()
            await asyncio.sleep(0 if ended else PAUSE)

    async def _connect(self) -> bool:
        """Whether the call needs no further connection; a storm cuts this one."""
        return await self._stage.read(self._attempt, f"call {self._number}")

    async def _attempt(self) -> bool:
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                return await self._exchange()
        except (TimeoutError, aiohttp.ClientError, ConnectionError):
            return False
        except ClientError as error:
            if not error.reason or error.reason == "UNAVAILABLE":
                return False
            self._stage.record.add(self._result("error", text=str(error)))
            return True

    async def _exchange(self) -> bool:
        """Makes one request. Whether the call has ended for its client."""
        raise NotImplementedError

    # Messages -------------------------------------------------------------------------------------------------

    async def _read(
        self, verb: str, headers: Mapping[str, str], body: Mapping[str, Any] | None, rpc_id: object
    ) -> dict[str, Any] | None:
        """Reads a response until its result. None if the connection broke, or this side cut it."""
        messages = self._transport.messages(verb, headers, body)
        async with aclosing(messages):
            async for event_id, message in messages:
                self._observe(event_id, message)
                if message.get("method") == "notifications/progress":
                    self._progress(message["params"])
                    if self._rng.random() < CUT:
                        return None
                elif "method" in message:
                    if await self._take_request(message):
                        return None
                elif message and message.get("id") != rpc_id:
                    raise ClientError("INTERNAL", f"a response has the id {message.get('id')}", reason="OTHER_ID")
                elif message:
                    return result_of(message)
        return None

    def _observe(self, event_id: str, message: Mapping[str, Any]) -> None:
        """Takes notice of any message."""

    async def _take_request(self, message: Mapping[str, Any]) -> bool:
        """Answers a request of the server. Whether the client leaves."""
        raise ClientError("INTERNAL", f"unexpected {message.get('method')}", reason="UNEXPECTED")

    def _progress(self, params: Mapping[str, Any]) -> None:
        assert params["progressToken"] == self._meta["progressToken"]
        self._know(params["_meta"][TASK])
        cursor = params["_meta"][CURSOR]
        if self.VERSION == STATELESS:  # the other revision has ids of events
            self._meta[CURSOR] = cursor
        progressed = Progressed(
            at=self._stage.now,
            call=self._number,
            task=self._task,
            sequence=params["progress"],
            cursor=int(cursor.rpartition(".")[2]),
            text=params["message"],
        )
        self._stage.record.add(progressed)

    def _know(self, handle: str, state: int = states.WORKING) -> None:
        """Records the task that the server named for the call."""
        self._handle = handle
        self._stage.record.add(Acknowledged(at=self._stage.now, op=self._op, task=self._task, state=state))

    # Entries --------------------------------------------------------------------------------------------------

    def _sent(self, text: str, key: str = "", task: str = "") -> int:
        op = self._stage.number()
        now, how = self._stage.now, "answer" if task else "call"
        sent = Sent(at=now, op=op, message="", binding=self.BINDING, how=how, text=text, key=key, task=task)
        self._stage.record.add(sent)
        return op

    def _open(self, how: str) -> None:
        self._stage.record.add(CallOpened(at=self._stage.now, call=self._number, task=self._task, how=how))

    def _result(self, kind: str, state: int = 0, text: str = "") -> CallResult:
        return CallResult(at=self._stage.now, call=self._number, task=self._task, kind=kind, state=state, text=text)

    def _ends(self, outcome: McpOutcome) -> bool:
        """Records an outcome. Whether it is the final result."""
        self._know(outcome.handle, outcome.state)
        asks = outcome.state == states.INPUT_REQUIRED
        kind = "final" if outcome.is_final else "question" if asks else "unfinished"
        self._stage.record.add(self._result(kind, outcome.state, outcome.text))
        return outcome.is_final

    def _leaves_question(self) -> bool:
        """Whether the client leaves the open question until the end of the run."""
        if self._answers or self._rng.random() >= LEAVES:
            return False
        self._stage.record.add(Left(at=self._stage.now, task=self._task))
        self._stage.record.add(CallLeft(at=self._stage.now, call=self._number, task=self._task))
        return True

    def _answer_to(self, question: str) -> str:
        """The text that answers a question, the same whenever it is asked again."""
        if question not in self._answers:
            text = f"so be it #{self._stage.number()}"
            self._answers[question] = self._sent(text, task=self._task), text
        return self._answers[question][1]

    def _answered(self, question: str) -> None:
        op = self._answers[question][0]
        self._stage.record.add(Acknowledged(at=self._stage.now, op=op, task=self._task, state=states.WORKING))
