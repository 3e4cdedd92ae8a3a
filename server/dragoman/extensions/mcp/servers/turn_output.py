"""Output of a turn: progress while a tool runs, and the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import mcp_types as types

from dragoman.agents.values import NewId, event_metadata, message_of
from dragoman.core.errors import A2AError
from dragoman.core.task import states
from dragoman.core.task.log import StatusChange
from dragoman.extensions.mcp.servers import content, questions
from dragoman.extensions.mcp.servers.call_state import CallState
from dragoman.ports import NO_CHANGE, StateUpdate, TurnContext, TurnResult

PROGRESS_INTERVAL: Final = 0.3
"""Least seconds between two progress messages; of those that come faster only the last is written."""

TOOL_ERROR: Final = "TOOL_ERROR"
"""The reason of a task whose tool answered with an error."""


class McpTurnOutput:
    """Writes the progress of one turn, and builds its result. Keeps the state of the task's call."""

    def __init__(self, context: TurnContext, state: CallState, new_id: NewId, clock: Callable[[], float]) -> None:
        """clock: monotonic seconds."""
        self._context = context
        self._new_id = new_id
        self._clock = clock
        self.state = state
        self._stored_state = state
        self._last_progress_at = float("-inf")
        self._next_progress: StatusChange | None = None
        self._timer: asyncio.TimerHandle | None = None

    # State ------------------------------------------------------------------------------------------------------

    async def store(self, state: CallState) -> None:
        """Stores the state now, and waits for the commit."""
        self.state = state
        update = self._state_update()
        if update is not NO_CHANGE:
            await self._context.store(update)

    def _state_update(self) -> StateUpdate:
        """The state if it is not stored yet."""
        if self.state == self._stored_state:
            return NO_CHANGE
        self._stored_state = self.state
        return StateUpdate(self.state.to_json())

    # Progress ---------------------------------------------------------------------------------------------------

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Writes a progress notification of the server."""
        text = content.progress_text(progress, total, message)
        self.show_progress(text, event_metadata(content.progress_metadata(progress, total)))

    def show_progress(self, text: str, metadata: bytes = b"") -> None:
        """Writes WORKING with this text, at most every `PROGRESS_INTERVAL`. metadata: a serialized Struct."""
        message = message_of(text, self._new_id, self._context)
        self._next_progress = StatusChange(states.WORKING, message.SerializeToString(), metadata)
        if self._timer is None:
            delay = self._last_progress_at + PROGRESS_INTERVAL - self._clock()
            if delay <= 0:
                self._write_progress()
            else:
                self._timer = asyncio.get_running_loop().call_later(delay, self._write_progress)

    def _write_progress(self) -> None:
        change, self._next_progress, self._timer = self._next_progress, None, None
        if change is not None:
            self._last_progress_at = self._clock()
            with suppress(Exception):  # what the store rejects, it rejects at the end of the turn, too
                self._context.put(change)

    def stop_progress(self) -> None:
        """Drops the progress that was not written yet: the turn is over."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next_progress = None, None

    # Results ----------------------------------------------------------------------------------------------------

    def result_of(self, tool: str, result: types.CallToolResult) -> TurnResult:
        """COMPLETED with the result of a tool, or FAILED with its error. Raises ProtocolError, InvalidAgentResponse."""
        artifacts = content.result_artifacts(tool, result, self._new_id)
        if result.is_error:
            failed = self._result(states.FAILED, content.error_text(result), TOOL_ERROR)
            failed.artifacts = artifacts
            return failed
        return TurnResult(StatusChange(states.COMPLETED), artifacts, state_update=self._state_update())

    def question(self, params: types.ElicitRequestParams, state: CallState, *, problem: str = "") -> TurnResult:
        """The result of a turn that ends with a question. problem: why the last answer was not one."""
        self.state = state
        status = questions.question_status(params, self._context, self._new_id, problem=problem)
        return TurnResult(status, state_update=self._state_update())

    def canceled(self, text: str) -> TurnResult:
        """CANCELED by the server. text: its reason; may be empty."""
        if not text:
            return TurnResult(StatusChange(states.CANCELED), state_update=self._state_update())
        return self._result(states.CANCELED, text)

    def failed(self, reason: str, text: str, error: type[A2AError] | None = None) -> TurnResult:
        """FAILED with this reason and text."""
        result = self._result(states.FAILED, f"{reason}: {text}", reason)
        result.error = error(text) if error is not None else None
        return result

    def _result(self, state: int, text: str, reason: str = "") -> TurnResult:
        message = message_of(text, self._new_id, self._context)
        if reason:
            message.metadata.update({"reason": reason})
        return TurnResult(StatusChange(state, message.SerializeToString()), state_update=self._state_update())
