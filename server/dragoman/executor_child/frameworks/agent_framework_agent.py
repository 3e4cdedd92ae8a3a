"""Adapter for agents of the Microsoft Agent Framework."""

from __future__ import annotations

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
        names: dict[str, str] = {call["call_id"]: call["name"] for call in calls}
        stream = self.value.run(message, stream=True, session=session)
        async for update in stream:
            for content in update.contents:
                if content.type == "text" and streams_text:
                    await turn.chunk(content.text or "")
                else:
                    await _report_tool(turn, content, names)
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


async def _report_tool(turn: FrameworkTurn, content: Any, names: dict[str, str]) -> None:
    if content.type == "function_call" and content.name and content.call_id not in names:
        names[content.call_id] = content.name
        details = {"id": content.call_id, "arguments": content.parse_arguments()}
        await turn.progress("tool_call", content.name, f"calls {content.name}", **details)
    elif content.type == "function_result":
        name = names.get(content.call_id, "")
        await turn.progress("tool_result", name, f"{name} has answered", id=content.call_id)


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
