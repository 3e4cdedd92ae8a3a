"""Two agents in ten lines: `dragoman serve examples/ten_lines.py`."""

from collections.abc import AsyncIterator

from dragoman import Turn, agent


@agent(name="Echo", description="Says it back")
async def echo(turn: Turn) -> str:
    return turn.text


@agent(name="Counter", description="Counts to ten, one chunk at a time")
async def counter(turn: Turn) -> AsyncIterator[str]:
    for n in range(1, 11):
        yield f"{n}\n"
