"""`make chaos`: a server under load is killed and held still at random, and what everybody saw is judged afterwards.

With `--replicas` it is several servers with workers, PostgreSQL and NATS (replicas.py), by the same clients and judge.
CHAOS_SECONDS (120) is how long; CHAOS_SEED, printed at the beginning, throws the same dice again. Ends with counts and
with exit code 1 when a promise was broken; then the folder with the store, the history and the server's log is kept.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.chaos import history
from tests.chaos.clients import RandomClient
from tests.chaos.followers import Stage
from tests.chaos.history import (
    Acknowledged,
    Canceled,
    Delivered,
    Fault,
    Left,
    Opened,
    Recorder,
    Rejected,
    Sampled,
    Seen,
    Sent,
)
from tests.chaos.receivers import Receivers
from tests.chaos.replicas import missing, replicas
from tests.chaos.server import running
from tests.chaos.target import Target
from tests.chaos_checker.checker import GRACE, StoredTask, judge
from tests.chaos_checker.end_checker import drained

from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CUSTOMERS: Final = 10
IDLE_SECONDS: Final = 4.0
"""Seconds without news after which nobody expects any."""
TAIL: Final = 20.0
"""Seconds, of those a run may take, for everything to come to its end."""
MOST_SHOWN: Final = 30
REPORTS: Final = Path(__file__).parents[2] / ".chaos"
FORKS: Final = "GRPC_ENABLE_FORK_SUPPORT"
"""Read by gRPC when it is imported. Its handlers at a fork break the child, now and then, before it is PostgreSQL."""
RETRY_OPTIONS: Final = ("--push-first-wait", "0.1", "--push-longest-wait", "1")
"""Pushes that fail are tried again soon, so that a run sees much of it."""
OPTIONS: Final = ("--blocking-wait", "20", *RETRY_OPTIONS)


def say(text: str) -> None:
    print(f"chaos: {text}", flush=True)


async def storms(stage: Stage) -> None:
    """Cuts all connections of all followers, now and then, for ever."""
    dice = random.Random(f"{stage.seed}/storms")
    while True:
        await asyncio.sleep(dice.uniform(0.5, 4))
        stage.storm()


async def looks(stage: Stage) -> None:
    """Looks into the store once a second, for ever."""
    while True:
        await look(stage)
        await asyncio.sleep(1)


async def look(stage: Stage) -> Sampled | None:
    """One look into the store; None when it cannot be asked."""
    found = await stage.victim.look(stage.now)
    if found is not None:
        stage.record.add(found)
    return found


async def offers_keys(stage: Stage) -> bool:
    """Whether the server knows idempotency keys."""
    customer = RandomClient(Stage(stage.victim, Recorder(io.StringIO()), stage.seed), 0, keys=True)
    message = pb.Message(message_id="probe", role=pb.ROLE_USER, parts=[pb.Part(text="echo #probe")])
    tasks = [await customer.send(message, "", "blocking", "probe") for _ in range(2)]
    return len({task.id for task in tasks if task is not None}) == 1


async def quiet(stage: Stage, seconds: float) -> Sequence[str]:
    """Waits until nothing runs or waits, by looking into the store; gives some that do when it takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        found = await look(stage)
        if found is not None and not (found.running or found.waiting or found.elsewhere):
            return ()
        if time.monotonic() > deadline:
            return found.such if found else ("?",)
        await asyncio.sleep(0.25)


async def pushed(stage: Stage, seconds: float) -> int:
    """Waits until every receiver was told everything, by looking into the store; how many were not in time."""
    deadline = time.monotonic() + seconds
    while True:
        left = await stage.victim.unpushed()
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.25)


async def answer_the_left(stage: Stage) -> None:
    """Answers every task that was left asking."""
    customer = RandomClient(stage, -1, keys=False)
    for entry in [entry for entry in stage.record.entries if isinstance(entry, Left)]:
        number = stage.number()
        message = pb.Message(message_id=f"m-{number}", role=pb.ROLE_USER, task_id=entry.task)
        message.parts.add(text=f"at last #{number}")
        agents = stage.victim.agents
        for last in (False, False, True):  # a connection to a server that was started again may not be there at once
            key = f"at-last-{number}"
            sends = (
                customer.send(message, one, "blocking", key, quietly=one != agents[-1] or not last) for one in agents
            )
            if await _any(sends):  # the other agents do not know it
                break
            await asyncio.sleep(1)


async def _any(sends: Iterable[Coroutine[Any, Any, pb.Task | None]]) -> bool:
    """Whether one of these is answered, one after the other; the rest is not sent."""
    for send in sends:
        if await send is not None:
            return True
    return False


