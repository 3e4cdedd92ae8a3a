"""The agents of the bare run: one whose card declares nothing, and one that requires an extension."""

from dragoman import Turn, agent


@agent(default=True, name="Bare", description="Says it back, and has no capability at all", streaming=False)
async def bare(turn: Turn) -> str:
    """Says it back."""
    return turn.text


@agent(
    name="Strict",
    description="Says it back to those who know its extension",
    extensions=[{"uri": "urn:example:strict", "required": True}],
)
async def strict(turn: Turn) -> str:
    """Says it back."""
    return turn.text
