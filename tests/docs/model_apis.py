"""The APIs by which SDKs call a model: Chat Completions and Responses of OpenAI, and Gemini's generateContent.

Only what a conversation of text and function calls needs. Each API reads a request as a `Conversation` and writes a
`Reply`: as one JSON object, or as server-sent events.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

Json = dict[str, Any]

USAGE = (10, 5)
"""Tokens of every request and of every reply."""


@dataclass(frozen=True)
class Conversation:
    """What a model is sent."""

    prompts: Sequence[str]
    """Texts of the user, the last one last."""
    results: Sequence[str]
    """What tools have returned, the last one last."""
    steps: int
    """How often the model has replied to the last prompt."""
    items: Sequence[Json] = ()
    """The conversation as the API has it, if the API keeps it."""


@dataclass(frozen=True)
class ToolCall:
    id: str
    name: str
    arguments: Json

    @property
    def json(self) -> str:
        """The arguments as JSON."""
        return json.dumps(self.arguments)

    @property
    def pieces(self) -> list[str]:
        """The pieces in which the arguments are streamed."""
        return re.findall(r"\S+\s*", self.json)


@dataclass(frozen=True)
class Reply:
    """A text, or the call of a tool. `number` is unique."""

    conversation: Conversation
    number: int
    text: str = ""
    call: ToolCall | None = None

    @property
    def words(self) -> list[str]:
        """The pieces in which the text is streamed."""
        return re.findall(r"\S+\s*", self.text)


class ModelApi(Protocol):
    def read(self, body: Json) -> Conversation:
        """Reads the body of a request."""
        ...

    def whole(self, reply: Reply) -> Json:
        """The response to a request without streaming."""
        ...

    def events(self, reply: Reply) -> Iterator[str]:
        """The events of a stream, without their line ends."""
        ...


class _Reader:
    """Gathers a conversation from the entries of a request, in their order."""

    def __init__(self) -> None:
        self._prompts: list[str] = []
        self._results: list[str] = []
        self._steps = 0

    def prompt(self, text: str) -> None:
        self._prompts.append(text)
        self._steps = 0

    def result(self, value: Any) -> None:
        self._results.append(value if isinstance(value, str) else json.dumps(value))

    def step(self) -> None:
        self._steps += 1

    def conversation(self, items: Sequence[Json] = ()) -> Conversation:
        return Conversation(self._prompts, self._results, self._steps, items)


def _text(content: Any) -> str:
    """The text of content: a string, or parts."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or [])


class ChatCompletions:
    """POST /v1/chat/completions."""

    def read(self, body: Json) -> Conversation:
        reader = _Reader()
        for message in body["messages"]:
            if message["role"] == "user":
                reader.prompt(_text(message["content"]))
            elif message["role"] == "tool":
                reader.result(_text(message["content"]))
            elif message["role"] == "assistant":
                reader.step()
        return reader.conversation()

    def whole(self, reply: Reply) -> Json:
        message = {"role": "assistant", "content": reply.text or None, **self._calls(reply)}
        choice = {"index": 0, "message": message, "finish_reason": self._reason(reply)}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage()}

    def events(self, reply: Reply) -> Iterator[str]:
        deltas: list[Json] = [{"role": "assistant", "content": word} for word in reply.words]
        if reply.call:
            (call,) = self._calls(reply)["tool_calls"]
            begun = {**call, "function": {"name": reply.call.name, "arguments": ""}}
            deltas = [{"role": "assistant", "content": None, "tool_calls": [begun]}]
            deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": one}}]} for one in reply.call.pieces]
        for delta in deltas:
            yield self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])
        yield self._chunk([{"index": 0, "delta": {}, "finish_reason": self._reason(reply)}])
        yield self._chunk([], usage=self._usage())
        yield "data: [DONE]"

    def _chunk(self, choices: list[Json], **more: Any) -> str:
        return f"data: {json.dumps({**self._head('chat.completion.chunk'), 'choices': choices, **more})}"

    def _head(self, kind: str) -> Json:
        return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "scripted"}

    def _calls(self, reply: Reply) -> Json:
        if reply.call is None:
            return {}
        function = {"name": reply.call.name, "arguments": reply.call.json}
        return {"tool_calls": [{"index": 0, "id": reply.call.id, "type": "function", "function": function}]}

    def _reason(self, reply: Reply) -> str:
        return "tool_calls" if reply.call else "stop"

    def _usage(self) -> Json:
        return {"prompt_tokens": USAGE[0], "completion_tokens": USAGE[1], "total_tokens": sum(USAGE)}


