"""Agents for the checks of MCP clients, beside the playground."""

from __future__ import annotations

import asyncio

from dragoman import Turn, agent, retry, types
from dragoman.playground import playground as playground

SUM = {
    "input": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "output": {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]},
    "annotations": {"readOnlyHint": True},
}
LIST = {
    "input": {"type": "object", "properties": {"count": {"type": "integer", "minimum": 0}}, "required": ["count"]},
    "output": {"type": "array", "items": {"type": "integer"}},
}
"""Its output is an array, which MCP before 2026-07-28 has neither as a schema nor as structured content."""

FORM = {
    "type": "object",
    "properties": {"size": {"type": "string", "enum": ["small", "large"]}, "count": {"type": "integer"}},
    "required": ["size", "count"],
}


def schemas(declared: dict[str, object]) -> list[dict[str, object]]:
    """The extension that declares the input and the output of an agent without skills."""
    return [{"uri": "urn:dragoman:schemas:v1", "params": {"": declared}}]


@agent(id="sum", name="Sum", description="Adds two integers", extensions=schemas(SUM))
async def add(turn: Turn) -> dict[str, object]:
    """Adds two integers."""
    (data,) = turn.data
    return {"total": data["a"] + data["b"]}


@agent(id="numbers", name="Numbers", description="Counts from 0", extensions=schemas(LIST))
async def numbers(turn: Turn) -> types.Part:
    """Counts from 0."""
    (data,) = turn.data
    return types.data(list(range(int(data["count"]))))


@agent(id="order", name="Order", description="Asks for a size and a count")
async def order(turn: Turn) -> str:
    """Asks for a size and a count, in one form."""
    if turn.question is None:
        turn.ask([types.text("What would you like?"), types.data({"schema": FORM})])
    if not turn.data:
        return f"no order: {turn.text}"
    (data,) = turn.data
    return f"{int(data['count'])} {data['size']}"


@agent(id="twice", name="Twice", description="Asks two questions, one after the other")
async def twice(turn: Turn) -> str:
    """Asks for a color and a number."""
    answers = turn.state.setdefault("answers", [])
    if turn.question is not None:
        answers.append(turn.text)
    if len(answers) < 2:
        turn.ask("Which color?" if not answers else "How many?")
    return " ".join(answers)


@agent(id="signed", name="Signed", description="Wants its caller to sign in elsewhere")
async def signed(turn: Turn) -> str:
    """Waits until its caller has signed in."""
    if turn.question is None:
        turn.need_auth("Sign in at https://login.example/start, then go on")
    return "signed in"


@agent(id="steady", name="Steady", description="Goes on after a crash of its server", on_crash=retry(3))
async def steady(turn: Turn) -> str:
    """Waits to be killed, and ends in its second attempt."""
    if turn.attempt == 1:
        turn.status("waiting for a crash")
        await asyncio.sleep(300)
    return f"attempt {turn.attempt}"


@agent(id="large", name="Large", description="Returns a text of a given length")
async def large(turn: Turn) -> str:
    """Returns a text of as many characters as the message says."""
    return "x" * int(turn.text)
