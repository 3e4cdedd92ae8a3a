"""Adapter for agents of the Microsoft Agent Framework."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from agent_framework import AgentSession, Content, Message

from .adapter import FrameworkAdapter, FrameworkTurn, InputFile, ToolInfo


class AgentFrameworkAdapter(FrameworkAdapter):
    """Runs an agent: text and tool calls are streamed, approvals become questions."""

    framework = "agent_framework"

    def describe(self) -> tuple[str, str, Iterable[ToolInfo]]:
        tools = (getattr(self.value, "default_options", None) or {}).get("tools") or []
        return (
            self.value.name or "",
            self.value.description or "",
            [ToolInfo(tool.name, tool.description or "") for tool in tools if hasattr(tool, "name")],
        )

    async def run(self, turn: FrameworkTurn) -> None:
        pending = turn.pending or {}
        saved = pending.get("session") or turn.conversation
        session = AgentSession.from_dict(saved) if saved else self.value.create_session()
        message = _answers(turn, pending["requests"]) if pending else _message(turn)
        streams_text = not (getattr(self.value, "default_options", None) or {}).get("response_format")
        calls = [request["function_call"] for request in pending.get("requests", ())]
        events = AgentRunEvents(turn, {call["call_id"]: call["name"] for call in calls}, streams_text=streams_text)
        stream = self.value.run(message, stream=True, session=session)
        async for update in stream:
            for content in update.contents:
                await events.handle(content)
        response = await stream.get_final_response()
        turn.usage((response.usage_details or {}).get("total_token_count") or 0)
        requests = response.user_input_requests
        if requests:
            saved_requests = [request.to_dict() for request in requests]
            turn.save_states(None, {"session": session.to_dict(), "requests": saved_requests})
            turn.ask(*_question(requests))
            return
        if not streams_text:
            await turn.data_artifact(response.value.model_dump(mode="json"))
        turn.save_states(session.to_dict())
        turn.complete()


class AgentRunEvents:
    """Sends what a run streams. Content arrives in pieces, and some clients repeat it in whole at its end."""

    def __init__(self, turn: FrameworkTurn, names: dict[str, str], *, streams_text: bool) -> None:
        """`names`: of the tools that were called before, by the id of the call. `streams_text`: text is the output."""
        self._turn = turn
        self._streams_text = streams_text
        self._names = names
        """Of the tools whose calls were reported."""
        self._calls: dict[str, Any] = {}
        """The received part of each call."""
        self._text = ""
        """The text received since it was last repeated."""

    async def handle(self, content: Any) -> None:
        if content.type == "text":
            if self._streams_text:
                await self._handle_text(content)
        elif content.type == "function_call" and content.call_id not in self._names:
            earlier = self._calls.get(content.call_id)
            call = self._calls[content.call_id] = content if earlier is None else earlier + content
            if _is_complete(call.arguments):
                await self._report_call(call)
        elif content.type == "function_result":
            if content.call_id in self._calls and content.call_id not in self._names:
                await self._report_call(self._calls[content.call_id])
            name = self._names.get(content.call_id, "")
            await self._turn.progress("tool_result", name, f"{name} has answered", id=content.call_id)

    async def _handle_text(self, content: Any) -> None:
        text = content.text or ""
        if getattr(content, "merge_mode", None) == "replace":
            await self._turn.chunk(text.removeprefix(self._text))
            self._text = ""
        else:
            await self._turn.chunk(text)
            self._text += text

    async def _report_call(self, call: Any) -> None:
        self._names[call.call_id] = call.name
        details = {"id": call.call_id, "arguments": call.parse_arguments()}
        await self._turn.progress("tool_call", call.name, f"calls {call.name}", **details)


def _is_complete(arguments: Any) -> bool:
    """Whether the arguments of a call have arrived in whole: an object, or its JSON."""
    try:
        return json.loads(arguments) is not None if isinstance(arguments, str) else arguments is not None
    except ValueError:
        return False


def _question(requests: Sequence[Any]) -> tuple[str, Any]:
    calls = [request.function_call for request in requests]
    texts = [f"{call.name}({call.arguments})" for call in calls]
    data = [
        {"id": request.id, "name": call.name, "arguments": call.parse_arguments()}
        for request, call in zip(requests, calls, strict=True)
    ]
    return f"Approve {', '.join(texts)}? Answer yes or no.", {"approvals": data}


def _answers(turn: FrameworkTurn, saved: Sequence[Any]) -> Any:
    """The caller's approvals: one for all, or a data part `{"approvals": {id: true}}`."""
    found = [value["approvals"] for value in turn.data if isinstance(value, dict) and "approvals" in value]
    given: dict[str, Any] = found[0] if found else {}
    requests = [Content.from_dict(one) for one in saved]
    contents = [
        request.to_function_approval_response(given.get(request.id, turn.approval) is True) for request in requests
    ]
    return Message(role="user", contents=contents)


def _message(turn: FrameworkTurn) -> Any:
    text = [Content.from_text(turn.prompt)] if turn.prompt else []
    return Message(role="user", contents=[*text, *map(_content, turn.files)])


def _content(file: InputFile) -> Any:
    if file.url:
        return Content.from_uri(file.url, media_type=file.media_type)
    return Content.from_data(file.data, file.media_type, name=file.name or None)
