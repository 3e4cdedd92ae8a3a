"""`python -m bench`: compares bare transports, other servers and Dragoman in one run.

Rounds are interleaved, and ratios are computed within a round, which excludes drift of the machine. The server has the
first core, the load the second. Rows are written to .bench/ as they are measured, so an interrupted run can be reported
(`--report`). A complete run of at least three rounds writes docs/explanation/performance.md and its plot; others only
with `--write`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench import machine
from bench.load.jobs import LoadProcess
from bench.measurements import (
    ladder,
    memory,
    replicas,
    rounds,
    sizing,
    steps,
    task_lists,
    task_size,
    telemetry,
    webhooks,
)
from bench.report import document
from bench.report import sizing as sizing_report
from bench.rows import Rows, Writer
from bench.run import Plan, Run
from bench.sections import LIST, MEMORY, REPLICAS, SIZE, SIZING, STEPS, TELEMETRY, WEBHOOKS, select_sections
from bench.servers import commits
from bench.servers.contestants import BENCH_FOLDER, CEILING, CONTESTANTS, DRAGOMAN, LOAD_CORE, pin
from tools.environments import NotCreated

MIN_DOCUMENTED_ROUNDS: Final = 3
"""Minimum rounds of a run whose results are written into the documentation."""

INTERRUPTED: Final = 130
"""Exit status of a command ended by Ctrl-C."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    short = bool(os.environ.get("BENCH_SHORT"))
    parser.add_argument("--rounds", type=int, default=1 if short else 5)
    parser.add_argument("--seconds", type=float, default=0.2 if short else 1.0, help="of each measurement")
    parser.add_argument("--only", metavar="SECTIONS", default="", help="grpc-send,rest,stream,memory,...; default: all")
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help="compare the working tree with another commit of this repository, and only these two: main~1, 0bb818d1",
    )
    parser.add_argument("--servers", metavar="NAMES", default="", help=f"only these: {', '.join(CONTESTANTS)}")
    parser.add_argument(
        "--ladder",
        action="store_true",
        help="measure only the CPU time that each layer adds to a send, from the bare transport to the whole path",
    )
    parser.add_argument(
        "--huge", action="store_true", help="also measure ListTasks at a million tasks: about five more minutes"
    )
    parser.add_argument("--own-load", action="store_true", help="use neither wrk nor h2load, even if installed")
    parser.add_argument("--report", metavar="ROWS", type=Path, nargs="+", help="measure nothing; report these files")
    parser.add_argument("--write", action="store_true", help="write the pages of the measured sections in any case")
    namespace = parser.parse_args()
    namespace.short = short
    namespace.servers = [name for name in namespace.servers.split(",") if name]
    if namespace.against and not namespace.report:
        try:
            namespace.servers += [DRAGOMAN, commits.add_commit(namespace.against)]
        except commits.CommitNotAvailable as error:
            parser.error(f"--against {namespace.against}: {error}")
    if unknown := set(namespace.servers) - set(CONTESTANTS):
        parser.error(f"unknown server {', '.join(sorted(unknown))}; the servers are {', '.join(CONTESTANTS)}")
    try:
        patterns = [name for name in namespace.only.split(",") if name]
        namespace.timed, namespace.alone = select_sections(patterns)
        if namespace.against and not patterns:
            namespace.alone = []  # they measure the working tree only
    except ValueError as error:
        parser.error(str(error))
    return namespace


def main() -> int:
    namespace = arguments()
    complete = False
    if namespace.report:
        rows = Rows.read(namespace.report)
        for server in {key.server for key in rows if key.server.startswith(commits.PREFIX)}:
            commits.add_name(server)
    else:
        writer, complete = measure(namespace)
        rows = Rows([writer.rows])
        print(f"\nrows: {writer.path}")
    print(document.render(rows))
    print(sizing_report.report(rows))
    failed = [row for row in rows.errors if CONTESTANTS[row["server"]].implementation in ("bare", CEILING, DRAGOMAN)]
    if namespace.write or (
        complete
        and not namespace.only
        and not namespace.ladder
        and not namespace.servers
        and namespace.rounds >= MIN_DOCUMENTED_ROUNDS
        and not failed
    ):
        for path in (*document.write(rows), *sizing_report.write(rows)):
            print(f"wrote {path}")
    if not complete and not namespace.report:
        return INTERRUPTED
    return 1 if failed else 0


def measure(namespace: argparse.Namespace) -> tuple[Writer, bool]:
    """Runs all measurements. Returns the writer, and whether the run was completed."""
    pin(os.getpid(), LOAD_CORE)
    signal.signal(
        signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT)
    )  # otherwise its servers would outlive it
    run_arguments = {
        name: getattr(namespace, name) for name in ("rounds", "seconds", "only", "huge", "short", "own_load")
    }
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    writer = Writer(BENCH_FOLDER / f"rows-{stamp}-{os.getpid()}.jsonl", machine.describe(run_arguments))
    tools = not namespace.own_load and not namespace.short
    plan = Plan(
        namespace.timed, namespace.rounds, namespace.seconds, namespace.short, tools, frozenset(namespace.servers)
    )
    with LoadProcess() as load_process:
        run = Run(plan, writer, load_process)
        try:
            if namespace.ladder:
                ladder.measure(run)
                return writer, True
            create_environments(run)
            rounds.measure(run)
            if LIST in namespace.alone:
                task_lists.measure(run, huge=namespace.huge)
            if SIZE in namespace.alone:
                task_size.measure(run)
            if STEPS in namespace.alone:
                steps.measure(run)
            if MEMORY in namespace.alone:
                memory.measure(run)
            if WEBHOOKS in namespace.alone:
                webhooks.measure(run)
            if REPLICAS in namespace.alone:
                replicas.measure(run)
            if TELEMETRY in namespace.alone:
                telemetry.measure(run)
            if SIZING in namespace.alone:
                sizing.measure(run)
        except KeyboardInterrupt:
            run.log("interrupted; the measured rows are saved")
            return writer, False
        finally:
            writer.close()
    return writer, True


def create_environments(run: Run) -> None:
    """Creates the environments of the other servers. A failure is logged, and its servers do not start."""
    for environment in {contestant.environment for name, contestant in CONTESTANTS.items() if run.plan.takes(name)} - {
        None
    }:
        assert environment is not None
        run.log(f"environment {environment.name}")
        try:
            environment.make()
        except NotCreated as failed:
            run.log(str(failed))


if __name__ == "__main__":
    sys.exit(main())
