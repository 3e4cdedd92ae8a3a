"""One turn: calls a tool, follows its task, or answers what the server has asked.

A turn that another process had begun follows the server's task, if there is one. Otherwise it calls the tool once more
only if that is declared read-only or idempotent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from dragoman.agents.values import NewId
from dragoman.calling.errors import CallForbidden, OutcomeUnknown, ProtocolError, ServerUnavailable
from dragoman.core.durations import Backoff
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.trace import CURRENT_TRACE, TRACE_HEADER
from dragoman.extensions.mcp.servers import questions, tasks_extension
from dragoman.extensions.mcp.servers.call_state import CallState, read_call_state
from dragoman.extensions.mcp.servers.calls import ServerCalls, ToolServer
from dragoman.extensions.mcp.servers.connection import call_error
from dragoman.extensions.mcp.servers.open_calls import OpenCall, ServerQuestion
from dragoman.extensions.mcp.servers.questions import InvalidAnswer, UnsupportedInput
from dragoman.extensions.mcp.servers.tasks_extension import CreateTaskResult
from dragoman.extensions.mcp.servers.tool_choice import ChosenTool, InvalidToolCall, choose_tool, is_repeatable
from dragoman.extensions.mcp.servers.transport import SESSION_LOST_CODE, SILENT_CODE
from dragoman.extensions.mcp.servers.turn_output import McpTurnOutput
from dragoman.ports import TurnContext, TurnResult

log = logging.getLogger("dragoman.mcp")

STATE_BACKOFF: Final = Backoff(0.05, 1.0)
"""Delay before repeating a call that returned only a request state."""


class McpTurn:
    """Calls a tool in one turn, and follows its task to the end."""

    def __init__(
        self,
        context: TurnContext,
        server: ToolServer,
        new_id: NewId,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """clock: monotonic seconds."""
        self.context = context
        self.output = McpTurnOutput(context, read_call_state(context.task_state), new_id, clock)
        self.calls = ServerCalls(server, self.mark_unsent, sleep)
        self._server = server
        self._new_id = new_id
        self._sleep = sleep
        self._wakeup = asyncio.Event()
        self._replay: tuple[types.ElicitRequestParams, types.ElicitResult] | None = None
        """A question whose answer is known, for a tool that is called once more."""

    @property
    def is_sent(self) -> bool:
        """Whether the server may have received the call."""
        return self.calls.is_sent

    @property
    def handle(self) -> str:
        """The server's task; empty without one."""
        return self.output.state.handle

    def wake(self) -> None:
        """Polls the server's task at once."""
        self._wakeup.set()

    async def mark_unsent(self) -> None:
        """Stores that no tool was called in this turn."""
        await self.output.store(replace(self.output.state, unsent=True))

    # The turn ---------------------------------------------------------------------------------------------------

    async def run(self) -> TurnResult:
        """Runs the turn. Raises WorkerLost when the server is unavailable, for a later attempt."""
        output = self.output
        try:
            return await self._answer()
        except InvalidToolCall as error:
            return output.failed("MCP_INVALID_CALL", str(error))
        except UnsupportedInput as error:
            return output.failed("MCP_UNSUPPORTED", str(error))
        except OutcomeUnknown as error:
            return output.failed("MCP_UNKNOWN", str(error))
        except CallForbidden as error:
            return output.failed("MCP_FORBIDDEN", error.message)
        except MCPError as error:
            log.info("a call was refused: %s", error.message, extra={"task": self.context.task_id})
            if self.handle and error.code == types.INVALID_PARAMS:  # SEP-2663, Protocol Errors
                text = f"the MCP server no longer knows its task {self.handle}: {error.message}"
                return output.failed("MCP_LOST", text)
            return output.failed("MCP_ERROR", f"{error.message} ({error.code})")
        except (InvalidAgentResponse, ProtocolError) as error:
            return output.invalid(error.message)
        except ValidationError as error:
            return output.invalid(f"the answer of the MCP server is not valid ({error.error_count()} errors)")
        except RuntimeError as error:  # the SDK, about an answer that it did not expect
            return output.invalid(str(error)[:2000])
        finally:
            output.stop_progress()

    async def _answer(self) -> TurnResult:
        state, context = self.output.state, self.context
        if state.open_requests and (result := self._read_answer()) is not None:
            return result
        state = self.output.state
        if state.handle:
            if state.responses:
                await self._update_task()
            return await self._follow_task()
        may_be_sent = context.attempt > 1 and not state.unsent
        if state.open_call:
            return await self._continue_open_call()
        if not state.tool:
            call = await self._choose_tool()
            self.output.state = CallState(tool=call.tool, arguments=call.arguments, unsent=state.unsent)
        if may_be_sent and not self._is_repeatable():
            raise OutcomeUnknown(self._unknown_text("this server stopped while it ran"))
        if state.unsent:  # else an attempt after a crash would take the tool for not called
            await self.output.store(replace(self.output.state, unsent=False))
        return await self._call()

    async def _choose_tool(self) -> ChosenTool:
        """The call that the message makes. Raises InvalidToolCall."""
        try:
            return choose_tool(self.context.message, self._server.tools)
        except InvalidToolCall:
            if self._server.announces_changes:
                raise
        await self.calls.repeat(self._server.read_tools)  # it may be new
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
            client = await self.calls.client()
            self.calls.is_sent = True
            try:
                result = await self._start_call(client)
            except MCPError as error:
                failure = call_error(error)
                if failure is None:
                    self._server.record_success()
                    if error.code == types.HEADER_MISMATCH and not is_fresh:
                        is_fresh = True
                        await self.calls.repeat(self._server.read_tools)
                        continue
                    if (question := self._required_urls(error)) is not None:
                        return question
                    raise
                await self._after_failure(failure, error.code, client, attempt)
                continue
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

    async def _after_failure(self, failure: Exception, code: int, client: Client | None, attempt: int) -> None:
        """Waits after a call without an answer. Raises OutcomeUnknown, CallForbidden, WorkerLost."""
        if not isinstance(failure, ServerUnavailable):
            raise failure
        if code == SESSION_LOST_CODE and client is not None:
            self._server.drop_connection(client)
        if failure.may_have_arrived and not self._is_repeatable():
            self._server.record_failure(failure.summary)
            reason = failure.message if code == SILENT_CODE else "the connection was lost"  # others name hosts
            raise OutcomeUnknown(self._unknown_text(f"{reason} while it ran"))
        self.calls.is_sent = failure.may_have_arrived
        await self.calls.wait_to_retry(failure, attempt)

    async def _start_call(self, client: Client) -> types.Result | TurnResult:
        """Calls the tool once. Raises MCPError."""
        state = self.output.state
        trace = CURRENT_TRACE.get()
        meta: Any = {TRACE_HEADER: trace} if trace else None
        is_retry = client.session.discover_result is not None and not state.open_call

        def call(on_progress: Any) -> Any:
            return client.session.call_tool(
                state.tool,
                dict(state.arguments),
                progress_callback=on_progress,
                input_responses=_typed_responses(state.responses) if is_retry else None,
                request_state=state.request_state if is_retry else None,
                meta=meta,
                allow_input_required=True,
                allow_claimed=True,
            )

        name = f"call of {state.tool} for {self.context.task_id}"
        return await self._step(self._server.calls.start(call, name, self.output.on_progress))

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
        answer = types.ElicitResult.model_validate(state.responses[""], by_name=False)
        call = self._server.calls.take(state.open_call)
        if call is None:
            if not self._is_repeatable():
                raise OutcomeUnknown(self._unknown_text("its call was lost while it waited for the answer"))
            self._replay = (params, answer)
            return await self._call()
        self.calls.is_sent = True
        call.on_progress = self.output.on_progress
        call.answer(answer)
        try:
            result = await self._step(call)
        except MCPError as error:
            failure = call_error(error)
            if failure is None:
                self._server.record_success()
                raise
            self._replay = (params, answer)
            await self._after_failure(failure, error.code, None, 1)
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
                return self.output.invalid(f'the tool "{tool}" declares an output, but its result has no data')
            content = result.structured_content
            if content is not None and (problem := self._server.check_output(tool, content)):
                return self.output.invalid(
                    f'the result of the tool "{tool}" does not match its output schema: {problem}'
                )
        return self.output.result_of(tool, result)

    def _required_urls(self, error: MCPError) -> TurnResult | None:
        """The question of an error that asks to visit a URL first (2025-11-25); None for other errors."""
        if error.code != types.URL_ELICITATION_REQUIRED or not isinstance(error.data, dict):
            return None
        found = error.data.get("elicitations")
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
                await self._wait(wait)
            task = await self.calls.repeat(lambda client: tasks_extension.get_task(client, self.handle))
            wait = task.poll_seconds
            match task.status:
                case "completed":
                    result = types.CallToolResult.model_validate(task.result or {}, by_name=False)
                    return self._result_of(result)
                case "failed":
                    error = task.error or {}
                    text = error.get("message") or task.status_message or "the task failed"
                    return self.output.failed("MCP_ERROR", f"{text} ({error.get('code', 0)})")
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
        await self.calls.repeat(lambda client: tasks_extension.update_task(client, self.handle, state.responses))
        answered = tuple(dict.fromkeys([*state.answered, *state.responses]))
        await self.output.store(replace(state, requests={}, responses={}, answered=answered))

    # Waiting ----------------------------------------------------------------------------------------------------

    async def _wait(self, seconds: float) -> None:
        """Waits for some seconds, or until `wake`."""
        waits = [asyncio.ensure_future(self._sleep(seconds)), asyncio.create_task(self._wakeup.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        self._wakeup.clear()

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
    return {key: types.ElicitResult.model_validate(value, by_name=False) for key, value in responses.items()}


def _is_same(one: types.ElicitRequestParams, other: types.ElicitRequestParams) -> bool:
    """Whether two questions are the same but for their ids."""
    return one.model_dump(exclude={"meta", "elicitation_id"}) == other.model_dump(exclude={"meta", "elicitation_id"})
