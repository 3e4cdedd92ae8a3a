"""Follows a script"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

USAGE = UsageMetadata(input_tokens=10, output_tokens=5, total_tokens=15)


class ScriptedModel(BaseChatModel):
    """The model: it does what the last prompt says, and answers with what tools have returned."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content="not streamed"))])

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in pieces(messages):
            yield ChatGenerationChunk(message=chunk)
            await asyncio.sleep(0.01)
        yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=USAGE))


def pieces(messages: Sequence[BaseMessage]) -> Iterator[AIMessageChunk]:
    prompts = [message for message in messages if isinstance(message, HumanMessage)]
    content = prompts[-1].content
    text = prompts[-1].text
    if text.startswith("buy") and isinstance(messages[-1], HumanMessage):
        bill("plan")
        yield call("charge", {"item": "a boat"}, "call-3")
    elif text.startswith("buy"):
        bill("report")
        yield AIMessageChunk(content="bought")
    elif isinstance(messages[-1], ToolMessage):
        yield AIMessageChunk(content=f"the tool returned {messages[-1].text}")
    elif text.startswith("stream"):
        for number in range(3):
            yield AIMessageChunk(content=f"chunk {number}\n")
    elif text.startswith("tool"):
        yield call("double", {"number": 21}, "call-1")
    elif text.startswith("delete"):
        yield call("delete", {"name": "all.txt"}, "call-2")
    elif text.startswith("fail"):
        raise ConnectionError("the model is away")
    elif text.startswith("remember"):
        yield AIMessageChunk(content="noted")
    elif text.startswith("recall"):
        yield AIMessageChunk(content=" and ".join(message.text for message in prompts[:-1]))
    elif text.startswith("file"):
        files = [block for block in content if isinstance(block, dict) and block["type"] != "text"]
        sizes = [(len(block["base64"]) * 3 // 4 - block["base64"].count("="), block["mime_type"]) for block in files]
        yield AIMessageChunk(content=", ".join(f"{size} bytes of {kind}" for size, kind in sizes))
    else:
        yield AIMessageChunk(content=f"you said: {text}")


def call(name: str, arguments: dict[str, Any], id: str) -> AIMessageChunk:
    return AIMessageChunk(content="", tool_calls=[{"name": name, "args": arguments, "id": id}])


@tool
def double(number: int) -> int:
    """Doubles a number."""
    return 2 * number


def bill(item: str) -> None:
    """Writes down what was paid for."""
    with Path("bill").open("a") as file:
        file.write(f"{item}\n")


@tool
def charge(item: str) -> str:
    """Charges for an item."""
    bill(item)
    return f"{item} is charged"


@tool
def delete(name: str) -> str:
    """Deletes a file."""
    answer = interrupt({"question": f"delete {name}?"})
    if answer not in ("yes", {"approved": True}):
        return f"{name} stays"
    Path("deleted").write_text(name)
    return f"{name} is deleted"


async def wait_for_kill() -> None:
    """Waits until the process is killed, once."""
    if not Path("killed").exists():
        Path("waiting").touch()
        await asyncio.Event().wait()


async def model(state: MessagesState) -> dict[str, Any]:
    if state["messages"][-1].text.startswith("hang"):
        Path("hanging").touch()
        try:
            await asyncio.Event().wait()
        finally:
            Path("stopped").touch()
    if isinstance(state["messages"][-1], ToolMessage) and state["messages"][-1].name == "charge":
        await wait_for_kill()
    return {"messages": [await ScriptedModel().ainvoke(state["messages"])]}


def next_node(state: MessagesState) -> str:
    return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END


assistant = (
    StateGraph(MessagesState)
    .add_node("model", model)
    .add_node("tools", ToolNode([double, charge, delete]))
    .add_edge(START, "model")
    .add_conditional_edges("model", next_node)
    .add_edge("tools", "model")
    .compile(name="Assistant")
)


@tool("delete")
def delete_at_once(name: str) -> str:
    """Deletes a file."""
    Path("deleted").write_text(name)
    return f"{name} is deleted"


reviewed = create_agent(
    ScriptedModel(), [delete_at_once], middleware=[HumanInTheLoopMiddleware(interrupt_on={"delete": True})]
)
"""An agent of LangChain, whose middleware asks for approvals."""


class City(TypedDict, total=False):
    name: str
    people: int


class Question(TypedDict):
    question: str


async def extract(state: Question) -> City:
    return {"name": "Rome", "people": 2_800_000}


structured = (
    StateGraph(City, input_schema=Question, output_schema=City)
    .add_node("extract", extract)
    .add_edge(START, "extract")
    .add_edge("extract", END)
    .compile()
)
"""Returns structured data."""


class Order(TypedDict):
    item: str
    customer: str
    guests: int


async def place(state: Order) -> dict[str, Any]:
    return {"item": f"{state['item']} for {state['customer']} and {state['guests']} guests"}


ordered = StateGraph(Order).add_node("place", place).add_edge(START, "place").add_edge("place", END).compile()
"""Has an input of several fields."""


class HastyModel(ScriptedModel):
    """A model that never waits: it ends before anybody has read its text."""

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for number in range(1000):
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"{number} "))


async def flood(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await HastyModel().ainvoke(state["messages"])]}


async def hold(state: MessagesState) -> dict[str, Any]:
    await wait_for_kill()
    return {}


flooded = (
    StateGraph(MessagesState)
    .add_node("flood", flood)
    .add_node("hold", hold)
    .add_edge(START, "flood")
    .add_edge(START, "hold")
    .add_edge("flood", END)
    .add_edge("hold", END)
    .compile(name="Flooded")
)
"""Has a node that ends while its text is still being read, beside one that goes on."""
