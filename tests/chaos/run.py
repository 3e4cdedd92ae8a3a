"""`make chaos`: kills and pauses a server under load at random, and then checks the history of all clients.

With `--replicas` the target is a cluster with workers, PostgreSQL and NATS (replicas.py); `--kind` selects any kind of
kinds.py. CHAOS_SECONDS (120) is the duration; CHAOS_SEED, printed at the start, repeats a run; CHAOS_OUTAGES selects
long outages (outages.py). Prints counts, writes a report, and exits with 1 if a guarantee was broken; the folder with
the store, the history and the server's log is kept then.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import io
import os
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.chaos import history
from tests.chaos.actions import Action, read_actions
from tests.chaos.history import (
    Acknowledged,
    CallOpened,
    CallResult,
    Canceled,
    Delivered,
    Fault,
    LateRecorder,
    Left,
    Opened,
    Progressed,
    Recorder,
    Rejected,
    Sampled,
    Seen,
    Sent,
)
from tests.chaos.kinds import KINDS, Kind
from tests.chaos.load.bursts import BurstClient
from tests.chaos.load.clients import RandomClient
from tests.chaos.load.followers import Stage
from tests.chaos.load.mcp_clients import McpClient
from tests.chaos.load.receivers import Receivers
from tests.chaos.report import RunReport, commit, name_of
from tests.chaos.targets.replicas import missing
from tests.chaos_checker.call_checker import canceled_by_leaving
from tests.chaos_checker.cancel_checker import judge_cancels, reported_canceled
from tests.chaos_checker.checker import GRACE, StoredTask, judge
from tests.chaos_checker.end_checker import drained
from tests.chaos_checker.step_checker import finished_steps, judge_steps
from tests.load.transports import BINDINGS

from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

IDLE_SECONDS: Final = 4.0
"""Seconds without an entry after which the run is over."""
TAIL: Final = 20.0
"""Seconds of the run that are reserved for its end."""
MOST_SHOWN: Final = 30
FORKS: Final = "GRPC_ENABLE_FORK_SUPPORT"
"""Read by gRPC at import. Its fork handlers sometimes break the child process before it executes PostgreSQL."""
RETRY_OPTIONS: Final = ("--push-first-wait", "0.1", "--push-longest-wait", "1")
"""Short retry delays of pushes, for many retries in a run."""
OPTIONS: Final = ("--blocking-wait", "20", "--mcp-wait", "6", *RETRY_OPTIONS)


def say(text: str) -> None:
    print(f"chaos: {text}", flush=True)


async def cut_connections(stage: Stage) -> None:
    """Cuts all connections of all followers at random intervals."""
    rng = random.Random(f"{stage.seed}/storms")
    while True:
        await asyncio.sleep(rng.uniform(*stage.pace.storms))
        stage.storm()


async def looks(stage: Stage) -> None:
    """Samples the store once a second."""
    while True:
        await look(stage)
        await asyncio.sleep(1)


async def look(stage: Stage) -> Sampled | None:
    """Samples the store; None if it is unavailable."""
    found = await stage.victim.look(stage.now)
    if found is not None:
        stage.record.add(found)
    return found


async def offers_keys(stage: Stage) -> bool:
    """Whether the server supports idempotency keys."""
    client = RandomClient(Stage(stage.victim, Recorder(io.StringIO()), stage.seed), 0, keys=True)
    message = pb.Message(message_id="probe", role=pb.ROLE_USER, parts=[pb.Part(text="echo #probe")])
    tasks = [await client.send(message, "", "blocking", "probe", bindings=BINDINGS) for _ in range(2)]
    return len({task.id for task in tasks if task is not None}) == 1


async def quiet(stage: Stage, seconds: float) -> Sequence[str]:
    """Waits until no task runs or waits in the store. Returns some of them after a timeout."""
    deadline = time.monotonic() + seconds
    while True:
        found = await look(stage)
        if found is not None and not (found.running or found.waiting or found.elsewhere):
            return ()
        if time.monotonic() > deadline:
            return found.such if found else ("?",)
        await asyncio.sleep(0.25)


async def pushed(stage: Stage, seconds: float) -> int:
    """Waits until all events are delivered to webhooks. Returns the number of incomplete webhooks after a timeout."""
    deadline = time.monotonic() + seconds
    while True:
        left = await stage.victim.unpushed()
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.25)


async def answer_the_left(stage: Stage) -> None:
    """Answers every interrupted task."""
    client = RandomClient(stage, -1, keys=False)
    for entry in [entry for entry in stage.record.entries if isinstance(entry, Left)]:
        number = stage.number()
        message = pb.Message(message_id=f"m-{number}", role=pb.ROLE_USER, task_id=entry.task)
        message.parts.add(text=f"at last #{number}")
        agents = stage.victim.agents
        for last in (False, False, True):  # a connection to a restarted server may fail at first
            key = f"at-last-{number}"
            sends = (
                client.send(message, one, "blocking", key, quietly=one != agents[-1] or not last, bindings=BINDINGS)
                for one in agents
            )
            if await _any(sends):  # the other agents do not have the task
                break
            await asyncio.sleep(1)


async def _any(sends: Iterable[Coroutine[Any, Any, pb.Task | None]]) -> bool:
    """Sends requests one after the other until one has a response. Returns whether one had."""
    for send in sends:
        if await send is not None:
            return True
    return False


async def scene(stage: Stage, seconds: float) -> list[str]:
    """Performs the run. Returns the problems found before the checks."""
    keys, pace = await offers_keys(stage), stage.pace
    problems = [] if keys else ["the server knows no idempotency keys"]
    background = [asyncio.create_task(cut_connections(stage)), asyncio.create_task(looks(stage))]
    clients = [
        *(asyncio.create_task(RandomClient(stage, number, keys=keys).serve()) for number in _numbers(pace.clients)),
        *(asyncio.create_task(McpClient(stage, number).serve()) for number in _numbers(pace.mcp_clients)),
        *(asyncio.create_task(BurstClient(stage, number).serve()) for number in _numbers(pace.bursts)),
    ]
    try:
        await stage.victim.inject_faults(
            stage, time.monotonic() + seconds, lambda text: say(f"{stage.now:3.0f} s, {text}")
        )
        stage.over.set()
        say(f"{stage.now:3.0f} s, all faults injected")
        await asyncio.wait(clients, timeout=30)
        for client in clients:
            if client.done():
                client.result()
        if such := await quiet(stage, GRACE + 15):
            problems.append(f"{GRACE + 15:g} s after the last fault, tasks still run or wait: {', '.join(such)}")
        say(f"{stage.now:3.0f} s, no task is running")
        # Another restart with no running task: interrupted tasks survive it and can be answered.
        await stage.victim.restart(stage)
        await answer_the_left(stage)
        if such := await quiet(stage, GRACE):
            problems.append(f"{GRACE:g} s after they were answered, tasks still run or wait: {', '.join(such)}")
        await asyncio.wait(clients, timeout=GRACE)  # calls of MCP go on until they have their results
    finally:
        rest = (*background, *clients, *(() if stage.over.is_set() else stage.following))
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
    if left := await pushed(stage, GRACE + 15):
        problems.append(f"{GRACE + 15:g} s after everything was over, {left} receivers are still to be told something")
    await followers_end(stage)
    say(f"{stage.now:3.0f} s, all followers are done")
    return problems


def _numbers(count: int) -> range:
    return range(1, count + 1)


async def followers_end(stage: Stage) -> None:
    """Waits until followers of ended tasks have received no entry for IDLE_SECONDS."""
    number = -1
    while stage.following and number != len(stage.record.entries):
        number = len(stage.record.entries)
        await asyncio.wait(tuple(stage.following), timeout=IDLE_SECONDS)
    left = tuple(stage.following)
    for follower in left:
        follower.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def faults(entries: Sequence[history.Entry]) -> dict[str, int]:
    """Returns the faults of a run, counted by kind."""
    return dict(sorted(Counter(name_of(entry) for entry in entries if isinstance(entry, Fault)).items()))


def counts(
    entries: Sequence[history.Entry], kept: Mapping[str, StoredTask], actions: Sequence[Action]
) -> dict[str, int]:
    """Returns the counts of a run other than its faults."""
    of_kind = Counter(map(type, entries))
    opened = Counter(entry.follower for entry in entries if isinstance(entry, Opened))
    return {
        "sends": of_kind[Sent],
        "acknowledged": of_kind[Acknowledged],
        "refused": of_kind[Rejected],
        "tasks": len(kept),
        "longer than a drain": drained(kept),
        "followers": len(opened),
        "reconnects": sum(opened.values()) - len(opened),
        "events": of_kind[Seen],
        "with cursor": sum(isinstance(entry, Seen) and entry.sequence is not None for entry in entries),
        "cancels": of_kind[Canceled],
        "canceled": sum(isinstance(entry, Canceled) and entry.state == states.CANCELED for entry in entries),
        "told canceled": len(reported_canceled(entries)),
        "actions of agents": len(actions),
        "finished steps": finished_steps(actions),
        "MCP connections": of_kind[CallOpened],
        "MCP resumptions": sum(isinstance(entry, CallOpened) and entry.how == "resume" for entry in entries),
        "MCP results": sum(isinstance(entry, CallResult) and entry.kind == "final" for entry in entries),
        "MCP questions": sum(isinstance(entry, CallResult) and entry.kind == "question" for entry in entries),
        "progress notifications": of_kind[Progressed],
        "canceled by leaving": canceled_by_leaving(entries, kept),
        "left interrupted": of_kind[Left],
        "webhook requests": of_kind[Delivered],
        "rejected webhook requests": sum(
            isinstance(entry, Delivered) and not 200 <= entry.status < 300 for entry in entries
        ),
        "keys": len({entry.key for entry in entries if isinstance(entry, Sent) and entry.key}),
    }


async def play(folder: Path, seconds: float, seed: int, kind: Kind) -> RunReport:
    """Performs one run. Its history is written only if it has problems or does not come to its end."""
    with (folder / "history.jsonl").open("w", encoding="utf-8") as file:
        recorder, judged = LateRecorder(file), False
        try:
            report = await _play(folder, seconds, seed, kind, recorder)
            judged = not report.problems
        finally:
            if not judged:
                recorder.write()
    return report


async def _play(folder: Path, seconds: float, seed: int, kind: Kind, recorder: Recorder) -> RunReport:
    async with kind.open(folder, *OPTIONS) as ground:
        stage = Stage(ground, recorder, seed, kind.pace)
        receivers = Receivers(stage)
        async with receivers.open():
            stage.hook = receivers.url
            problems = await scene(stage, max(5, seconds - TAIL))
        say(f"{stage.now:3.0f} s, judging {len(recorder.entries)} entries")
        kept = await ground.kept(stage.began, history.shown_tasks(recorder.entries))
        actions = read_actions(folder / "actions", stage.origin)
        problems += judge(recorder.entries, kept)
        problems += judge_cancels(recorder.entries, actions)
        problems += judge_steps(actions)
        problems += ground.troubles
        say(f"{stage.now:3.0f} s, judged")
    return RunReport(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=commit(),
        seconds=int(seconds),
        seed=seed,
        faults=faults(recorder.entries),
        counts=counts(recorder.entries, kept, actions),
        problems=problems,
    )


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.run", description="Perform one chaos run.")
    parser.set_defaults(kind="one")
    parser.add_argument("--replicas", action="store_const", dest="kind", const="cluster", help="as --kind cluster")
    parser.add_argument("--kind", choices=KINDS, help="what is served, and at which pace [one]")
    parser.add_argument("--report", type=Path, metavar="PATH", help="file for the report [one of .chaos]")
    return parser.parse_args(words)


def main() -> int:
    """Performs one run."""
    options = read_arguments(sys.argv[1:])
    kind = KINDS[options.kind]
    if kind.several and os.environ.get(FORKS) != "0":
        os.environ[FORKS] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.chaos.run", *sys.argv[1:]])
    if kind.several and (why := missing()):
        say(f"replicas skipped: {why}")
        return 0
    seconds = max(5, int(os.environ.get("CHAOS_SECONDS", "120")))
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**9))
    say(f"{seconds} s, CHAOS_SEED={seed}")
    began, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="chaos-"))
    gc.set_threshold(100_000, 20, 100)  # a long run keeps a million entries, which full collections would visit
    report = asyncio.run(play(folder, seconds, seed, kind))
    problems = report.problems
    for problem in problems[:MOST_SHOWN]:
        say(problem)
    if len(problems) > MOST_SHOWN:
        say(f"and {len(problems) - MOST_SHOWN} more")
    if problems:
        say(f"the history is in {folder}")
    else:
        shutil.rmtree(folder)
    report.write(options.kind, options.report)
    verdict = f"{len(problems)} PROBLEMS" if problems else "ok"
    say(f"{report.text} in {time.monotonic() - began:.1f}s: {verdict}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
