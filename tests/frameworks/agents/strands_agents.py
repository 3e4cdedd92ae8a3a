"""The agents of the contract suite, in Strands, with a model that follows a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from strands import Agent, ToolContext, tool
from strands.models import Model


def text_of(message: Any) -> str:
    return "".join(block.get("text", "") for block in message["content"])


class ScriptedModel(Model):
    """The model: it does what the last prompt says, and answers with what tools have returned."""

    def update_config(self, **_: Any) -> None:
        pass

    def get_config(self) -> Any:
        return {}

    async def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("the suite uses structured_output_model")
        yield {}

    async def stream(self, messages: Any, tool_specs: Any = None, *_: Any, **__: Any) -> AsyncIterator[Any]:
        yield {"messageStart": {"role": "assistant"}}
        stop = "end_turn"
        async for piece in self.pieces(messages, tool_specs or []):
            if isinstance(piece, str):
                if stop == "end_turn":
                    yield {"contentBlockStart": {"start": {}}}
                    stop = "text"
                yield {"contentBlockDelta": {"delta": {"text": piece}}}
                continue
            name, arguments = piece
            stop = "tool_use"
            yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": f"call-{name}"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if stop == "text" else stop}}
        yield {
            "metadata": {
                "usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15},
                "metrics": {"latencyMs": 1},
            }
        }

    async def pieces(self, messages: Any, tool_specs: Any) -> AsyncIterator[Any]:
        prompts = [one for one in messages if one["role"] == "user" and text_of(one)]
        text = text_of(prompts[-1])
        results = [block["toolResult"] for block in messages[-1]["content"] if "toolResult" in block]
        if results:
            yield f"the tool returned {text_of(results[0])}"
        elif text.startswith("stream"):
            for number in range(3):
                yield f"chunk {number}\n"
                await asyncio.sleep(0.01)
        elif text.startswith("tool"):
            yield "double", {"number": 21}
        elif text.startswith("delete"):
            yield "delete", {"name": "all.txt"}
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
            files = [block["image"] for block in prompts[-1]["content"] if "image" in block]
            yield ", ".join(f"{len(file['source']['bytes'])} bytes of image/{file['format']}" for file in files)
        else:
            yield f"you said: {text}"


@tool
def double(number: int) -> int:
    """Doubles a number."""
    return 2 * number


@tool(context=True)
def delete(name: str, tool_context: ToolContext) -> str:
    """Deletes a file."""
    answer = tool_context.interrupt("delete", reason={"name": name})
    if answer not in ("yes", {"approved": True}):
        return f"{name} stays"
    Path("deleted").write_text(name)
    return f"{name} is deleted"


assistant = Agent(ScriptedModel(), tools=[double, delete], name="Assistant", description="Follows a script")


class City(BaseModel):
    """A city."""

    name: str
    people: int


class Extractor(ScriptedModel):
    async def pieces(self, messages: Any, tool_specs: Any) -> AsyncIterator[Any]:
        yield "City", {"name": "Rome", "people": 2_800_000}


structured = Agent(Extractor(), structured_output_model=City, name="Structured")
"""Returns structured data."""
