"""An agent that never ends a turn: with one slot, every task but the first waits for the slot."""

from __future__ import annotations

import asyncio

from dragoman import Turn, agent


@agent(default=True, description="Runs until it is canceled.")
async def hold(turn: Turn) -> None:
    await asyncio.Event().wait()
