"""A graph of one node that returns the text it gets, for the development server of LangGraph (`langgraph dev`)."""

from __future__ import annotations

from typing import Annotated

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict


class Conversation(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def answer(state: Conversation) -> Conversation:
    return {"messages": [AIMessage(state["messages"][-1].text)]}


graph = StateGraph(Conversation).add_node("answer", answer).add_edge(START, "answer").add_edge("answer", END).compile()
