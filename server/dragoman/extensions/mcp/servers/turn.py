"""One turn: calls a tool, follows its task, or answers what the server has asked.

A turn that another process had begun follows the server's task, if there is one. Otherwise it calls the tool once more
only if that is declared read-only or idempotent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.dispatcher import ProgressFnT

from dragoman.agents.called.agent import CalledTurn, Sleep, end, first
from dragoman.agents.values import NewId
from dragoman.calling.errors import CallRefused, OutcomeUnknown, ProtocolError, ServerUnavailable
from dragoman.core.durations import Backoff
from dragoman.core.errors import A2AError
from dragoman.core.trace import CURRENT_TRACE, TRACE_HEADER
from dragoman.extensions.mcp.servers import questions, tasks_extension
from dragoman.extensions.mcp.servers.agent import McpAgent
from dragoman.extensions.mcp.servers.call_state import CallState, read_call_state
from dragoman.extensions.mcp.servers.connection import McpRefused, ServerSilent
from dragoman.extensions.mcp.servers.open_calls import OpenCall, ServerQuestion
from dragoman.extensions.mcp.servers.questions import InvalidAnswer, UnsupportedInput
from dragoman.extensions.mcp.servers.readers import read_model
from dragoman.extensions.mcp.servers.tasks_extension import CreateTaskResult
from dragoman.extensions.mcp.servers.tool_choice import ChosenTool, InvalidToolCall, choose_tool, is_repeatable
from dragoman.extensions.mcp.servers.turn_output import McpTurnOutput
from dragoman.ports import TurnContext, TurnResult

log = logging.getLogger("dragoman.mcp")

T = TypeVar("T")

HANDLE_TIMEOUT: Final = 2.0
"""Seconds after a cancel in which the answer to a call may name the server's task, which can be canceled."""

STATE_BACKOFF: Final = Backoff(0.05, 1.0)
"""Delay before repeating a call that returned only a request state."""


