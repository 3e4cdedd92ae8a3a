"""The agents of agents.py once more, for workers."""

from __future__ import annotations

from tests.chaos.agents import RETRIES, work

from dragoman import Turn, agent, retry


@agent(id="far", description="Does what the first word says, at a worker; a crash ends it")
async def far(turn: Turn) -> str | None:
    """Does what the first word says."""
    return await work(turn)


@agent(id="far-again", description="The same; a crash begins it again", on_crash=retry(RETRIES))
async def far_again(turn: Turn) -> str | None:
    """Does what the first word says."""
    return await work(turn)
