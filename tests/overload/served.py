"""A server that believes who calls, as a process of its own: `python -m tests.overload.served SETTINGS`.

SETTINGS are JSON. Its first line says where it listens; then each line it is sent is answered with what it has in its
memory. It ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from tests.callers import ByHeader

from dragoman import Turn, agent
from dragoman.settings.settings import Settings
from dragoman.stores.sqlite import SqliteStore
from dragoman.wiring.app import App, open_app


@agent(default=True)
async def hold(turn: Turn) -> None:
    """Works until it is canceled, and reads nothing that arrives meanwhile."""
    turn.status("at it")
    await asyncio.Event().wait()


@agent
async def quick(turn: Turn) -> str:
    """Says it back."""
    return turn.text


def look(app: App) -> dict[str, int]:
    """How much there is of what callers can make grow."""
    service, dispatch = app.runtime.service, app.runtime.scheduler
    store, admission = service._store, service.admission
    assert isinstance(store, SqliteStore)
    counters = store._writer.quota_counters
    return {
        "open": sum(admission._open_streams.values()),
        "paced": len(admission._buckets),
        "followed": len(service._feeds._feeds),
        "running": dispatch.running,
        "slots": dispatch.running + dispatch.free_slots,
        "queued writes": store._writer._queue.qsize(),
        "counted": len(counters._loads),
        "unread": len(counters._unread),
        "tasks of the loop": len(asyncio.all_tasks()),
    }


async def main(settings: dict[str, Any]) -> None:
    async with open_app(Settings(**settings), [hold, quick], ByHeader()) as app:
        print(json.dumps({"http": str(app.http), "grpc": str(app.grpc)}), flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(look(app)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
