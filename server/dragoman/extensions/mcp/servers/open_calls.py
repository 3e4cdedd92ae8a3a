"""Calls of tools that are under way, and those that wait for an answer between two turns.

Servers of 2025-11-25 and before ask their questions while a call is open. The turn ends with the question, the call
stays open here, and the next turn of the task answers it. Servers of 2026-07-28 end the call instead, and need none of
this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Final

import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT

MAX_WAITING_CALLS: Final = 100
"""Calls of one server that wait for answers; beyond it the oldest is canceled."""

WAITING_CALL_SECONDS: Final = 3600.0
"""Seconds for which a call waits for its answer."""

_CURRENT: ContextVar[OpenCall | None] = ContextVar("dragoman-mcp-call", default=None)
"""The call that a request over HTTP belongs to: the SDK runs what it receives in the context of that request."""

_CALL_ENDED: Final = types.ElicitResult(action="cancel")
"""The answer to questions of a call that has ended."""


class ServerQuestion:
    """A question of the server during a call."""

    def __init__(self, params: types.ElicitRequestParams) -> None:
        self.params = params
        self.answer: asyncio.Future[types.ElicitResult] = asyncio.get_running_loop().create_future()


class OpenCall:
    """One call of a tool."""

    def __init__(
        self, call: Callable[[ProgressFnT], Coroutine[Any, Any, types.Result]], name: str, on_progress: ProgressFnT
    ) -> None:
        """Starts the call. on_progress: receives its progress notifications."""
        self.on_progress: ProgressFnT | None = on_progress
        self.question: ServerQuestion | None = None
        """The question that waits for an answer."""
        self._question_set = asyncio.Event()
        token = _CURRENT.set(self)
        try:
            self.task = asyncio.create_task(call(self._report_progress), name=name)
        finally:
            _CURRENT.reset(token)
        self.task.add_done_callback(lambda _: self.answer(_CALL_ENDED))

    async def _report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self.on_progress is not None:
            await self.on_progress(progress, total, message)

    async def ask(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Asks a question of the server, and waits for the answer, or the end of the call.

        Further questions wait for their turn.
        """
        while self.question is not None:
            await asyncio.wait([self.question.answer])
        if self.task.done():
            return _CALL_ENDED
        question = self.question = ServerQuestion(params)
        self._question_set.set()
        try:
            return await question.answer
        finally:
            if self.question is question:
                self.question = None

    async def step(self) -> types.Result | ServerQuestion:
        """The result of the call, or the question it asks first. Raises what the call raises."""
        while True:
            if self.task.done():
                return self.task.result()
            if self.question is not None and not self.question.answer.done():
                return self.question
            self._question_set.clear()
            arrival = asyncio.create_task(self._question_set.wait())
            try:
                await asyncio.wait([self.task, arrival], return_when=asyncio.FIRST_COMPLETED)
            finally:
                arrival.cancel()

    def answer(self, result: types.ElicitResult) -> None:
        """Answers the question."""
        if self.question is not None and not self.question.answer.done():
            self.question.answer.set_result(result)

    async def cancel(self) -> None:
        """Cancels the call: the SDK tells the server, or closes the stream of the request."""
        self.task.cancel()
        await asyncio.wait([self.task])


class OpenCalls:
    """The calls of one server in this process."""

    def __init__(self, max_waiting: int = MAX_WAITING_CALLS, seconds: float = WAITING_CALL_SECONDS) -> None:
        self._max_waiting = max_waiting
        self._seconds = seconds
        self._running: set[OpenCall] = set()
        self._waiting: dict[str, tuple[OpenCall, asyncio.TimerHandle]] = {}

    def start(
        self, call: Callable[[ProgressFnT], Coroutine[Any, Any, types.Result]], name: str, on_progress: ProgressFnT
    ) -> OpenCall:
        """Starts a call."""
        opened = OpenCall(call, name, on_progress)
        self._running.add(opened)
        opened.task.add_done_callback(lambda _: self._on_done(opened))
        return opened

    def _on_done(self, call: OpenCall) -> None:
        self._running.discard(call)
        if not call.task.cancelled():
            call.task.exception()  # marks it as retrieved: the turn may never come that wants it

    def park(self, id: str, call: OpenCall) -> None:
        """Keeps a call open until it is taken, for a limited time."""
        call.on_progress = None
        if len(self._waiting) >= self._max_waiting:
            self.discard(next(iter(self._waiting)))
        timer = asyncio.get_running_loop().call_later(self._seconds, self.discard, id)
        self._waiting[id] = (call, timer)

    def take(self, id: str) -> OpenCall | None:
        """The call that waits for an answer, or has ended without; None if it is not known, or was canceled."""
        call, timer = self._waiting.pop(id, (None, None))
        if timer is not None:
            timer.cancel()
        return call if call is not None and not call.task.cancelled() else None

    def discard(self, id: str) -> None:
        """Cancels a call that waits for an answer, if it is still open."""
        call = self.take(id)
        if call is not None:
            call.task.cancel()

    async def elicit(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """Passes a question of the server to the call that it belongs to.

        Over HTTP that is known. Over stdio a question names no call, so it is answered only while one call runs.
        """
        call = _CURRENT.get()
        if call is None:
            asking = [one for one in self._running if one.question is None]
            if len(asking) != 1:
                text = f"{len(asking)} calls are open, and the question does not say which of them asks"
                return types.ErrorData(code=types.INTERNAL_ERROR, message=text)
            (call,) = asking
        return await call.ask(params)

    async def close(self) -> None:
        """Cancels all calls."""
        for id in list(self._waiting):
            self.discard(id)
        if running := [call.task for call in self._running]:
            for task in running:
                task.cancel()
            await asyncio.wait(running)
