"""Rates of Dragoman beside engines that are no A2A libraries: `python -m bench.studies.engines`.

DBOS runs workflows in its own process, on SQLite and on PostgreSQL, and LangGraph's development server answers A2A from
memory; both have an environment of their own (`bench/peers`) and their defaults. Rounds are interleaved. Servers and
databases have the first core, the callers of the two A2A servers the second; the callers of DBOS are in its process. A
unit of work is started and awaited: a blocking send over JSON-RPC, or a workflow that returns its argument.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import uvloop
from tests import postgres

from bench.load import http1
from bench.servers.contestants import (
    BENCH_FOLDER,
    CONTESTANTS,
    DRAGOMAN,
    LOAD_CORE,
    PEERS,
    SERVER_CORE,
    free_port,
    pin,
    start_server,
)
from tools.environments import ROOT, Environment

TEXT: Final = "thirty-two bytes of message text"
CALLERS: Final = 64
START_TIMEOUT: Final = 60.0
"""Seconds until the server of LangGraph has to answer."""

DBOS: Final = Environment("bench_dbos", (PEERS / "dbos" / "requirements.txt",))
LANGGRAPH: Final = Environment("bench_langgraph", (PEERS / "langgraph" / "requirements.txt",))
WORK: Final = "work"
STEP: Final = "step"
STEPS: Final = "steps"
TITLES: Final = {
    WORK: f"started and completed, {CALLERS} callers",
    STEP: "one step of one caller, median",
    STEPS: f"steps of {CALLERS} at once",
}
"""The title of each case."""

Row = tuple[str, float, str]
"""Case, value and unit."""


def run(command: list[str | Path]) -> list[Any]:
    """Runs a command on the first core. Returns the JSON values that it prints, one on each line."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        pin(process.pid, SERVER_CORE)
        text, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(errors.strip()[-2000:])
    return [json.loads(line) for line in text.splitlines() if line.startswith("[")]


async def sends_per_second(target: str, path: str, seconds: float) -> float:
    """Returns the blocking sends per second of an A2A server, each checked for its state and text."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": TEXT}]}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}).encode()
    headers = {"A2A-Version": "1.0", "Accept": "application/json"}
    sent = http1.request("POST", target, path, body, headers)
    count, end = 0, 0.0

    async def caller() -> None:
        nonlocal count
        connection = await http1.Connection.open(target)
        try:
            while time.perf_counter() < end:
                task = json.loads((await connection.call(sent)).partition(b"\r\n\r\n")[2] or b"{}")["result"]["task"]
                text = task["artifacts"][0]["parts"][0]["text"]
                if task["status"]["state"] != "TASK_STATE_COMPLETED" or text != TEXT:
                    raise RuntimeError(f"wrong response: {task}")
                count += 1
        finally:
            connection.close()

    for measured in (seconds / 2, seconds):  # the first half warms the server
        count, began = 0, time.perf_counter()
        end = began + measured
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return count / (time.perf_counter() - began)


def ours(seconds: float) -> list[Row]:
    """Returns the figures of Dragoman: sends of a server on SQLite, and steps of a runtime in one process."""
    with start_server(CONTESTANTS[DRAGOMAN]) as server:
        rate = uvloop.run(sends_per_second(server.target("jsonrpc"), "/", seconds))
    figures = {case: (value, unit) for case, value, unit in run([sys.executable, "-m", "bench.measurements.steps"])}
    step, steps = figures["one step with a result of 50 bytes"], figures[f"steps of {CALLERS} tasks at once"]
    return [(WORK, rate, "/s"), (STEP, *step), (STEPS, *steps)]


def dbos(url: str, seconds: float) -> list[Row]:
    """Returns the figures of DBOS on a database."""
    rows = run([DBOS.python, PEERS / "dbos" / "load.py", url, str(seconds)])
    return [(case, value, unit) for case, value, unit in rows]


@contextmanager
def langgraph_server(folder: Path) -> Iterator[tuple[str, str]]:
    """Runs the development server in a folder. Yields HOST:PORT and the path of its only assistant."""
    for name in ("graph.py", "langgraph.json"):
        (folder / name).write_bytes((PEERS / "langgraph" / name).read_bytes())
    port = free_port()
    program = str(LANGGRAPH.python.with_name("langgraph"))
    command = [program, "dev", "--no-browser", "--no-reload", "--port", str(port)]
    options = ["--n-jobs-per-worker", str(CALLERS), "--server-log-level", "ERROR"]
    environment = {**os.environ, "LANGSMITH_TRACING": "false", "LOG_LEVEL": "ERROR"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, *options], cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        pin(process.pid, SERVER_CORE)
        yield f"127.0.0.1:{port}", f"/a2a/{uvloop.run(_assistant(f'127.0.0.1:{port}'))}"
    finally:
        process.terminate()
        process.wait()


async def _assistant(target: str) -> str:
    """Returns the id of the server's first assistant, once it answers."""
    end = time.perf_counter() + START_TIMEOUT
    while True:
        try:
            connection = await http1.Connection.open(target)
            response = await connection.call(http1.request("POST", target, "/assistants/search", b"{}"))
            connection.close()
            return str(json.loads(response.partition(b"\r\n\r\n")[2])[0]["assistant_id"])
        except (OSError, IndexError, ValueError):
            if time.perf_counter() > end:
                raise
            await asyncio.sleep(0.2)


def langgraph(folder: Path, seconds: float) -> list[Row]:
    """Returns the sends per second of the development server of LangGraph."""
    with langgraph_server(folder) as (target, path):
        return [(WORK, uvloop.run(sends_per_second(target, path, seconds)), "/s")]


def one_round(folder: Path, database: str, seconds: float) -> dict[str, list[Row]]:
    """Measures each of them once."""
    return {
        "Dragoman": ours(seconds),
        "DBOS, SQLite": dbos(f"sqlite:///{folder}/dbos.sqlite", seconds),
        "DBOS, PostgreSQL": dbos(database, seconds),
        "LangGraph Agent Server, in memory": langgraph(folder, seconds),
    }


def shown(value: float) -> str:
    """Formats a value with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def table(rounds: list[dict[str, list[Row]]]) -> str:
    """Formats medians with minimum and maximum."""
    lines = [f"| | {' | '.join(TITLES.values())} |", f"|---{'|---' * len(TITLES)}|"]
    for name in rounds[0]:
        cells = []
        for case in TITLES:
            rows = [(value, unit) for one in rounds for found, value, unit in one[name] if found == case]
            values = [value for value, _ in rows]
            if rows:
                cells.append(f"{shown(median(values))} [{shown(min(values))}..{shown(max(values))}] {rows[0][1]}")
            else:
                cells.append("")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    namespace = parser.parse_args()
    for environment in (DBOS, LANGGRAPH):
        environment.make()
    pin(os.getpid(), SERVER_CORE)  # PostgreSQL inherits the core
    server = postgres.Server()
    server.start()
    pin(os.getpid(), LOAD_CORE)
    rounds: list[dict[str, list[Row]]] = []
    try:
        for number in range(namespace.rounds):
            BENCH_FOLDER.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=BENCH_FOLDER) as folder:
                rounds.append(one_round(Path(folder), server.url(f"dbos{number}"), namespace.seconds))
    finally:
        server.stop()
    print(table(rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
