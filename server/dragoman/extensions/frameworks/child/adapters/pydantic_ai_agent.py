"""Adapter for agents of pydantic-ai 2."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import pydantic
from pydantic_ai import (
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    messages,
)
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.run import AgentRunResult, AgentRunResultEvent

from ..steps import ExecutorSteps
from .adapter import FrameworkAdapter, FrameworkTurn, InputFile, ToolInfo

_ANY = pydantic.TypeAdapter(Any)
_REQUESTS = pydantic.TypeAdapter(DeferredToolRequests)
_RESPONSE = pydantic.TypeAdapter(messages.ModelResponse)
_TOOL_RETURN = pydantic.TypeAdapter(messages.ToolReturn)
_CONTENT: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(messages.ToolReturnContent)


class PydanticAiAdapter(FrameworkAdapter):
    """Runs an agent: text and tool calls are streamed, deferred tool calls become questions."""

    framework = "pydantic_ai"

    def describe(self) -> tuple[str, str, Iterable[ToolInfo]]:
        tools = [tool for toolset in self.value.toolsets for tool in getattr(toolset, "tools", {}).values()]
        description = getattr(self.value, "description", None) or ""
        return (
            self.value.name or "",
            description if isinstance(description, str) else "",
            [ToolInfo(tool.name, tool.description or "") for tool in tools],
        )

    async def run(self, turn: FrameworkTurn) -> None:
        history = turn.conversation
        results: DeferredToolResults | None = None
        prompt: str | list[Any] | None = turn.prompt
        if turn.files:
            prompt = [*([turn.prompt] if turn.prompt else []), *map(_content, turn.files)]
        if turn.pending is not None:
            history = turn.pending["messages"]
            results = _answers(turn, _REQUESTS.validate_python(turn.pending["requests"]))
            prompt = None
        stream = TextStream(turn)
        async with self.value.run_stream_events(
            prompt,
            message_history=ModelMessagesTypeAdapter.validate_python(history or []),
            deferred_tool_results=results,
            output_type=[self.value.output_type, DeferredToolRequests],
            capabilities=[DurableCalls(turn.steps)],
        ) as events:
            result = None
            async for event in events:
                if isinstance(event, AgentRunResultEvent):
                    result = event.result
                else:
                    await stream.handle(event)
        assert result is not None, "a run ends with its result"
        await self._finish(turn, result)

    async def _finish(self, turn: FrameworkTurn, result: AgentRunResult[Any]) -> None:
        usage = result.usage
        turn.usage((usage.input_tokens or 0) + (usage.output_tokens or 0), _cost(result.new_messages()))
        history = ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json")
        if isinstance(result.output, DeferredToolRequests):
            requests = _REQUESTS.dump_python(result.output, mode="json")
            turn.save_states(None, {"messages": history, "requests": requests})
            turn.ask(*_question(result.output))
            return
        await _send_output(turn, result.output)
        turn.save_states(history)
        turn.complete()


class DurableCalls(AbstractCapability[Any]):
    """Makes each call of a model or a tool a step: when the turn runs again, its response is what the first run got."""

    def __init__(self, steps: ExecutorSteps) -> None:
        self._steps = steps
        self._requests = 0

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> messages.ModelResponse:
        response: messages.ModelResponse | None = None

        async def request() -> bytes:
            nonlocal response
            response = await handler(request_context)
            return _RESPONSE.dump_json(response)

        self._requests += 1
        stored = await self._steps.run(f"model {self._requests}", request, "application/json")
        return response or _RESPONSE.validate_json(stored)

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        async def execute() -> bytes:
            try:
                value = await handler(args)
            except ModelRetry as error:
                return _ANY.dump_json({"retry": error.message})
            except (ApprovalRequired, CallDeferred) as error:
                return _ANY.dump_json({type(error).__name__: error.metadata})
            return _ANY.dump_json({"return" if isinstance(value, messages.ToolReturn) else "content": value})

        step, shown = _tool_step(call.tool_name, call.tool_call_id), args if isinstance(args, dict) else None
        stored = await self._steps.run(step, execute, "application/json", shown)
        ((kind, value),) = json.loads(stored).items()
        match kind:
            case "retry":
                raise ModelRetry(value)
            case "ApprovalRequired":
                raise ApprovalRequired(value)
            case "CallDeferred":
                raise CallDeferred(value)
            case "return":
                return _TOOL_RETURN.validate_python(value)
        return _CONTENT.validate_python(value)


class TextStream:
    """Sends the text of the final response as it arrives, and tool calls as progress.

    Text becomes part of the output only once the framework says that it is the result: a model may talk before it
    calls a tool.
    """

    def __init__(self, turn: FrameworkTurn) -> None:
        self._turn = turn
        self._text = ""
        """Text of the current part that is not sent."""
        self._is_final = False

    async def handle(self, event: Any) -> None:
        if isinstance(event, messages.PartStartEvent):
            self._text = event.part.content if isinstance(event.part, messages.TextPart) else ""
        elif isinstance(event, messages.PartDeltaEvent) and isinstance(event.delta, messages.TextPartDelta):
            self._text += event.delta.content_delta
        elif isinstance(event, messages.FinalResultEvent):
            self._is_final = event.tool_name is None
        elif isinstance(event, messages.FunctionToolCallEvent):
            self._is_final = False
            name, arguments = event.part.tool_name, event.part.args_as_dict()
            await self._report("tool_call", name, f"calls {name}", event.tool_call_id, arguments=arguments)
        elif isinstance(event, messages.FunctionToolResultEvent):
            name = event.part.tool_name or ""
            await self._report("tool_result", name, f"{name} has answered", event.tool_call_id)
        if self._is_final and self._text:
            text, self._text = self._text, ""
            await self._turn.chunk(text)

    async def _report(self, kind: str, name: str, text: str, id: str, **details: Any) -> None:
        if self._turn.steps.find(_tool_step(name, id)) is None:  # else an earlier run of this turn has reported it
            await self._turn.progress(kind, name, text, id=id, **details)


def _tool_step(name: str, call_id: str) -> str:
    """The name of the step of a tool call."""
    return f"{name} {call_id}"


def _cost(new: Sequence[messages.ModelMessage]) -> float:
    """US dollars of the model's responses, as far as pydantic-ai knows their prices."""
    cost = 0.0
    for message in new:
        if isinstance(message, messages.ModelResponse) and message.model_name:
            with suppress(LookupError, ValueError):  # a model without a known price, or a response without usage
                cost += float(message.cost().total_price)
    return cost


