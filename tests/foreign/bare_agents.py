"""Agents of the bare run: one without capabilities in its card, and one that requires an extension."""

from dragoman import Turn, agent


@agent(default=True, name="Bare", description="Says it back, and has no capability at all", streaming=False)
async def bare(turn: Turn) -> str:
    """Echoes the text."""
    return turn.text


@agent(
    name="Strict",
    description="Says it back to those who know its extension",
    extensions=[{"uri": "urn:example:strict", "required": True}],
)
async def strict(turn: Turn) -> str:
    """Echoes the text."""
    return turn.text