class Responses:
    """POST /v1/responses. It keeps conversations: a request may go on after the response that it names."""

    def __init__(self) -> None:
        self._kept: dict[str, Sequence[Json]] = {}
        """The items of a conversation, by its last response."""

    def read(self, body: Json) -> Conversation:
        reader = _Reader()
        given = body["input"]
        new = [{"role": "user", "content": given}] if isinstance(given, str) else given
        items = [*self._kept.get(body.get("previous_response_id") or "", ()), *new]
        for item in items:
            if item.get("role") == "user":
                reader.prompt(_text(item["content"]))
            elif item.get("type") == "function_call_output":
                reader.result(_text(item["output"]))
            elif item.get("type") == "function_call" or item.get("role") == "assistant":
                reader.step()
        return reader.conversation(items)

    def whole(self, reply: Reply) -> Json:
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        usage = {"input_tokens": USAGE[0], "output_tokens": USAGE[1], "total_tokens": sum(USAGE), **details}
        item = self._item(reply)
        self._kept[f"resp_{reply.number}"] = [*reply.conversation.items, item]
        return {**self._head(reply, "completed"), "output": [item], "usage": usage}

    def events(self, reply: Reply) -> Iterator[str]:
        numbers = itertools.count()
        item, at = self._item(reply), {"output_index": 0, "item_id": self._item(reply)["id"]}
        empty: Json = {"arguments": ""} if reply.call else {"content": []}
        begun = {**item, "status": "in_progress", **empty}

        def event(kind: str, **fields: Any) -> str:
            return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': next(numbers), **fields})}"

        yield event("response.created", response={**self._head(reply, "in_progress"), "output": []})
        yield event("response.output_item.added", output_index=0, item=begun)
        if reply.call:
            for piece in reply.call.pieces:
                yield event("response.function_call_arguments.delta", **at, delta=piece)
            yield event("response.function_call_arguments.done", **at, name=reply.call.name, arguments=reply.call.json)
        else:
            (part,) = item["content"]
            at["content_index"] = 0
            yield event("response.content_part.added", **at, part={**part, "text": ""})
            for word in reply.words:
                yield event("response.output_text.delta", **at, delta=word, logprobs=[])
            yield event("response.output_text.done", **at, text=reply.text, logprobs=[])
            yield event("response.content_part.done", **at, part=part)
        yield event("response.output_item.done", output_index=0, item=item)
        yield event("response.completed", response=self.whole(reply))

    def _item(self, reply: Reply) -> Json:
        if reply.call is None:
            part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
            return {
                "id": f"msg_{reply.number}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        call = {"call_id": reply.call.id, "name": reply.call.name, "arguments": reply.call.json}
        return {"id": f"fc_{reply.call.id}", "type": "function_call", "status": "completed", **call}

    def _head(self, reply: Reply, status: str) -> Json:
        fixed = {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
        return {
            "id": f"resp_{reply.number}",
            "object": "response",
            "created_at": 1,
            "model": "scripted",
            "status": status,
            **fixed,
            **dict.fromkeys(("error", "incomplete_details", "instructions", "metadata", "usage")),
        }


class Gemini:
    """POST /v1beta/models/MODEL:generateContent, and :streamGenerateContent."""

    def read(self, body: Json) -> Conversation:
        reader = _Reader()
        for content in body["contents"]:
            for part in content["parts"]:
                if "functionResponse" in part:
                    reader.result(part["functionResponse"]["response"].get("result", ""))
            if content.get("role") == "model":
                reader.step()
            elif text := _text(content["parts"]):
                reader.prompt(text)
        return reader.conversation()

    def whole(self, reply: Reply) -> Json:
        if reply.call is None:
            return self._response({"text": reply.text}, last=True)
        call = {"id": reply.call.id, "name": reply.call.name, "args": reply.call.arguments}
        return self._response({"functionCall": call}, last=True)

    def events(self, reply: Reply) -> Iterator[str]:
        *words, _ = reply.words or [""]
        for word in words:
            yield f"data: {json.dumps(self._response({'text': word}, last=False))}"
        last = replace(reply, text=reply.text.removeprefix("".join(words)))
        yield f"data: {json.dumps(self.whole(last))}"

    def _response(self, part: Json, *, last: bool) -> Json:
        candidate: Json = {"index": 0, "content": {"role": "model", "parts": [part]}}
        usage = {"promptTokenCount": USAGE[0], "candidatesTokenCount": USAGE[1], "totalTokenCount": sum(USAGE)}
        if last:
            candidate["finishReason"] = "STOP"
        return {"candidates": [candidate], "modelVersion": "scripted", **({"usageMetadata": usage} if last else {})}
