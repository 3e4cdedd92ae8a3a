"""Cost of durable steps: one step next to one commit, the steps of many tasks, and finding finished steps again.

`python -m bench.measurements.steps` runs in its own process on the server's core and prints a JSON row per figure. A
runtime without transports calls the agents, on uvloop and on a store with `synchronous=full`, as `dragoman serve` has
them. What is compared takes turns, so that drift of the machine and its disk affects both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import uvloop

from bench.measurements.rounds import measure_disk
from bench.measurements.task_size import EVENT, Figure
from bench.rows import Key
from bench.run import Run
from bench.sections import STEPS
from bench.servers.contestants import BENCH_FOLDER, DRAGOMAN, SERVER_CORE, pin
from dragoman import Turn, agent
from dragoman.bus.local import LocalBus
from dragoman.core.access.identity import ANONYMOUS
from dragoman.core.task import states
from dragoman.core.task.steps import StepState
from dragoman.ports import Store
from dragoman.runtime import Call, Ports, RuntimeConfig, open_runtime
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import by_runner, chunk, created, new_ref
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from tools.environments import ROOT

TASKS: Final = 64
FINISHED: Final = 1_000
"""Finished steps of a turn that runs again."""

COMMIT: Final = "one commit: an event of 50 bytes, without a turn"
STEP: Final = "one step with a result of 50 bytes"
SYNC_STEP: Final = "the same with a sync function, in a thread"
RATE: Final = f"steps of {TASKS} tasks at once"

LEASE: Final = 3_600.0
"""Seconds of the session that makes the bare commits: longer than a run."""

SendMessage = Callable[[str, str], Awaitable[pb.Task]]
"""Sends a text to the task with this id, or to a new one for an empty id. Returns the task once its turn has ended."""


def answer_case(finished: int) -> str:
    """Returns the case of an answer that makes a turn run again."""
    return f"from an answer to the end of {finished:,} finished steps"


async def find() -> str:
    """The work of a step: none."""
    return EVENT


def find_in_thread() -> str:
    """The same as a sync function."""
    return EVENT


@asynccontextmanager
async def serving(file: Path, function: Callable[[Turn], object]) -> AsyncIterator[tuple[Store, SendMessage]]:
    """Serves an agent in this process, from a new store."""
    store = open_store(file)
    try:
        config = RuntimeConfig(exclusive=False)
        async with open_runtime(Ports(store, LocalBus(), [agent(function)]), config) as runtime:
            call = Call(runtime.operations.access.authorize("", ANONYMOUS))

            async def send(text: str, task: str) -> pb.Task:
                parts = [pb.Part(text=text)]
                message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=parts, task_id=task)
                request = pb.SendMessageRequest(message=message)
                response = await runtime.operations.send.send_message(call, request)
                return pb.SendMessageResponse.FromString(response).task

            yield store, send
    finally:
        await store.close()


def check(task: pb.Task, expected: int) -> pb.Task:
    """Returns the task. Raises RuntimeError if it is in another state than expected."""
    if task.status.state != expected:
        raise RuntimeError(f"the task is {states.name(task.status.state)}: {task.status.message}")
    return task


async def measure_one(file: Path, times: int) -> list[Figure]:
    """Returns the median milliseconds of a commit and of steps, which one caller makes in turn."""
    spent: dict[str, list[float]] = {COMMIT: [], STEP: [], SYNC_STEP: []}

    async def stepper(turn: Turn) -> None:
        session = await store.open_session(LEASE)
        claimed = await store.append(created(new_ref(), claim=session))
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            COMMIT: lambda: store.append(by_runner(claimed, chunk("out", EVENT))),
            STEP: lambda: turn.step("step", find),
            SYNC_STEP: lambda: turn.step("step", find_in_thread),
        }
        for _ in range(times):
            for name, call in calls.items():
                began = time.perf_counter()
                await call()
                spent[name].append(time.perf_counter() - began)

    async with serving(file, stepper) as (store, send):
        check(await send("go", ""), states.COMPLETED)
    return [(name, statistics.median(seconds) * 1e3, "ms") for name, seconds in spent.items()]


async def measure_many(file: Path, times: int) -> list[Figure]:
    """Returns the steps per second of TASKS tasks, each of which makes `times` steps, one after another."""
    arrived, may_begin, ended = 0, asyncio.Event(), 0.0

    async def stepper(turn: Turn) -> None:
        nonlocal arrived, ended
        arrived += 1
        if arrived == TASKS:
            may_begin.set()
        await may_begin.wait()
        for _ in range(times):
            await turn.step("step", find)
        ended = time.perf_counter()

    async with serving(file, stepper) as (store, send):
        sends = [asyncio.ensure_future(send("go", "")) for _ in range(TASKS)]
        await may_begin.wait()
        began = time.perf_counter()
        for task in await asyncio.gather(*sends):
            (record,) = await store.locate(check(task, states.COMPLETED).id)
            stored = [step for step in await store.steps(record.ref) if step.state is StepState.DONE]
            if len(stored) != times:
                raise RuntimeError(f"{len(stored)} steps of a task are stored instead of {times}")
    return [(RATE, TASKS * times / (ended - began), "steps/s")]


async def measure_finished(file: Path, times: int) -> list[Figure]:
    """Returns the median milliseconds from an answer until the turn has passed its finished steps, for none and many.

    This includes the commit of the answer, the start of the turn, and the read of its steps from the store.
    """
    passed = 0.0

    async def asker(turn: Turn) -> None:
        nonlocal passed
        if turn.question is None:  # at once, because they share commits then
            turn.state["steps"] = int(turn.text)
            await asyncio.gather(*(turn.step("step", find) for _ in range(turn.state["steps"])))
        else:
            for _ in range(turn.state["steps"]):
                await turn.step("step", find)
        passed = time.perf_counter()
        turn.ask("once more?")

    spent: dict[int, list[float]] = {0: [], FINISHED: []}
    async with serving(file, asker) as (_, send):
        tasks = {steps: check(await send(str(steps), ""), states.INPUT_REQUIRED).id for steps in spent}
        for _ in range(times):
            for steps, task in tasks.items():
                began = time.perf_counter()
                check(await send("yes", task), states.INPUT_REQUIRED)
                spent[steps].append(passed - began)
    return [(answer_case(steps), statistics.median(seconds) * 1e3, "ms") for steps, seconds in spent.items()]


async def figures(folder: Path, short: bool) -> list[Figure]:
    """Returns all figures of one round."""
    one, many, finished = (50, 5, 3) if short else (500, 100, 20)
    return [
        *await measure_one(folder / "one.db", one),
        *await measure_many(folder / "many.db", many),
        *await measure_finished(folder / "finished.db", finished),
    ]


def measure(run: Run) -> None:
    """Runs the rounds, each in its own process on the server's core."""
    for number in range(run.plan.rounds):
        measure_disk(run, STEPS, number)
        command = [sys.executable, "-m", "bench.measurements.steps", *(["--short"] if run.plan.short else [])]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            pin(process.pid, SERVER_CORE)
            text, errors = process.communicate()
        if process.returncode:
            run.record_failure(Key(STEPS, "all", DRAGOMAN), number, errors.strip().splitlines()[-1])
            return
        for line in text.splitlines():
            case, value, unit = json.loads(line)
            run.record(Key(STEPS, case, DRAGOMAN), number, value, unit, text=f"{value:,.2f} {unit}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.steps", description=__doc__)
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    BENCH_FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BENCH_FOLDER) as folder:
        for figure in uvloop.run(figures(Path(folder), short)):
            print(json.dumps(figure))


if __name__ == "__main__":
    main()
