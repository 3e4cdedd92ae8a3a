"""`python -m bench`: the bare transports, other servers and us, side by side, in one run.

Rounds are interleaved, and ratios are taken inside a round: the machine drifts, the ratio does not. The server has the
first core, the load the second. Rows go to .bench/ as they are measured, so an interrupted run can still be reported
(`--report`). A whole run of at least three rounds writes docs/explanation/performance.md
and its plot; others only with `--write`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench import document, hooked, machine, memory, pieces, replicas, report, rounds, size, stored, watched
from bench.loader import Loader
from bench.rows import Rows, Writer
from bench.run import Plan, Run
from bench.sections import HOOKED, LIST, MEMORY, REPLICAS, SIZE, WATCHED, chosen
from bench.servers import CONTESTANTS, KEPT, LOAD_CORE, OURS, pin
from tools.environments import NotCreated

ENOUGH: Final = 3
"""Rounds of a run that may stand in the documentation."""

INTERRUPTED: Final = 130
"""The exit status that shells give a command which Ctrl-C ended."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    short = bool(os.environ.get("BENCH_SHORT"))
    parser.add_argument("--rounds", type=int, default=1 if short else 5)
    parser.add_argument("--seconds", type=float, default=0.2 if short else 1.0, help="of each measurement")
    parser.add_argument("--only", metavar="SECTIONS", default="", help="grpc-send,rest,stream,memory,...; all else")
    parser.add_argument("--servers", metavar="NAMES", default="", help=f"only these: {', '.join(CONTESTANTS)}")
    parser.add_argument("--huge", action="store_true", help="ListTasks also at a million tasks: some five minutes more")
    parser.add_argument("--own-load", action="store_true", help="neither wrk nor h2load, though they are there")
    parser.add_argument("--report", metavar="ROWS", type=Path, nargs="+", help="measure nothing, report these files")
    parser.add_argument(
        "--write", action="store_true", help="write docs/explanation/performance.md whatever was measured"
    )
    found = parser.parse_args()
    found.short = short
    found.servers = [name for name in found.servers.split(",") if name]
    if unknown := set(found.servers) - set(CONTESTANTS):
        parser.error(f"no server {', '.join(sorted(unknown))}; there are {', '.join(CONTESTANTS)}")
    try:
        found.timed, found.alone = chosen([name for name in found.only.split(",") if name])
    except ValueError as error:
        parser.error(str(error))
    return found


def main() -> int:
    namespace = arguments()
    complete = False
    if namespace.report:
        rows = Rows.read(namespace.report)
    else:
        writer, complete = measure(namespace)
        rows = Rows([writer.rows])
        print(f"\nrows: {writer.path}")
    print(report.text(rows))
    failed = [row for row in rows.errors if CONTESTANTS[row["server"]].whose in ("bare", OURS)]
    if namespace.write or (
        complete and not namespace.only and not namespace.servers and namespace.rounds >= ENOUGH and not failed
    ):
        for path in document.write(rows):
            print(f"{path} is written")
    if not complete and not namespace.report:
        return INTERRUPTED
    return 1 if failed else 0


def measure(namespace: argparse.Namespace) -> tuple[Writer, bool]:
    """The whole run. Returns what was written, and whether it was not interrupted."""
    pin(os.getpid(), LOAD_CORE)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # or its servers would outlive it
    about = {name: getattr(namespace, name) for name in ("rounds", "seconds", "only", "huge", "short", "own_load")}
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    writer = Writer(KEPT / f"rows-{stamp}-{os.getpid()}.jsonl", machine.described(about))
    tools = not namespace.own_load and not namespace.short
    plan = Plan(
        namespace.timed, namespace.rounds, namespace.seconds, namespace.short, tools, frozenset(namespace.servers)
    )
    with Loader() as loader:
        run = Run(plan, writer, loader)
        try:
            make_environments(run)
            rounds.measure(run)
            if LIST in namespace.alone:
                stored.measure(run, huge=namespace.huge)
            if SIZE in namespace.alone:
                size.measure(run)
            if MEMORY in namespace.alone:
                memory.measure(run)
            if HOOKED in namespace.alone:
                hooked.measure(run)
            if REPLICAS in namespace.alone:
                replicas.measure(run)
            if WATCHED in namespace.alone:
                pieces.measure(run)
                watched.measure(run)
        except KeyboardInterrupt:
            run.say("interrupted; what was measured is kept")
            return writer, False
        finally:
            writer.close()
    return writer, True


def make_environments(run: Run) -> None:
    """The environments of the other servers. Without one, its servers do not start, and the run says so."""
    for environment in {one.environment for name, one in CONTESTANTS.items() if run.plan.takes(name)} - {None}:
        assert environment is not None
        run.say(f"environment {environment.name}")
        try:
            environment.make()
        except NotCreated as failed:
            run.say(str(failed))


if __name__ == "__main__":
    sys.exit(main())
