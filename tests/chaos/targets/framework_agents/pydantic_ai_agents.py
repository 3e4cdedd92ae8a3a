"""A pydantic-ai agent for chaos runs, which executes the commands of agents.py as far as it has them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


def prompt(messages: list[ModelMessage]) -> str:
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    content = [part.content for part in parts if isinstance(part, UserPromptPart)][-1]
    return content if isinstance(content, str) else "\n".join(item for item in content if isinstance(item, str))


async def script(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """The model: it streams what the last prompt says."""
    text = prompt(messages)
    match text.partition("#")[0].split():
        case ["stream", count, pause]:
            for number in range(int(count)):
                yield f"{number} "
                await asyncio.sleep(int(pause) / 1000)
        case ["burst", count]:
            for number in range(int(count)):
                yield f"{number} "
        case ["sleep", pause]:
            await asyncio.sleep(int(pause) / 1000)
            yield text
        case ["block", pause]:
            time.sleep(int(pause) / 1000)  # noqa: ASYNC251  # blocks the event loop on purpose
            yield text
        case ["fail"]:
            raise RuntimeError("failing, as asked")
        case _:
            yield text


framed: Agent[None, str] = Agent(FunctionModel(stream_function=script), name="Framed", description="Follows a script")
"""It has no tools, which would be the tools of MCP in place of the agent. So it does not ask."""
