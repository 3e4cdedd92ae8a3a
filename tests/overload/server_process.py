"""A server in its own process, which trusts callers' names: `python -m tests.overload.server_process SETTINGS`.

SETTINGS is JSON. The first line of its output has its addresses. It responds to a line `steps` with the longest step of
its loop since the last such line, to any other line with the sizes of what callers can make grow, and stops at the end
of its input.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from tests.abuse.schema_attacks import checked
from tests.callers import ByHeader
from tests.hostile.kinds import EXCEPTIONS
from tests.overload.loop_steps import measure_steps

from dragoman import Turn, agent
from dragoman.cli.serve.command import GC_THRESHOLDS
from dragoman.settings.settings import Settings
from dragoman.stores.sqlite import SqliteStore
from dragoman.wiring.app import App, open_app


@agent(default=True)
async def hold(turn: Turn) -> None:
    """Works until it is canceled, and reads no messages."""
    turn.status("working")
    await asyncio.Event().wait()


@agent
async def quick(turn: Turn) -> str:
    """Returns the message text."""
    return turn.text


@agent
async def raises(turn: Turn) -> None:
    """Raises what the message names."""
    raise EXCEPTIONS[turn.text]()


@agent(id="raises-in-thread")
def raises_in_thread(turn: Turn) -> None:
    """Raises it in a thread."""
    raise EXCEPTIONS[turn.text]()


@agent(id="raises-in-step")
async def raises_in_step(turn: Turn) -> None:
    """Raises it in a step."""

    def work() -> None:
        raise EXCEPTIONS[turn.text]()

    await turn.step("work", work)


@agent
async def large(turn: Turn) -> AsyncIterator[str]:
    """Streams as many MiB of text as the message says."""
    for number in range(16 * int(turn.text)):
        yield f"{number:08d}" * 8192


AGENTS = (hold, quick, raises, raises_in_thread, raises_in_step, checked, large)


def report(app: App) -> dict[str, int]:
    """Returns the sizes of everything that callers can make grow."""
    runtime, scheduler = app.runtime, app.runtime.scheduler
    store, admission = runtime.store, runtime.operations.admission
    assert isinstance(store, SqliteStore)
    counters = store.writer.committer.quota_counters
    return {
        "open": sum(admission.open_streams.values()),
        "paced": len(admission.buckets),
        "followed": len(runtime.feeds.by_task),
        "running": scheduler.running,
        "slots": scheduler.running + scheduler.runs.free_slots,
        "queued writes": store.writer._queue.qsize(),
        "counted": len(counters.loads),
        "unread": len(counters.unread),
        "tasks of the loop": len(asyncio.all_tasks()),
        **{f"open: {principal}": count for principal, count in admission.open_streams.items()},
    }


async def main(settings: dict[str, Any]) -> None:
    longest = measure_steps()
    async with open_app(Settings(**settings), AGENTS, ByHeader()) as app:
        # As `dragoman serve` does: full collections of garbage skip what lives as long as the process.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        longest.reset()
        print(json.dumps({"http": str(app.http), "grpc": str(app.grpc)}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip() == "steps":
                print(json.dumps(asdict(longest)), flush=True)
                longest.reset()
            else:
                print(json.dumps(report(app)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