async def scene(stage: Stage, seconds: float) -> list[str]:
    """The whole run. Gives what is wrong already, before anything is compared."""
    keys = await offers_keys(stage)
    problems = [] if keys else ["the server knows no idempotency keys"]
    background = [asyncio.create_task(storms(stage)), asyncio.create_task(looks(stage))]
    customers = [
        asyncio.create_task(RandomClient(stage, number, keys=keys).serve()) for number in range(1, CUSTOMERS + 1)
    ]
    try:
        await stage.victim.strike(stage, time.monotonic() + seconds, lambda text: say(f"{stage.now:3.0f} s, {text}"))
        stage.over.set()
        say(f"{stage.now:3.0f} s, the last blow has fallen")
        await asyncio.wait(customers, timeout=30)
        for customer in customers:
            if customer.done():
                customer.result()
        if such := await quiet(stage, GRACE + 15):
            problems.append(f"{GRACE + 15:g} s after the last blow, tasks still run or wait: {', '.join(such)}")
        say(f"{stage.now:3.0f} s, nothing runs any more")
        # Once more, with nothing running: what asks is still there afterwards, and can be answered.
        await stage.victim.restart(stage)
        await answer_the_left(stage)
        if such := await quiet(stage, GRACE):
            problems.append(f"{GRACE:g} s after they were answered, tasks still run or wait: {', '.join(such)}")
    finally:
        rest = (*background, *customers, *(() if stage.over.is_set() else stage.following))
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
    if left := await pushed(stage, GRACE + 15):
        problems.append(f"{GRACE + 15:g} s after everything was over, {left} receivers are still to be told something")
    await followers_end(stage)
    say(f"{stage.now:3.0f} s, nobody hears anything any more")
    return problems


async def followers_end(stage: Stage) -> None:
    """Gives followers of tasks that ended the time to hear of it: until nobody heard anything for SILENCE seconds."""
    number = -1
    while stage.following and number != len(stage.record.entries):
        number = len(stage.record.entries)
        await asyncio.wait(tuple(stage.following), timeout=IDLE_SECONDS)
    left = tuple(stage.following)
    for follower in left:
        follower.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def counts(entries: list[history.Entry], kept: Mapping[str, StoredTask]) -> str:
    """What happened, in numbers."""
    opened: dict[int, int] = {}
    for entry in entries:
        if isinstance(entry, Opened):
            opened[entry.follower] = opened.get(entry.follower, 0) + 1
    numbered = sum(isinstance(entry, Seen) and entry.sequence is not None for entry in entries)
    struck = Counter(_blow(entry) for entry in entries if isinstance(entry, Fault))
    numbers = {
        **dict(sorted(struck.items())),
        "sends": history.of_kind(entries, Sent),
        "acknowledged": history.of_kind(entries, Acknowledged),
        "refused": history.of_kind(entries, Rejected),
        "tasks": len(kept),
        "longer than a drain": drained(kept),
        "followers": len(opened),
        "reconnects": sum(opened.values()) - len(opened),
        "events": history.of_kind(entries, Seen),
        "with cursor": numbered,
        "cancels": history.of_kind(entries, Canceled),
        "canceled": sum(isinstance(entry, Canceled) and entry.state == states.CANCELED for entry in entries),
        "left asking": history.of_kind(entries, Left),
        "letters": history.of_kind(entries, Delivered),
        "refused letters": sum(isinstance(entry, Delivered) and not 200 <= entry.status < 300 for entry in entries),
        "keys": len({entry.key for entry in entries if isinstance(entry, Sent) and entry.key}),
    }
    return ", ".join(f"{number} {name}" for name, number in numbers.items())


def _blow(struck: Fault) -> str:
    """What a blow is counted as."""
    kinds = {"kill": "kills", "pause": "pauses", "drain": "drains", "restart": "restarts"}
    return kinds[struck.how] + (f" of {struck.part}" if struck.part != "server" else "")


async def play(folder: Path, seconds: float, seed: int, *, several: bool) -> tuple[str, list[str]]:
    """One run: its counts, and what was wrong."""
    with (folder / "history.jsonl").open("w", encoding="utf-8") as file:
        recorder = Recorder(file)
        there: AbstractAsyncContextManager[Target] = (
            replicas(folder, *OPTIONS) if several else running(folder, *OPTIONS)
        )
        async with there as ground:
            stage = Stage(ground, recorder, seed)
            receivers = Receivers(stage)
            async with receivers.open():
                stage.hook = receivers.url
                problems = await scene(stage, max(5, seconds - TAIL))
            kept = await ground.kept(stage.began)
            problems += judge(recorder.entries, kept)
            problems += ground.troubles
    return counts(recorder.entries, kept), problems


def report(numbers: str, problems: int, seconds: int, seed: int, *, several: bool) -> None:
    """Leaves what came of a run for `make scorecard`, in the place of the last one of its kind."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    values = {
        "several": several,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit.stdout.strip(),
        "seconds": seconds,
        "seed": seed,
        "counts": numbers,
        "problems": problems,
    }
    REPORTS.mkdir(exist_ok=True)
    (REPORTS / f"{'several' if several else 'one'}.json").write_text(json.dumps(values, indent=1) + "\n", "utf-8")


def main() -> int:
    """Plays one run."""
    several = "--replicas" in sys.argv[1:]
    if several and os.environ.get(FORKS) != "0":
        os.environ[FORKS] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.chaos.run", *sys.argv[1:]])
    if several and (why := missing()):
        say(f"no replicas here: {why}")
        return 0
    seconds = max(5, int(os.environ.get("CHAOS_SECONDS", "120")))
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**9))
    say(f"{seconds} s, CHAOS_SEED={seed}")
    began, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="chaos-"))
    numbers, problems = asyncio.run(play(folder, seconds, seed, several=several))
    for problem in problems[:MOST_SHOWN]:
        say(problem)
    if len(problems) > MOST_SHOWN:
        say(f"and {len(problems) - MOST_SHOWN} more")
    if problems:
        say(f"what happened is in {folder}")
    else:
        shutil.rmtree(folder)
    report(numbers, len(problems), seconds, seed, several=several)
    verdict = f"{len(problems)} PROBLEMS" if problems else "ok"
    say(f"{numbers} in {time.monotonic() - began:.1f}s: {verdict}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
