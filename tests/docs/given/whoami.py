"""The agent behind docs/how-to/security.md."""

from dragoman import Turn, agent


@agent(description="Says who said it")
async def echo(turn: Turn) -> str:
    return f"{turn.principal}: {turn.text}"
