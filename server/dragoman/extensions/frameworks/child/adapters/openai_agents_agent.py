"""Adapter for agents of the OpenAI Agents SDK."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import pydantic
from agents.stream_events import AgentUpdatedStreamEvent, RawResponsesStreamEvent, RunItemStreamEvent

from agents import Agent, RunConfig, Runner, RunResultStreaming, RunState

from .adapter import FrameworkAdapter, FrameworkTurn, InputFile, ToolInfo

_ANY = pydantic.TypeAdapter(Any)


class OpenAIAgentsAdapter(FrameworkAdapter):
    """Runs an agent: text, tool calls and handoffs are streamed, tool approvals become questions."""

    framework = "openai_agents"

    def describe(self) -> tuple[str, str, Iterable[ToolInfo]]:
        agent: Agent[Any] = self.value
        tools = [ToolInfo(tool.name, getattr(tool, "description", "") or "") for tool in agent.tools]
        return agent.name, agent.handoff_description or "", tools

    async def run(self, turn: FrameworkTurn) -> None:
        pending = turn.pending or {}
        session = ConversationSession(turn.turn.context_id, pending.get("items") or turn.conversation or [])
        given: Any = _run_input(turn)
        if pending:
            given = await RunState.from_json(self.value, pending["state"])
            _answer(turn, given)
        # Traces go to OpenAI: only with its key, as without Dragoman.
        config = RunConfig(tracing_disabled=not os.environ.get("OPENAI_API_KEY"))
        called = given.get_interruptions() if pending else []
        events = OpenAIRunEvents(turn, {_field(item.raw_item, "call_id"): item.name or "" for item in called})
        result = Runner.run_streamed(self.value, given, session=session, run_config=config)
        try:
            async for event in result.stream_events():
                await events.handle(event)
        finally:
            if not result.is_complete:
                result.cancel()
        await _finish(turn, result, session)


class OpenAIRunEvents:
    """Sends what a run streams."""

    def __init__(self, turn: FrameworkTurn, tool_names: dict[str, str]) -> None:
        """`tool_names`: of the tools that were called before, by the id of the call."""
        self._turn = turn
        self._streams_text = True
        """Whether the model's text belongs to the output, and is no JSON of a structured result."""
        self._tool_names = tool_names

    async def handle(self, event: Any) -> None:
        if isinstance(event, RawResponsesStreamEvent):
            if event.data.type == "response.output_text.delta" and self._streams_text:
                await self._turn.chunk(event.data.delta)
        elif isinstance(event, AgentUpdatedStreamEvent):
            self._streams_text = event.new_agent.output_type is None
        elif isinstance(event, RunItemStreamEvent):
            await self._handle_item(event.name, event.item)

    async def _handle_item(self, kind: str, item: Any) -> None:
        call_id = _field(item.raw_item, "call_id")
        if kind == "tool_called":
            name = self._tool_names[call_id] = _field(item.raw_item, "name")
            details = {"id": call_id, "arguments": _arguments(_field(item.raw_item, "arguments"))}
            await self._turn.progress("tool_call", name, f"calls {name}", **details)
        elif kind == "tool_output":
            name = self._tool_names.get(call_id, "")
            await self._turn.progress("tool_result", name, f"{name} has answered", id=call_id)
        elif kind == "handoff_occured":  # the SDK's spelling
            name = item.target_agent.name
            await self._turn.progress("handoff", name, f"{name} takes over")


async def _finish(turn: FrameworkTurn, result: RunResultStreaming, session: ConversationSession) -> None:
    turn.usage(result.context_wrapper.usage.total_tokens)
    if result.interruptions:
        state = _ANY.dump_python(result.to_state().to_json(), mode="json")
        turn.save_states(None, {"state": state, "items": session.items})
        calls = [f"{item.name}({item.arguments})" for item in result.interruptions]
        data = [
            {
                "id": _field(item.raw_item, "call_id"),
                "name": item.name,
                "arguments": _arguments(item.arguments or ""),
            }
            for item in result.interruptions
        ]
        turn.ask(f"Approve {', '.join(calls)}? Answer yes or no.", {"approvals": data})
        return
    output = result.final_output
    if not isinstance(output, str):
        await turn.data_artifact(_ANY.dump_python(output, mode="json"))
    elif not turn.has_output:
        await turn.chunk(output)
    turn.save_states(session.items)
    turn.complete()


def _answer(turn: FrameworkTurn, state: RunState[Any, Any]) -> None:
    """The caller's approvals: one for all, or a data part `{"approvals": {id: true}}`."""
    given: dict[str, Any] = next(
        (value["approvals"] for value in turn.data if isinstance(value, dict) and "approvals" in value), {}
    )
    for item in state.get_interruptions():
        if given.get(_field(item.raw_item, "call_id"), turn.approval) is True:
            state.approve(item)
        else:
            state.reject(item)


def _run_input(turn: FrameworkTurn) -> str | list[Any]:
    if not turn.files:
        return turn.prompt
    text = [{"type": "input_text", "text": turn.prompt}] if turn.prompt else []
    return [{"role": "user", "content": [*text, *map(_content, turn.files)]}]


def _content(file: InputFile) -> dict[str, Any]:
    url = file.url or f"data:{file.media_type};base64,{b64encode(file.data).decode()}"
    if file.media_type.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    source = {"file_url": url} if file.url else {"file_data": url, "filename": file.name or "file"}
    return {"type": "input_file", **source}


def _field(raw: Any, name: str) -> str:
    """A field of an item, which is an object or a dict."""
    return str((raw.get(name) if isinstance(raw, dict) else getattr(raw, name, "")) or "")


def _arguments(text: str) -> Any:
    """The arguments of a call. The text itself if the model wrote no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


class ConversationSession:
    """A session whose items are kept in our store. Implements the SDK's `Session`."""

    session_settings = None

    def __init__(self, session_id: str, items: Sequence[Any]) -> None:
        self.session_id = session_id
        self.items = list(items)
        """JSON of the conversation."""

    async def get_items(self, limit: int | None = None, **_: Any) -> list[Any]:
        return self.items if limit is None else self.items[max(len(self.items) - limit, 0) :]

    async def add_items(self, items: list[Any], **_: Any) -> None:
        self.items += _ANY.dump_python(items, mode="json")

    async def pop_item(self, **_: Any) -> Any:
        return self.items.pop() if self.items else None

    async def clear_session(self, **_: Any) -> None:
        self.items.clear()
