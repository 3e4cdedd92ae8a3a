"""`kill -9` under load: the daily usage in the store equals its tasks, before and after the restart.

On SQLite each kill may lose the begun tasks and turns of one commit.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cli.server import Server, serving
from tests.postgres import execute

from dragoman.calling.errors import ClientError
from dragoman.client.calls import Client, message
from dragoman.core.task import states

pytestmark = pytest.mark.long

AGENTS: Final = """
import asyncio
from dragoman import Turn, agent, retry

@agent(default=True, on_crash=retry(5))
async def varied(turn: Turn) -> str:
    turn.usage(tokens=7, cost=0.5)
    match int(turn.text) % 5:
        case 1:
            raise ValueError("fails")
        case 2:
            turn.reject("not this one")
        case 3:
            await turn.flush()
        case 4 if not turn.question:
            turn.ask("more?")
    return turn.text
"""

LIVES: Final = 4
SENDERS: Final = 8
SENDS: Final = 60
"""Sends that are answered before a kill."""

_ENDED: Final = ", ".join(
    f"coalesce(sum(CASE WHEN state = {state} THEN 1 ELSE 0 END), 0)"
    for state in (states.COMPLETED, states.FAILED, states.CANCELED, states.REJECTED)
)
FIGURES: Final = f"""
SELECT * FROM
(SELECT sum(begun), sum(completed), sum(failed), sum(canceled), sum(rejected), sum(turns), sum(tokens), sum(cost)
    FROM hourly_usage) AS figures,
(SELECT count(*), {_ENDED}, sum(token) FROM tasks) AS tasks,
(SELECT sum(tokens), sum(cost) FROM usage) AS reports
"""
"""The figures of all hours, and the same from the tasks and their reports. Each claim (`token`) is a turn here. One
statement, because the last commit of a killed server may still be on its way in the database."""

TIMES: Final = """
SELECT sum(turn_us), sum(turns), sum(CASE WHEN bucket > 0 THEN time_us ELSE 0 END),
    sum(CASE WHEN bucket < 0 THEN times ELSE 0 END), sum(CASE WHEN bucket > 0 THEN times ELSE 0 END)
FROM hourly_usage
"""
"""The time and the number of turns, and the same from their histograms; and how many turns have ended."""

Query = Callable[[str], tuple[int, ...]]


async def send_until_the_kill(server: Server, answered: asyncio.Semaphore, number: int) -> None:
    """Sends one message after the other, until the server is gone."""
    async with Client(server.grpc) as client:
        while True:
            try:
                await client.send(message(str(number)))
            except ClientError:
                return
            answered.release()
            number += 1


async def kill_under_load(server: Server) -> None:
    """Kills the server while it works on the sends of several callers."""
    answered = asyncio.Semaphore(0)
    senders = [asyncio.create_task(send_until_the_kill(server, answered, number)) for number in range(SENDERS)]
    for _ in range(SENDS):
        await answered.acquire()
    server.process.kill()
    await asyncio.gather(*senders)


BEGUN_AND_TURNS: Final = (0, 5)


def usage_equals_tasks(query: Query, lost: int = 0) -> tuple[int, ...]:
    """Asserts that the figures are those of the stored tasks. Returns them.

    `lost`: how many tasks begun and turns may be missing.
    """
    found = query(FIGURES)
    figures, tasks = found[:8], found[8:]
    missing = [task - figure for figure, task in zip(figures, tasks, strict=True)]
    assert all(0 <= count <= (lost if at in BEGUN_AND_TURNS else 0) for at, count in enumerate(missing)), missing
    turn_us, turns, time_us, queued, ended = query(TIMES)
    assert (time_us, queued) == (turn_us, turns)
    assert figures[1] + figures[2] + figures[4] <= ended
    return figures


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Query]:
    """The URL of a new store, and a function that queries it."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_database")
        return url, lambda sql: tuple(map(int, asyncio.run(execute(url, sql))[0]))
    path = tmp_path / "tasks.db"

    def query(sql: str) -> tuple[int, ...]:
        connection = sqlite3.connect(path)
        try:
            found: Any = connection.execute(sql).fetchone()
        finally:
            connection.close()
        return tuple(found)

    return f"sqlite:///{path}", query


def test_daily_usage_equals_the_stored_tasks_after_kills_under_load(tmp_path: Path, store: tuple[str, Query]) -> None:
    url, query = store
    (tmp_path / "agents.py").write_text(AGENTS)
    lost = SENDERS if url.startswith("sqlite") else 0
    for life in range(LIVES):
        with serving("agents.py", "--store", url, cwd=tmp_path) as server:
            asyncio.run(kill_under_load(server))
            server.ends()
            begun, completed, failed, _, rejected, turns, *_ = usage_equals_tasks(query, lost * (life + 1))
    assert begun >= LIVES * (SENDS - lost)
    assert min(completed, failed, rejected) > 0
    with serving("agents.py", "--store", url, cwd=tmp_path):  # repeats the turns of the last life
        pass
    assert usage_equals_tasks(query, lost * LIVES)[5] >= turns
