"""`kill -9` of a process that writes: totals, quota counters and lists equal a recount of the tasks (KILLS=200)."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Final

from dragoman.core.task import states
from dragoman.core.task.cursors import TaskQuery
from dragoman.stores.sqlite import open_store
from dragoman.stores.sqlite.hot import figures
from dragoman.testing.fixtures import AGENT, OWNER

KILLS: Final = int(os.environ.get("KILLS", "4"))
SENDERS: Final = 7

WRITER: Final = f"""
import asyncio, sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from dragoman.core.limits.quotas import Quota
from dragoman.core.task import states
from dragoman.core.task.log import AppendRejected
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import artifact, by_runner, cancel, created, new_ref, status

store = open_store(Path(sys.argv[1]))
start = int(sys.argv[2])
quota = Quota(live_tasks=10**9, queued_bytes=10**12)

async def send(sender):
    for number in range(sender, 10**9, {SENDERS}):
        ref = new_ref()._replace(key=(start + number).to_bytes(16, "big"))
        claimed = await store.append(replace(created(ref, claim=1), quota=quota))
        if number % 5:  # the others run until the kill
            end = (states.COMPLETED, states.FAILED, states.INPUT_REQUIRED)[number % 3]
            await store.append(by_runner(claimed, artifact("out", "text"), status(end), end=True))
        elif start:  # one that ran at the kill before, if it came so far
            with suppress(AppendRejected):
                await store.append(cancel(ref._replace(key=(start - 2**32 + number).to_bytes(16, "big"))))
        print(number, flush=True)

async def main():
    await asyncio.gather(*map(send, range({SENDERS})))

asyncio.run(main())
"""

_RECOUNT: Final = "SELECT owner, agent, state, count(*) FROM tasks WHERE visible GROUP BY 1, 2, 3"
_TOTALS: Final = "SELECT owner, agent, state, tasks FROM totals WHERE tasks <> 0 ORDER BY 1, 2, 3"


def test_counters_equal_a_recount_of_the_tasks_after_kills(tmp_path: Path) -> None:
    path, acknowledged, chance = tmp_path / "tasks.db", 0, random.Random(41)
    for life in range(KILLS):
        command = [sys.executable, "-c", WRITER, str(path), str(life << 32)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randrange(1, 3 * figures.MAX_NEW_TASKS)):
                assert writer.stdout.readline()
                acknowledged += 1
            writer.kill()
        assert asyncio.run(tasks_of_a_recount(path)) >= acknowledged


async def tasks_of_a_recount(path: Path) -> int:
    """Opens the store, and compares its counters. Returns the number of its tasks."""
    store = open_store(path)
    with sqlite3.connect(path) as connection:
        recount = connection.execute(_RECOUNT).fetchall()
        assert connection.execute(_TOTALS).fetchall() == recount
        live = figures.read_load(connection, OWNER.principal).live_tasks
    connection.close()
    stored: int = sum(row[-1] for row in recount)
    assert dict(live) == {AGENT: sum(row[-1] for row in recount if row[2] not in states.TERMINAL)}
    assert (await store.page(TaskQuery(OWNER, AGENT, page_size=1))).total == stored
    await store.close()
    return stored
