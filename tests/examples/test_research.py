"""The research example: its server is killed at random, and each of its eight steps is paid for once.

A step is paid when the example's model writes a line into `bill.txt`, just before its result is stored. A kill between
the two makes the step run again, and that is promised: what never runs again is a step whose result is stored. So each
kill is followed by a look at the bill and at the store, and the bill in the end is compared with what these say.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.cli.server import Server, start

from dragoman.client import Artifact, Connection, Event, Finished, Question, Text, connect
from dragoman.core.task.steps import StepState

pytestmark = pytest.mark.longest

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "research.py"
STEPS: Final = (
    "plan", "read books", "read papers", "read letters", "look closer", "outline", "write", "title",
)  # fmt: skip
LIVES: Final = (1.5,) * 6 + (3.0,) * 2
"""The most seconds from each server's start to its kill. The report takes 1.8: the first six cannot complete it."""

TIMEOUT: Final = 60.0
"""Seconds for the task to end once no server is killed any more."""


@dataclass(frozen=True)
class Snapshot:
    """What a killed server has left: the steps on the bill, and the steps whose results are stored."""

    billed: Counter[str]
    stored: frozenset[str]


def bill(folder: Path) -> Counter[str]:
    path = folder / "bill.txt"
    return Counter(path.read_text().splitlines() if path.exists() else [])


def snapshot(folder: Path) -> Snapshot:
    """Reads a copy of the store, because opening it would recover it, which is the next server's work."""
    copy = folder / "copy"
    copy.mkdir()
    for file in folder.glob("tasks.db*"):
        shutil.copy(file, copy)
    with closing(sqlite3.connect(copy / "tasks.db")) as store:
        done = store.execute("SELECT name FROM steps WHERE state = ?", (StepState.DONE,)).fetchall()
    shutil.rmtree(copy)
    return Snapshot(bill(folder), frozenset(name for (name,) in done))


def serve(folder: Path, http: str = "127.0.0.1:0", grpc: str = "127.0.0.1:0") -> Server:
    """Serves the example, with a model three times as fast."""
    fast = EXAMPLE.read_text().replace("SECONDS_PER_WORD = 0.1", "SECONDS_PER_WORD = 0.03")
    assert fast != EXAMPLE.read_text()
    (folder / "research.py").write_text(fast)
    return start("research.py", "--store", f"sqlite:///{folder}/tasks.db", cwd=folder, http=http, grpc=grpc)


async def follow(client: Connection) -> list[Event]:
    return [event async for event in client.run("tides", answer=lambda _: "letters")]


async def run(folder: Path, lives: Iterator[float]) -> tuple[list[Event], list[Snapshot]]:
    """The events of one caller, and a snapshot for each kill. `lives`: seconds until each server is killed."""
    folder.mkdir()
    snapshots = []
    server = serve(folder)
    try:
        async with connect(server.http) as client:
            following = asyncio.create_task(follow(client))
            for seconds in lives:
                await asyncio.wait([following], timeout=seconds)
                if following.done():
                    break
                server.signal(signal.SIGKILL)
                server.ends()
                snapshots.append(snapshot(folder))
                server = await asyncio.to_thread(serve, folder, server.http.removeprefix("http://"), server.grpc)
            return await asyncio.wait_for(following, TIMEOUT), snapshots
    finally:
        server.process.kill()
        server.ends()


def report(events: list[Event]) -> str:
    """The report as a caller reads it: what was cut off is discarded where its replacement begins."""
    text = ""
    for event in events:
        if isinstance(event, Artifact) and event.replaces:
            text = ""
        elif isinstance(event, Text) and event.artifact_id == "report":
            text += event.text
    return text


def last(events: list[Event]) -> Finished:
    end = events[-1]
    assert isinstance(end, Finished)
    assert end.result.state == "COMPLETED", end.result.message_text
    return end


def paid_again(snapshots: list[Snapshot]) -> Counter[str]:
    """The steps that a kill hit between the line of the bill and the commit of the result."""
    again: Counter[str] = Counter()
    before: Counter[str] = Counter()
    for one in snapshots:
        again.update(name for name in one.billed - before if name not in one.stored)
        before = one.billed
    return again


async def test_every_step_is_paid_once_however_often_the_server_is_killed(tmp_path: Path) -> None:
    undisturbed, _ = await run(tmp_path / "undisturbed", iter(()))
    assert bill(tmp_path / "undisturbed") == Counter(STEPS)

    seed = int(os.environ.get("RESEARCH_SEED") or secrets.randbelow(10**9))
    dice = random.Random(seed)
    folder = tmp_path / "killed"
    events, snapshots = await run(folder, (dice.uniform(0.0, longest) for longest in LIVES))
    details = f"RESEARCH_SEED={seed}: {snapshots}"

    assert len(snapshots) >= 6, details
    for one in snapshots:
        assert one.stored <= one.billed.keys(), details
        assert all(bill(folder)[name] == one.billed[name] for name in one.stored), details
    assert bill(folder) == Counter(STEPS) + paid_again(snapshots), details

    assert report(events) == report(undisturbed) == last(events).result.text, details
    assert last(events).result.message_text == last(undisturbed).result.message_text, details
    assert len([event for event in events if isinstance(event, Question)]) == 1, details
