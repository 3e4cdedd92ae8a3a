"""The agents of the contract suite, in the OpenAI Agents SDK, with a model that follows a script."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails
from pydantic import BaseModel

from agents import Agent, Model, ModelResponse, function_tool


def text_of(item: Any) -> str:
    content = item.get("content", "")
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class ScriptedModel(Model):
    """The model: it does what the last prompt says, and answers with what tools have returned."""

    async def get_response(self, *args: Any, **_: Any) -> ModelResponse:
        raise NotImplementedError("the runs of the suite are streamed")

    async def stream_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        output: list[Any] = []
        text = ""
        async for piece in self.pieces(items):
            if not isinstance(piece, str):
                output.append(piece)
                continue
            text += piece
            yield ResponseTextDeltaEvent(
                content_index=0,
                delta=piece,
                item_id="item",
                logprobs=[],
                output_index=0,
                sequence_number=1,
                type="response.output_text.delta",
            )
        if text:
            content = [ResponseOutputText(annotations=[], text=text, type="output_text", logprobs=[])]
            output.append(
                ResponseOutputMessage(id="item", content=content, role="assistant", status="completed", type="message")
            )
        usage = ResponseUsage(
            input_tokens=10,
            output_tokens=5,
            total_tokens=15,
            input_tokens_details=InputTokensDetails.model_construct(cached_tokens=0, cache_write_tokens=0),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
        )
        response = Response(
            id="response",
            created_at=time.time(),
            model="scripted",
            object="response",
            output=output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=False,
            usage=usage,
        )
        yield ResponseCompletedEvent(response=response, sequence_number=2, type="response.completed")

    async def pieces(self, items: list[Any]) -> AsyncIterator[Any]:
        prompts = [item for item in items if item.get("role") == "user"]
        text = text_of(prompts[-1])
        if items[-1].get("type") == "function_call_output":
            yield f"the tool returned {items[-1]['output']}"
        elif text.startswith("stream"):
            for number in range(3):
                yield f"chunk {number}\n"
                await asyncio.sleep(0.01)
        elif text.startswith("tool"):
            yield call("double", {"number": 21}, "call-1")
        elif text.startswith("delete"):
            yield call("delete", {"name": "all.txt"}, "call-2")
        elif text.startswith("fail"):
            raise ConnectionError("the model is away")
        elif text.startswith("hang"):
            Path("hanging").touch()
            try:
                await asyncio.Event().wait()
            finally:
                Path("stopped").touch()
        elif text.startswith("remember"):
            yield "noted"
        elif text.startswith("recall"):
            yield " and ".join(map(text_of, prompts[:-1]))
        elif text.startswith("file"):
            files = [part for part in prompts[-1]["content"] if part["type"] == "input_image"]
            heads = [part["image_url"].removeprefix("data:").partition(";base64,") for part in files]
            yield ", ".join(f"{len(data) * 3 // 4 - data.count('=')} bytes of {kind}" for kind, _, data in heads)
        else:
            yield f"you said: {text}"


def call(name: str, arguments: dict[str, Any], id: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        id=id, call_id=id, name=name, arguments=json.dumps(arguments), type="function_call", status="completed"
    )


@function_tool
def double(number: int) -> int:
    """Doubles a number."""
    return 2 * number


@function_tool(needs_approval=True)
def delete(name: str) -> str:
    """Deletes a file."""
    Path("deleted").write_text(name)
    return f"{name} is deleted"


assistant = Agent(
    name="Assistant", handoff_description="Follows a script", model=ScriptedModel(), tools=[double, delete]
)


class City(BaseModel):
    name: str
    people: int


class Extractor(ScriptedModel):
    async def pieces(self, items: list[Any]) -> AsyncIterator[Any]:
        yield '{"name": "Rome", "people": 2800000}'


structured = Agent(name="Structured", model=Extractor(), output_type=City)
"""Returns structured data."""