class McpTurn(CalledTurn):
    """Calls a tool in one turn, and follows its task to the end."""

    reason_prefix = "MCP"

    def __init__(
        self,
        context: TurnContext,
        server: McpAgent,
        new_id: NewId,
        *,
        clock: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """clock: monotonic seconds."""
        super().__init__(context, server, sleep)
        self.output = McpTurnOutput(context, read_call_state(context.task_state), new_id, clock)
        self._handle_known = asyncio.Event()
        self._server = server
        self._new_id = new_id
        self._replay: tuple[types.ElicitRequestParams, types.ElicitResult] | None = None
        """A question whose answer is known, for a tool that is called once more."""

    @property
    def handle(self) -> str:
        """The server's task; empty without one."""
        return self.output.state.handle

    @property
    def is_marked_unsent(self) -> bool:
        """Whether an earlier attempt noted that no tool was called."""
        return self.output.state.unsent

    async def store_unsent(self, unsent: bool) -> None:
        """Stores whether no tool was called in this turn."""
        await self.output.store(replace(self.output.state, unsent=unsent))

    def failed(self, reason: str, text: str, error: type[A2AError] | None = None) -> TurnResult:
        """FAILED with this reason and text."""
        return self.output.failed(reason, text, error)

    def refused(self, refused: CallRefused) -> TurnResult:
        """FAILED with the error of the server."""
        log.info("a call was refused: %s", refused.summary, extra={"task": self.context.task_id})
        is_unknown = isinstance(refused, McpRefused) and refused.rpc_code == types.INVALID_PARAMS
        if self.handle and is_unknown:  # SEP-2663, Protocol Errors
            return self.failed("MCP_LOST", f"the MCP server no longer knows its task {self.handle}: {refused.message}")
        return self.failed("MCP_ERROR", refused.summary)

    # The runtime ------------------------------------------------------------------------------------------------

    def describe_runner(self) -> str:
        """Describes the server, the tool and the server's task."""
        tool = f", tool {self.output.state.tool}" if self.output.state.tool else ""
        task = f", as its task {self.handle}" if self.handle else ""
        return f"MCP server {self._server.location}{tool}{task}"

    def describe_wait(self) -> str:
        """Describes what it waits for."""
        if self.handle:
            return "The MCP server runs the call as a task of its own, which is polled."
        return "The tool was called and has not answered yet." if self.is_sent else ""

    @property
    def remote_task(self) -> str:
        return self.handle

    @property
    def is_begun(self) -> bool:
        return super().is_begun or bool(self.output.state.open_call)

    async def until_cancelable(self) -> None:
        if not self.handle:
            await self._handle_known.wait()

    async def withdraw(self, work: asyncio.Task[TurnResult]) -> TurnResult | None:
        """The result of a canceled call that is not a task of the server. MCP has no answer that confirms its end."""
        if self.handle or (work.done() and not self.output.state.open_call):
            return None
        discovered = self._server.discovered
        if self.is_sent and discovered is not None and discovered.has_tasks:  # the answer may name a task
            with suppress(TimeoutError):
                async with asyncio.timeout(HANDLE_TIMEOUT):
                    await first(self.until_cancelable(), work)
            if self.remote_task or (work.done() and not self.output.state.open_call):
                return None
        await end(work)  # the SDK tells the server (`notifications/cancelled`), which need not answer
        state = self.output.state
        self._server.calls.discard(state.open_call)
        tool = f'the tool "{state.tool}"' if state.tool else "its tool"
        return self.failed("OUTCOME_UNKNOWN", f"the MCP server does not say whether {tool} has stopped")

    # The turn ---------------------------------------------------------------------------------------------------

    async def answer(self) -> TurnResult:
        """The result of the turn."""
        try:
            return await self._answer()
        except InvalidToolCall as error:
            return self.failed("MCP_INVALID_CALL", str(error))
        except UnsupportedInput as error:
            return self.failed("MCP_UNSUPPORTED", str(error))
        finally:
            self.output.stop_progress()

    async def _answer(self) -> TurnResult:
        state, may_have_begun = self.output.state, self.may_have_begun
        if state.open_requests and (result := self._read_answer()) is not None:
            return result
        state = self.output.state
        if state.handle:
            if state.responses:
                await self._update_task()
            return await self._follow_task()
        if state.open_call:
            return await self._continue_open_call()
        if not state.tool:
            call = await self._choose_tool()
            self.output.state = CallState(tool=call.tool, arguments=call.arguments, unsent=state.unsent)
        if may_have_begun and not self._is_repeatable():
            raise OutcomeUnknown(self._unknown_text("this server stopped while it ran"))
        await self.begin_work()
        return await self._call()

    async def _choose_tool(self) -> ChosenTool:
        """The call that the message makes. Raises InvalidToolCall."""
        try:
            return choose_tool(self.context.message, self._server.tools)
        except InvalidToolCall:
            if self._server.announces_changes:
                raise
        await self.repeat(self._server.read_tools)  # it may be new
        return choose_tool(self.context.message, self._server.tools)

    def _read_answer(self) -> TurnResult | None:
        """Adds the message's answer to the state. Returns the next question, or None when all are answered."""
        state = self.output.state
        key, request = next(iter(state.open_requests.items()))
        params = questions.question_of(request)
        try:
            answer = questions.read_answer(self.context.message, params)
        except InvalidAnswer as error:
            return self.output.question(params, state, problem=str(error))
        responses = {**state.responses, key: answer.model_dump(by_alias=True, mode="json", exclude_none=True)}
        self.output.state = replace(state, responses=responses)
        return self._ask_next()

    def _ask_next(self) -> TurnResult | None:
        """The question for the next request of the server; None if there is none."""
        for request in self.output.state.open_requests.values():
            return self.output.question(questions.question_of(request), self.output.state)
        return None

    # Calls of tools ---------------------------------------------------------------------------------------------

    async def _call(self) -> TurnResult:
        """Calls the tool, and repeats the call where that is allowed."""
        attempt, rounds, is_fresh = 0, 0, False
        while True:
            attempt += 1
            await self.until_available(self._server.connect)
            was_sent, self.is_sent = self.is_sent, True
            try:
                result = await self._step(self._start_call())
            except ServerUnavailable as failure:
                self.is_sent = was_sent or failure.may_have_arrived
                await self._after_failure(failure, attempt)
                continue
            except McpRefused as refused:
                self._server.record_success()
                if refused.rpc_code == types.HEADER_MISMATCH and not is_fresh:
                    is_fresh = True
                    await self.repeat(self._server.read_tools)
                    continue
                if (question := self._required_urls(refused)) is not None:
                    return question
                raise
            self._server.record_success()
            if isinstance(result, TurnResult):
                return result
            if isinstance(result, types.InputRequiredResult) and not result.input_requests:
                rounds += 1
                self.output.state = replace(
                    self.output.state, request_state=result.request_state, requests={}, responses={}
                )
                await self._sleep(STATE_BACKOFF.delay(rounds))
                continue
            return await self._use(result)

    async def _after_failure(self, failure: ServerUnavailable, attempt: int) -> None:
        """Waits after a call without an answer. Raises OutcomeUnknown, WorkerLost."""
        if failure.may_have_arrived and not self._is_repeatable():
            reason = failure.message if isinstance(failure, ServerSilent) else "the connection was lost"
            raise self.outcome_unknown(failure, self._unknown_text(f"{reason} while it ran"))  # others name hosts
        await self.wait_to_retry(failure, attempt)

    def _start_call(self) -> OpenCall:
        """Calls the tool once."""
        state = self.output.state
        trace = CURRENT_TRACE.get()
        meta: Any = {TRACE_HEADER: trace} if trace else None

        async def call_tool(client: Client, on_progress: ProgressFnT) -> types.Result:
            is_retry = client.session.discover_result is not None and not state.open_call
            return await client.session.call_tool(
                state.tool,
                dict(state.arguments),
                progress_callback=on_progress,
                input_responses=_typed_responses(state.responses) if is_retry else None,
                request_state=state.request_state if is_retry else None,
                meta=meta,
                allow_input_required=True,
                allow_claimed=True,
            )

        return self._server.calls.start(
            lambda on_progress: self._server.call(lambda client: call_tool(client, on_progress)),
            f"call of {state.tool} for {self.context.task_id}",
            self.output.on_progress,
        )

    async def _step(self, call: OpenCall) -> types.Result | TurnResult:
        """The result of a call, or of the turn that ends with its question. Cancels the call with the turn."""
        try:
            while True:
                found = await call.step()
                if not isinstance(found, ServerQuestion):
                    return found
                if self._replay is not None and _is_same(found.params, self._replay[0]):
                    call.answer(self._replay[1])
                    self._replay = None
                    continue
                id = self._new_id()
                self._server.calls.park(id, call)
                request = {
                    "method": "elicitation/create",
                    "params": found.params.model_dump(by_alias=True, mode="json", exclude_none=True),
                }
                state = replace(self.output.state, open_call=id, requests={"": request}, responses={}, unsent=False)
                return self.output.question(found.params, state)
        except asyncio.CancelledError:
            await call.cancel()
            raise

    async def _continue_open_call(self) -> TurnResult:
        """Answers the question of a call that is still open; otherwise calls the tool once more if that is allowed."""
        state = self.output.state
        params = questions.question_of(state.requests[""])
        answer = read_model(types.ElicitResult, state.responses[""])
        call = self._server.calls.take(state.open_call)
        if call is None:
            if not self._is_repeatable():
                raise OutcomeUnknown(self._unknown_text("its call was lost while it waited for the answer"))
            self._replay = (params, answer)
            return await self._call()
        self.is_sent = True
        call.on_progress = self.output.on_progress
        call.answer(answer)
        try:
            result = await self._step(call)
        except CallRefused:
            self._server.record_success()
            raise
        except ServerUnavailable as failure:
            self._replay = (params, answer)
            await self._after_failure(failure, 1)
            return await self._call()
        self._server.record_success()
        return result if isinstance(result, TurnResult) else await self._use(result)

    async def _use(self, result: types.Result) -> TurnResult:
        """The result of the turn for the result of a call."""
        state = self.output.state
        match result:
            case types.CallToolResult():
                return self._result_of(result)
            case CreateTaskResult():
                # Before anything else: whoever continues this turn has to know the server's task.
                await self.output.store(CallState(tool=state.tool, arguments=state.arguments, handle=result.task_id))
                self._handle_known.set()
                return await self._follow_task(result.poll_seconds)
            case types.InputRequiredResult():
                self.output.state = CallState(
                    tool=state.tool,
                    arguments=state.arguments,
                    request_state=result.request_state,
                    requests=_json_requests(result.input_requests),
                )
                question = self._ask_next()
                assert question is not None
                return question
        raise ProtocolError(f"the MCP server answered a call with {type(result).__name__}")

    def _result_of(self, result: types.CallToolResult) -> TurnResult:
        """The result of the turn for one of its tool, which is checked here: the SDK does not see output schemas."""
        tool = self.output.state.tool
        if not result.is_error and self._server.has_output_schema(tool):
            if result.structured_content is None and not self.handle:  # servers leave it out of results of tasks
                return self.invalid(f'the tool "{tool}" declares an output, but its result has no data')
            content = result.structured_content
            if content is not None and (problem := self._server.check_output(tool, content)):
                return self.invalid(f'the result of the tool "{tool}" does not match its output schema: {problem}')
        return self.output.result_of(tool, result)

    def _required_urls(self, refused: McpRefused) -> TurnResult | None:
        """The question of an error that asks to visit a URL first (2025-11-25); None for other errors."""
        if refused.rpc_code != types.URL_ELICITATION_REQUIRED or not isinstance(refused.data, dict):
            return None
        found = refused.data.get("elicitations")
        requests = {
            str(number): {"method": "elicitation/create", "params": {**params, "mode": "url"}}
            for number, params in enumerate(found if isinstance(found, list) else [])
            if isinstance(params, dict)
        }
        if not requests:
            return None
        self.output.state = replace(self.output.state, requests=requests, responses={}, unsent=False)
        return self._ask_next()

    # The server's task ------------------------------------------------------------------------------------------

    async def _follow_task(self, wait: float = 0.0) -> TurnResult:
        """Polls the server's task until it ends or asks. wait: seconds before the first poll."""
        shown = ""
        while True:
            if wait:
                await self.wait_for_wakeup(wait)
            task = await self._repeat(lambda client: tasks_extension.get_task(client, self.handle))
            wait = task.poll_seconds
            match task.status:
                case "completed":
                    return self._result_of(read_model(types.CallToolResult, task.result or {}))
                case "failed":
                    error = task.error or {}
                    text = error.get("message") or task.status_message or "the task failed"
                    return self.failed("MCP_ERROR", f"{text} ({error.get('code', 0)})")
                case "cancelled":
                    return self.output.canceled(task.status_message or "")
                case "input_required":
                    requests = _json_requests(task.input_requests)
                    new = {key: one for key, one in requests.items() if key not in self.output.state.answered}
                    if new:
                        self.output.state = replace(self.output.state, requests=new, responses={})
                        question = self._ask_next()
                        assert question is not None
                        return question
            if task.status_message and task.status_message != shown:
                shown = task.status_message
                self.output.show_progress(shown)

    async def _update_task(self) -> None:
        """Sends the answers to the server's task. Repeated answers are ignored by servers."""
        state = self.output.state
        await self._repeat(lambda client: tasks_extension.update_task(client, self.handle, state.responses))
        answered = tuple(dict.fromkeys([*state.answered, *state.responses]))
        await self.output.store(replace(state, requests={}, responses={}, answered=answered))

    async def _repeat(self, request: Callable[[Client], Awaitable[T]]) -> T:
        """The answer to a call that runs no tool."""
        return await self.repeat(lambda: self._server.call(request))

    def _is_repeatable(self) -> bool:
        tool = next((one for one in self._server.tools if one.name == self.output.state.tool), None)
        return is_repeatable(tool)

    def _unknown_text(self, reason: str) -> str:
        return (
            f'it is unknown what the tool "{self.output.state.tool}" has done, because {reason}. '
            "It is not called again, because it is declared neither read-only nor idempotent."
        )


def _json_requests(requests: Mapping[str, types.InputRequest] | None) -> dict[str, Any]:
    """Input requests in their JSON form, by key."""
    return {
        key: request.model_dump(by_alias=True, mode="json", exclude_none=True)
        for key, request in (requests or {}).items()
    }


def _typed_responses(responses: Mapping[str, Any]) -> types.InputResponses | None:
    """Stored responses as the SDK takes them; None for none."""
    if not responses:
        return None
    return {key: read_model(types.ElicitResult, value) for key, value in responses.items()}


def _is_same(one: types.ElicitRequestParams, other: types.ElicitRequestParams) -> bool:
    """Whether two questions are the same but for their ids."""
    return one.model_dump(exclude={"meta", "elicitation_id"}) == other.model_dump(exclude={"meta", "elicitation_id"})
