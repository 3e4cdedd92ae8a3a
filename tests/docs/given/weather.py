"""The agent behind docs/how-to/upstream.md."""

from dragoman import Turn, agent


@agent(name="Weather Desk", description="Says how the weather will be")
async def weather_office(turn: Turn) -> str:
    return f"{turn.text} no"
