"""Keeping the store in order, from time to time and off everyone's way."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from dragoman.ports import Store

log = logging.getLogger("dragoman.runtime")

EVERY: Final = 5.0
"""Seconds between two rounds. One that finds nothing costs two reads."""


async def keep_tidy(store: Store) -> None:
    """Tidies the store at once, then every EVERY seconds. Runs until cancelled."""
    while True:
        try:
            await store.tidy()
        except Exception:
            log.exception("could not tidy the store; the next round tries again")
        await asyncio.sleep(EVERY)
