"""Executors that raise what the text of their message names: a Worker of fasta2a, and a callback of a framework."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parents[1] / "extensions" / "frameworks" / "stand_in"), str(Path(__file__).parent)]
from fasta2a import Worker
from strands import Agent  # tests/hostile/strands

kinds: Any = importlib.import_module("kinds")  # tests/hostile/kinds.py


def fail(text: str) -> None:
    raise kinds.EXCEPTIONS[text]()


class HostileWorker(Worker[dict[str, int]]):  # type: ignore[misc]  # mypy does not find this fasta2a
    """Raises in its own code, or in a task that it starts, or answers `fine`."""

    async def run_task(self, params: Any) -> None:
        word, _, text = params["message"]["parts"][0]["text"].partition(" ")
        if word == "fine":
            await self.storage.update_task(params["id"], state="completed")
        elif word == "task":
            await asyncio.create_task(self._fail(text))
        else:
            fail(text)

    async def _fail(self, text: str) -> None:
        await asyncio.sleep(0)
        fail(text)

    async def cancel_task(self, params: Any) -> None:
        fail("NoText")


framework_agent = Agent(fail)