def _content(file: InputFile) -> Any:
    if not file.url:
        return messages.BinaryContent(data=file.data, media_type=file.media_type)
    kinds = {"image": messages.ImageUrl, "audio": messages.AudioUrl, "video": messages.VideoUrl}
    kind = kinds.get(file.media_type.partition("/")[0], messages.DocumentUrl)
    return kind(url=file.url, media_type=file.media_type)


async def _send_output(turn: FrameworkTurn, output: Any) -> None:
    if isinstance(output, messages.BinaryContent):
        await turn.file_artifact(output.data, output.media_type, output.identifier)
    elif not isinstance(output, str):
        await turn.data_artifact(_ANY.dump_python(output, mode="json"))
    elif not turn.has_output:  # an output function made it
        await turn.chunk(output)


def _question(requests: DeferredToolRequests) -> tuple[str, Any]:
    texts, data = [], {}
    for key, calls, text in (
        ("approvals", requests.approvals, "Approve {}? Answer yes or no."),
        ("calls", requests.calls, "What is the result of {}?"),
    ):
        if calls:
            texts.append(text.format(", ".join(f"{call.tool_name}({call.args_as_json_str()})" for call in calls)))
            data[key] = [
                {"id": call.tool_call_id, "name": call.tool_name, "arguments": call.args_as_dict()} for call in calls
            ]
    return " ".join(texts), data


def _answers(turn: FrameworkTurn, requests: DeferredToolRequests) -> DeferredToolResults:
    """The caller's answers: a data part `{"approvals": {id: true}, "results": {id: value}}`, or one answer for all."""
    given = next((value for value in turn.data if isinstance(value, dict)), {})
    approvals = {call.tool_call_id: turn.approval is True for call in requests.approvals}
    approvals.update({id: value is True for id, value in (given.get("approvals") or {}).items() if id in approvals})
    calls: dict[str, Any] = {call.tool_call_id: turn.prompt for call in requests.calls}
    calls.update({id: value for id, value in (given.get("results") or {}).items() if id in calls})
    return requests.build_results(approvals=approvals, calls=calls)
