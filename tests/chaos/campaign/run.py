"""`make campaign`: chaos runs of several kinds with new seeds, until the time is over or the goals are reached.

CAMPAIGN_MINUTES (60) is the time. Each run is a process of its own; its result is appended to a committed file as soon
as it has finished, so an interrupted campaign keeps it, and later campaigns add to it. A run with violations keeps its
folder, and the campaign continues. `--page` writes the page from the file only. Ends with exit code 1 after violations.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from tests.chaos.campaign.page import FIXES, PAGE, RUNS, Run, is_reached, page, read_fixes, read_runs, run_of, totals
from tests.chaos.kinds import KINDS, Kind
from tests.chaos.report import commit, summarize
from tests.chaos.targets.replicas import missing
from tests.frameworks.suite import framework

from tools.environments import NotCreated

ROTATION: Final = (
    ("hasty", 240),
    ("dense-cluster", 240),
    ("langgraph", 150),
    ("hasty", 240),
    ("dense", 300),
    ("cluster", 120),
    ("dense-cluster", 240),
    ("pydantic-ai", 150),
    ("one", 100),
)
"""Kinds and seconds, one after the other."""
SHORTEST: Final = 60.0
"""Seconds of the shortest run. A campaign ends when less is left."""
OVERHEAD: Final = 600.0
"""Seconds for start, end and checks of a run, after which it is stopped and recorded as failed."""
TAIL_LINES: Final = 3
"""Lines of the output of a failed run that are recorded."""


def say(text: str) -> None:
    print(f"campaign: {text}", flush=True)


def unavailable(kind: Kind) -> str:
    """Returns the reason why a kind cannot run here; empty if it can. Creates the environment of its framework."""
    if kind.several:
        return missing()
    if kind.framework:
        try:
            framework(kind.framework).environment.make()
        except NotCreated as error:
            return str(error)
    return ""


def plan(kinds: Sequence[str], left: float) -> Generator[tuple[str, int], float, None]:
    """Yields kinds and seconds in the order of ROTATION, as long as they fit. Send it the seconds that are left.

    The last run is shortened to what is left.
    """
    possible = [(kind, seconds) for kind, seconds in ROTATION if kind in kinds]
    for kind, seconds in cycle(possible):
        if left < SHORTEST:
            return
        left = yield kind, int(min(seconds, left))


def run_once(kind: str, seconds: int, seed: int, folder: Path) -> dict[str, Any]:
    """Performs one run in a process, and returns its report. Prints its output."""
    report, lines = folder / f"{seed}.json", list[str]()
    command = [sys.executable, "-m", "tests.chaos.run", "--kind", kind, "--report", str(report)]
    environment = os.environ | {"CHAOS_SECONDS": str(seconds), "CHAOS_SEED": str(seed)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    stop = _stop_after(process, seconds + OVERHEAD)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.strip())
        process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)  # it ends its servers
        process.wait()
        raise
    finally:
        stop.cancel()
    if report.exists():
        values: dict[str, Any] = json.loads(report.read_text("utf-8"))
        return values
    text = f"the run ended with exit code {process.returncode}: {' / '.join(lines[-TAIL_LINES:])}"
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit(), "kind": kind, "seconds": seconds, "seed": seed,
        "faults": {}, "counts": {}, "problems": 1, "first": [summarize(text)],
    }  # fmt: skip


def _stop_after(process: subprocess.Popen[str], seconds: float) -> threading.Timer:
    """Interrupts a process that has not ended after `seconds`."""
    timer = threading.Timer(seconds, process.send_signal, [signal.SIGINT])
    timer.daemon = True
    timer.start()
    return timer


def append(path: Path, values: dict[str, Any]) -> Run:
    """Appends a run to the data file. Raises BadRecord, and appends nothing then."""
    run = run_of(values, f"seed {values.get('seed')}")
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")
    return run


def write_page() -> None:
    """Writes the page from the data file."""
    PAGE.write_text(page(read_runs(RUNS), read_fixes(FIXES)), "utf-8")


def campaign(minutes: float, *, whole: bool) -> int:
    """Performs the runs. Returns the number of violations in them."""
    began, problems, kinds = time.monotonic(), 0, list[str]()
    for name in dict(ROTATION):
        if why := unavailable(KINDS[name]):
            say(f"no runs of kind {name}: {why}")
        else:
            kinds.append(name)
    planned = plan(kinds, 60 * minutes)
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        chosen = next(planned, None)
        while chosen is not None and (whole or not is_reached(read_runs(RUNS))):
            kind, seconds = chosen
            run = append(RUNS, run_once(kind, seconds, secrets.randbelow(10**9), Path(folder)))
            problems += run.problems
            write_page()
            found = ", ".join(f"{number:,} {name}" for name, number in totals(read_runs(RUNS)).items())
            left = 60 * minutes - (time.monotonic() - began)
            say(f"{left / 60:.0f} minutes left; all runs so far: {found}")
            try:
                chosen = planned.send(left)
            except StopIteration:
                chosen = None
    return problems


def main() -> int:
    """Runs a campaign, or writes the page."""
    parser = argparse.ArgumentParser(prog="make campaign ARGS=...", description="Run a chaos campaign.")
    parser.add_argument("--page", action="store_true", help="write docs/reference/campaign.md only")
    parser.add_argument("--whole", action="store_true", help="use the whole time, even if the goals are reached")
    options = parser.parse_args()
    if options.page:
        write_page()
        say(f"wrote {PAGE}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the run in progress ends its servers
    try:
        problems = campaign(float(os.environ.get("CAMPAIGN_MINUTES", "60")), whole=options.whole)
    except KeyboardInterrupt:
        say("interrupted; finished runs are recorded")
        return 130
    say(f"{problems} PROBLEMS" if problems else "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
