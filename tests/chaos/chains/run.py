"""`make chaos-chains`: kills, freezes and cuts off servers in a chain under load, and checks every level.

CHAOS_SECONDS (120) is the duration, in CI 30; CHAOS_SEED, printed at the start, repeats a run. Exits with 1 if a
guarantee was broken; the folder with the stores is kept then.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

from tests.chaos.actions import read_actions
from tests.chaos.chains.faults import inject_faults
from tests.chaos.chains.load import ChainClient
from tests.chaos.chains.target import ChainTarget, chain
from tests.chaos.history import Acknowledged, Canceled, Entry, LateRecorder, Seen, Sent, shown_tasks
from tests.chaos.load.followers import Stage
from tests.chaos.report import RunReport, commit
from tests.chaos.run import FORKS, MOST_SHOWN, cut_connections, faults, followers_end, say
from tests.chaos.targets.target import Target
from tests.chaos_checker.cancel_checker import reported_canceled
from tests.chaos_checker.chain_checker import judge_chains
from tests.chaos_checker.checker import GRACE, StoredTask

CLIENTS: Final = 14
TAIL: Final = 14.0
"""Seconds of a run that are reserved for its start and its end."""
SHORTEST: Final = 8.0
"""Seconds of faults, at least."""


async def play(folder: Path, seconds: float, seed: int) -> RunReport:
    """Performs one run. Returns its report."""
    with (folder / "history.jsonl").open("w", encoding="utf-8") as file:
        recorder = LateRecorder(file)
        async with chain(folder) as target:
            stage = Stage(cast("Target", target), recorder, seed)
            try:
                await _perform(target, stage, max(SHORTEST, seconds - TAIL))
                await target.stop()
                levels = await target.levels(stage.began, shown_tasks(recorder.entries))
                actions = read_actions(folder / "actions", stage.origin)
            finally:
                recorder.write()
            problems = judge_chains(recorder.entries, levels, actions) + target.troubles
            say(f"{stage.now:3.0f} s, judged {len(recorder.entries)} entries")
    return RunReport(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=commit(),
        seconds=int(seconds),
        seed=seed,
        faults=faults(recorder.entries),
        counts=counts(recorder.entries, levels),
        problems=problems,
    )


async def _perform(target: ChainTarget, stage: Stage, seconds: float) -> None:
    """Performs the faults and the load, and waits for the end of all tasks."""
    clients = [asyncio.create_task(ChainClient(stage, target, number).serve()) for number in range(CLIENTS)]
    storms = asyncio.create_task(cut_connections(stage))
    try:
        await inject_faults(target, stage, time.monotonic() + seconds)
        stage.over.set()
        say(f"{stage.now:3.0f} s, everything works again")
        await asyncio.wait(clients, timeout=GRACE)
        for client in clients:
            if client.done():
                client.result()
        await _until_idle(target, GRACE)
        say(f"{stage.now:3.0f} s, active tasks: {dict(target.active()) or 'none'}")
    finally:
        rest = (storms, *clients, *(() if stage.over.is_set() else stage.following))
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
    await followers_end(stage)


async def _until_idle(target: ChainTarget, seconds: float) -> None:
    """Waits until no task runs or waits at any level, for so many seconds at most."""
    deadline = time.monotonic() + seconds
    while target.active() and time.monotonic() < deadline:  # noqa: ASYNC110  # other processes end them
        await asyncio.sleep(0.25)


def counts(entries: Sequence[Entry], levels: Mapping[str, Mapping[str, StoredTask]]) -> dict[str, int]:
    """Returns the counts of a run other than its faults."""
    of_kind = Counter(map(type, entries))
    return {
        "sends": of_kind[Sent],
        "acknowledged": of_kind[Acknowledged],
        **{f"tasks of {name}": len(kept) for name, kept in levels.items()},
        "events": of_kind[Seen],
        "cancels": of_kind[Canceled],
        "told canceled": len(reported_canceled(entries)),
    }


def main() -> int:
    """Performs one run."""
    if os.environ.get(FORKS) != "0":
        os.environ[FORKS] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.chaos.chains.run"])
    seconds = int(os.environ.get("CHAOS_SECONDS", "120"))
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**9))
    say(f"chains, {seconds} s, CHAOS_SEED={seed}")
    began, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="chaos-"))
    report = asyncio.run(play(folder, seconds, seed))
    for problem in report.problems[:MOST_SHOWN]:
        say(problem)
    if report.problems:
        say(f"the history is in {folder}")
    else:
        shutil.rmtree(folder)
    verdict = f"{len(report.problems)} PROBLEMS" if report.problems else "ok"
    say(f"{report.text} in {time.monotonic() - began:.1f}s: {verdict}")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
