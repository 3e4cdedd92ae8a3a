"""The agents of the contract suite, in pydantic-ai, with a model that follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel


def prompts(messages: list[ModelMessage]) -> list[Any]:
    """The contents of all user prompts, the last one last."""
    found = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return [part.content for part in found if isinstance(part, UserPromptPart)]


def returned(messages: list[ModelMessage]) -> list[Any]:
    """What tools have returned since the last prompt."""
    last = messages[-1]
    return [part.content for part in last.parts if isinstance(part, ToolReturnPart)]


def bill(item: str) -> None:
    """Writes down what was paid for."""
    with Path("bill").open("a") as file:
        file.write(f"{item}\n")


async def wait_for_kill() -> None:
    """Waits until the process is killed, once."""
    if not Path("killed").exists():
        Path("waiting").touch()
        await asyncio.Event().wait()


async def script(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """The model: it does what the last prompt says, and answers with what tools have returned."""
    content = prompts(messages)[-1]
    items = content if isinstance(content, list | tuple) else [content]
    text = "\n".join(item for item in items if isinstance(item, str))
    if text.startswith("buy") and not returned(messages):
        bill("plan")
        yield {0: DeltaToolCall(name="charge", json_args='{"item": "a boat"}', tool_call_id="call-3")}
    elif text.startswith("buy"):
        await wait_for_kill()
        bill("report")
        yield "bought"
    elif results := returned(messages):
        yield f"the tool returned {results[0]}"
    elif text.startswith("stream"):
        for number in range(3):
            yield f"chunk {number}\n"
            await asyncio.sleep(0.01)
    elif text.startswith("tool"):
        yield {0: DeltaToolCall(name="double", json_args='{"number": 21}', tool_call_id="call-1")}
    elif text.startswith("delete"):
        yield {0: DeltaToolCall(name="delete", json_args='{"name": "all.txt"}', tool_call_id="call-2")}
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
        yield " and ".join(one for one in map(str, prompts(messages)[:-1]))
    elif text.startswith("file"):
        files = [item for item in items if isinstance(item, BinaryContent)]
        yield ", ".join(f"{len(file.data)} bytes of {file.media_type}" for file in files)
    else:
        yield f"you said: {text}"


assistant: Agent[None, str] = Agent(
    FunctionModel(stream_function=script), name="Assistant", description="Follows a script"
)


@assistant.tool_plain
def double(number: int) -> int:
    """Doubles a number."""
    return 2 * number


@assistant.tool_plain
def charge(item: str) -> str:
    """Charges for an item."""
    bill(item)
    return f"{item} is charged"


@assistant.tool_plain(requires_approval=True)
def delete(name: str) -> str:
    """Deletes a file."""
    Path("deleted").write_text(name)
    return f"{name} is deleted"


class City(BaseModel):
    name: str
    people: int


async def extract(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    yield {0: DeltaToolCall(name=info.output_tools[0].name, json_args='{"name": "Rome", "people": 2800000}')}


structured: Agent[None, City] = Agent(FunctionModel(stream_function=extract), output_type=City)
"""Returns structured data."""

priced = Agent(FunctionModel(stream_function=script, model_name="gpt-4o"))
"""Follows the script with a model whose price is known."""

unknown = {"an": "object of no known kind"}
