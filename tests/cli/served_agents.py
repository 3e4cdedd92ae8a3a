"""Agents that return their input."""

from __future__ import annotations

from dragoman import Retry, Turn, agent, types


@agent(default=True, input_modes=["*/*"], output_modes=["text/plain"])
async def files(turn: Turn) -> str:
    """Returns the names of the received files."""
    return "".join(f"{file.name} {file.media_type} {len(file.bytes)}\n" for file in turn.files)


@agent
async def quote(turn: Turn) -> str:
    """Returns context and text."""
    return f"{turn.message.context_id}: {turn.text}"


@agent
async def report(turn: Turn) -> list[types.Part]:
    """Returns parts of every kind, one with a file name that points outside the folder."""
    return [
        types.text("above\n"),
        types.data({"rows": 2}),
        types.file(b"a,b\n", name="../../etc/table.csv", media_type="text/csv"),
        types.link("https://example.com/chart.png", media_type="image/png"),
    ]


@agent(streaming=False)
async def still(turn: Turn) -> str:
    """Does not stream."""
    if turn.text == "ask":
        turn.ask("what?")
    return turn.text


@agent(retry=Retry(attempts=2, backoff=0.0))
async def steps(turn: Turn) -> str:
    """Has steps, one of which fails once."""

    def read(number: int) -> int:
        return number

    found = [await turn.step("page", read, number) for number in range(2)]
    if turn.attempt == 1:
        raise ConnectionError("away")
    return str(found)


@agent
async def table(turn: Turn) -> list[types.Part]:
    """Asks for a size, then for the details of a booking, and returns what it was told."""
    if turn.question is None and not turn.data:
        turn.ask([types.text("Which size?"), types.data({"choices": ["small", {"value": "l", "label": "Large"}]})])
    if turn.text:
        turn.state["size"] = turn.text
        fields = {"guests": {"type": "integer"}, "terrace": {"type": "boolean"}, "wish": {"type": "string"}}
        schema = {"type": "object", "properties": fields, "required": ["guests", "terrace"]}
        turn.ask([types.text("Who comes?"), types.data({"schema": schema})])
    return [types.data({"size": turn.state.get("size"), "data": turn.data})]


@agent
async def breaks(turn: Turn) -> str:
    """Raises an exception."""
    raise LookupError(f"no {turn.text}")
