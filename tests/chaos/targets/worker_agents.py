"""The agents of agents.py, for workers."""

from __future__ import annotations

from tests.chaos.targets.agents import RETRIES, work

from dragoman import Turn, agent, retry


@agent(id="far", description="Executes the command in the first word, on a worker; a crash ends the task")
async def far(turn: Turn) -> str | None:
    """Executes the command in the first word."""
    return await work(turn)


@agent(id="far-again", description="Executes the command; a crash restarts the turn", on_crash=retry(RETRIES))
async def far_again(turn: Turn) -> str | None:
    """Executes the command in the first word."""
    return await work(turn)
