"""`python -m bench`: the bare transports and us, side by side, in one run.

Rounds are interleaved, and ratios are taken inside a round: the machine drifts, the ratio does not. The server
has the first core, the load the second. One JSON row per measurement goes to the file given with --rows. A section
of its own shows what the size of a task costs (bench.size).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.servers import LOAD_CORE, ROOT, Server, bare, dragoman, pin

KINDS = {"unary": (1, 16, 64), "stream": (1, 16)}
UNITS = {"unary": "req/s", "stream": "events/s"}


def measure(server: Server, transport: str, kind: str, callers: int, seconds: float) -> dict[str, Any]:
    """One load on one server. Raises RuntimeError when any answer was wrong."""
    command = [sys.executable, "-m", "bench.load", transport, kind, server.targets[transport]]
    command += ["--callers", str(callers), "--seconds", str(seconds)] + ["--agents"] * server.agents
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as load:
        pin(load.pid, LOAD_CORE)
        said, complaint = load.communicate(timeout=seconds * 5 + 60)
    if load.returncode:
        raise RuntimeError(f"load on {server.name} failed:\n{complaint}")
    row: dict[str, Any] = json.loads(said)
    if row["errors"] or not row["count"]:
        raise RuntimeError(f"{server.name}, {transport} {kind}: {row['errors']} wrong answers")
    rate = row["count"] / row["seconds"]
    return {"server": server.name, "transport": transport, "kind": kind, "callers": callers, "rate": rate, **row}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    short = bool(os.environ.get("BENCH_SHORT"))
    parser.add_argument("--rounds", type=int, default=1 if short else 5)
    parser.add_argument("--seconds", type=float, default=0.5 if short else 3)
    parser.add_argument("--rows", type=Path, help="also write JSON rows, one a line, to this file")
    arguments = parser.parse_args()
    cells = [(t, k, c) for t in ("grpc", "http") for k in KINDS for c in KINDS[k] if not short or c in (1, 16)]
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        limits = {transport: stack.enter_context(bare(transport)) for transport in ("grpc", "http")}
        ours = stack.enter_context(dragoman())
        for number in range(arguments.rounds):
            for at, (transport, kind, callers) in enumerate(cells):
                note = f"round {number + 1}/{arguments.rounds}, {transport} {kind} {callers} ({at + 1}/{len(cells)})"
                print(f"\r{note:60}", end="", file=sys.stderr, flush=True)
                for server in (limits[transport], ours):
                    measured = measure(server, transport, kind, callers, arguments.seconds)
                    rows.append({"round": number, "bare": server is not ours, **measured})
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    if arguments.rows:
        arguments.rows.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    report(rows)
    command = [sys.executable, "-m", "bench.size", *(["--short"] if short else [])]
    subprocess.run(command, cwd=ROOT, check=True)  # in a process of its own: it weighs itself


def report(rows: list[dict[str, Any]]) -> None:
    """Prints medians with ranges, and the median of the ratios taken inside each round."""
    cells: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        cells[row["transport"], row["kind"], row["callers"]].append(row)
    print(f"{'':24}{'bare transport':>26}{'dragoman, SQLite FULL':>28}{'ratio':>18}{'p50 / p99 ms':>16}")
    for (transport, kind, callers), found in cells.items():
        limit = [row["rate"] for row in found if row["bare"]]
        ours = [row for row in found if not row["bare"]]
        rates = [row["rate"] for row in ours]
        ratios = [mine / bound for mine, bound in zip(rates, limit, strict=True)]
        p50, p99 = (statistics.median(row[name] for row in ours) for name in ("p50", "p99"))
        print(
            f"{f'{transport} {kind}, {callers}':24}{_spread(limit, '.0f'):>26}{_spread(rates, '.0f'):>28}"
            f"{_spread(ratios, '.2f'):>18}{f'{p50:.1f} / {p99:.1f}':>16}  {UNITS[kind]}"
        )


def _spread(values: list[float], form: str) -> str:
    middle = format(statistics.median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({format(min(values), form)}-{format(max(values), form)})"


if __name__ == "__main__":
    main()
