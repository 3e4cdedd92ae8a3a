"""A LangGraph graph for chaos runs, which executes the commands of agents.py as far as a graph has them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt


class ScriptedModel(BaseChatModel):
    """The model: it streams what the last prompt says."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        raise NotImplementedError("this model only streams")

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        text = prompt(messages)
        match text.partition("#")[0].split():
            case ["stream", count, pause]:
                for number in range(int(count)):
                    yield piece(f"{number} ")
                    await asyncio.sleep(int(pause) / 1000)
            case ["burst", count]:
                for number in range(int(count)):
                    yield piece(f"{number} ")
            case ["sleep", pause]:
                await asyncio.sleep(int(pause) / 1000)
                yield piece(text)
            case ["block", pause]:
                time.sleep(int(pause) / 1000)  # noqa: ASYNC251  # blocks the event loop on purpose
                yield piece(text)
            case ["fail"]:
                raise RuntimeError("failing, as asked")
            case _:
                yield piece(text)


def piece(text: str) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(content=text))


def prompt(messages: list[BaseMessage]) -> str:
    return str([message for message in messages if isinstance(message, HumanMessage)][-1].text)


async def review(state: MessagesState) -> dict[str, Any]:
    """Asks, if the message says so."""
    if prompt(state["messages"]).partition("#")[0].split()[-1] == "ask":
        interrupt({"question": "and then?"})
    return {}


async def model(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await ScriptedModel().ainvoke(state["messages"])]}


framed = (
    StateGraph(MessagesState)
    .add_node("review", review)
    .add_node("model", model)
    .add_edge(START, "review")
    .add_edge("review", "model")
    .add_edge("model", END)
    .compile(name="Framed")
)
