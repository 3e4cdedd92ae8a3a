"""The agents of agents.py for the last server of a chain, with ids of their own: the middle one serves both."""

from __future__ import annotations

from tests.chaos.chains.agents import work
from tests.chaos.chains.routes import RETRIES

from dragoman import Turn, agent, retry


@agent(id="far", default=True, description="Works for so many ticks; a crash ends the task")
async def far(turn: Turn) -> None:
    """Works for so many ticks."""
    await work(turn)


@agent(id="far-again", description="Works for so many ticks; a crash restarts the turn", on_crash=retry(RETRIES))
async def far_again(turn: Turn) -> None:
    """Works for so many ticks."""
    await work(turn)
