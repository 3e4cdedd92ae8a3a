"""The page docs/reference/campaign.md: adds up all recorded runs of `make campaign`."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.chaos.kinds import KINDS

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "reference" / "campaign.md"
RUNS: Final = Path(__file__).with_name("runs.jsonl")
"""One line per run, in the order in which they ran."""
FIXES: Final = Path(__file__).with_name("fixes.toml")
"""Written by hand: a table for each seed with violations, with the fields `cause`, `fix` and `test`."""
GOALS: Final = {"kills": 1_000, "reconnects": 100_000, "events": 10_000_000}
COUNTED: Final = ("sends", "tasks", "webhook requests", "progress notifications", "MCP connections", "finished steps")
"""Counts without a goal on the page."""
OPEN: Final = "**open**"


class BadRecord(Exception):
    """A line of the data file, or an entry of fixes.toml, lacks a field. The text names file, line and field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished run. `faults` and `counts`: numbers by name. `first`: its first problems."""

    date: str
    commit: str
    kind: str
    seconds: int
    seed: int
    faults: Mapping[str, int]
    counts: Mapping[str, int]
    problems: int
    first: Sequence[str]

    @property
    def kills(self) -> int:
        """Kills of any part: the faults `kills`, `kills of worker` and so on."""
        return sum(number for name, number in self.faults.items() if name.partition(" of ")[0] == "kills")

    def count(self, name: str) -> int:
        return self.kills if name == "kills" else self.counts.get(name, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """What became of the violations of one run."""

    cause: str
    fix: str
    test: str


def run_of(values: Mapping[str, Any], where: str) -> Run:
    """Returns a run from its JSON. Raises BadRecord."""
    if missing := [name for name in Run.__slots__ if name not in values]:
        raise BadRecord(f"{where}: {missing[0]} is missing")
    if values["kind"] not in KINDS:
        raise BadRecord(f"{where}: kind is {values['kind']!r}, and has to be one of {', '.join(KINDS)}")
    return Run(**{name: values[name] for name in Run.__slots__})


def read_runs(path: Path) -> list[Run]:
    """Reads the data file; no runs if it does not exist. Raises BadRecord."""
    if not path.exists():
        return []
    lines = path.read_text("utf-8").splitlines()
    return [run_of(json.loads(line), f"{path.name}:{number}") for number, line in enumerate(lines, 1)]


def read_fixes(path: Path) -> dict[int, Fix]:
    """Reads the fixes by seed; none if the file does not exist. Raises BadRecord."""
    if not path.exists():
        return {}
    found = {}
    for seed, values in tomllib.loads(path.read_text("utf-8")).items():
        if missing := [name for name in Fix.__slots__ if name not in values]:
            raise BadRecord(f"{path.name}, seed {seed}: {missing[0]} is missing")
        found[int(seed)] = Fix(**{name: values[name] for name in Fix.__slots__})
    return found


def totals(runs: Sequence[Run]) -> dict[str, int]:
    """Adds up the measures with a goal and those of COUNTED."""
    return {name: sum(run.count(name) for run in runs) for name in (*GOALS, *COUNTED)}


def is_reached(runs: Sequence[Run]) -> bool:
    """Whether the runs together reach every goal."""
    found = totals(runs)
    return all(found[name] >= goal for name, goal in GOALS.items())


# The page --------------------------------------------------------------------------------------------------------

HEAD: Final = """# Chaos campaign

A campaign is many chaos runs whose results add up. Each run serves agents, kills and pauses parts of the system under
load, and then compares everything that clients received with the store. A violation is a difference that breaks one of
[the guarantees](../explanation/guarantees.md), an unexpected error in a log, or a run that did not finish.
`make campaign` runs one, and writes this page from `tests/chaos/campaign/runs.jsonl`, which has a line for every run.
"""

REPEAT: Final = """## Repeat a run

Pass the kind, the seconds and the seed of its row:

<!-- not run: takes as long as the run that it repeats -->
```sh
CHAOS_SECONDS={seconds} CHAOS_SEED={seed} .venv/bin/python -m tests.chaos.run --kind {kind}
```

A seed repeats the choices: which faults, with which pauses between them, and which requests each client makes. It does
not repeat the timing. The processes of a run share the processor with each other, so a fault meets them at another
moment each time, and a violation may need several repetitions. A run with violations keeps its folder with the history,
the store and the logs. [The simulation](../explanation/simulation.md) repeats timing too, without real processes.
"""

LIMITS: Final = """## What this does not show

- All processes run on one machine. The network between them never loses, delays or reorders anything except when a
  process is paused or killed.
- `kill -9` ends a process; the operating system keeps what the process has written. Power failures are not part of a
  run.
- An event counts once for each follower that received it, and most events of a dense run come from tasks with
  several dozen followers.
- The checkers find what they look for. Their own tests plant each kind of violation.
- Kinds of `tests/chaos/kinds.py` without a row above have not run yet.
"""

SEVERAL_COMMITS: Final = "- The runs are of several commits. No single commit has reached the goals alone.\n"


def page(runs: Sequence[Run], fixes: Mapping[int, Fix]) -> str:
    """Returns the text of the page."""
    parts = [HEAD, _results(runs), _kinds(runs), _faults(runs), _violations(runs, fixes), _seeds(runs)]
    if runs:
        parts.append(REPEAT.format(seconds=runs[0].seconds, seed=runs[0].seed, kind=runs[0].kind))
    by_commit = [[run for run in runs if run.commit == commit] for commit in {run.commit for run in runs}]
    is_alone = len(by_commit) <= 1 or any(is_reached(of_one) for of_one in by_commit)
    return "\n".join([*parts, LIMITS if is_alone else LIMITS + SEVERAL_COMMITS])


def _table(rows: Sequence[Sequence[str]], right: int) -> str:
    """A table; columns from number `right` on are aligned right."""
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    rule = "".join("|---" if column < right else "|---:" for column in range(len(rows[0])))
    return "\n".join([head, f"{rule}|", *rest, ""])


def _results(runs: Sequence[Run]) -> str:
    found = totals(runs)
    rows = [("measure", "result", "goal")]
    rows += [(name, f"{found[name]:,}", f"{GOALS[name]:,}" if name in GOALS else "") for name in found]
    rows.append(("violations", f"{sum(run.problems for run in runs):,}", "0, or each with its fix and its test"))
    minutes = sum(run.seconds for run in runs) / 60
    days = sorted({run.date for run in runs})
    when = f", between {days[0]} and {days[-1]}" if len(days) > 1 else f", on {days[0]}" if days else ""
    explained = (
        "Kills are `kill -9` of servers and workers, and the same for NATS and PostgreSQL, whose immediate shutdown"
        " counts too. Reconnects are those of followers of tasks. Events are those that followers received."
    )
    return f"## Results\n\n{len(runs)} runs, {minutes:.0f} minutes in total{when}.\n\n{_table(rows, 1)}\n{explained}\n"


def _kinds(runs: Sequence[Run]) -> str:
    rows = [("kind", "what is served", "runs", "minutes")]
    for name, kind in KINDS.items():
        of = [run for run in runs if run.kind == name]
        if of:
            rows.append((f"`{name}`", kind.label, str(len(of)), f"{sum(run.seconds for run in of) / 60:.0f}"))
    return f"## Kinds of runs\n\n{_table(rows, 2)}"


def _faults(runs: Sequence[Run]) -> str:
    by_kind = {name: Counter[str]() for name in KINDS if any(run.kind == name for run in runs)}
    for run in runs:
        by_kind[run.kind].update(run.faults)
    names = sorted({name for run in runs for name in run.faults})
    rows = [("fault", *(f"`{kind}`" for kind in by_kind), "all")]
    for name in names:
        numbers = [of[name] for of in by_kind.values()]
        rows.append((name, *(f"{number:,}" if number else "" for number in numbers), f"{sum(numbers):,}"))
    return f"## Injected faults\n\nA fault without a named part is one of a server.\n\n{_table(rows, 1)}"


def _violations(runs: Sequence[Run], fixes: Mapping[int, Fix]) -> str:
    found = [run for run in runs if run.problems]
    if not found:
        return "## Violations\n\nNone.\n"
    rows = [("seed", "violations", "first of them", "cause", "fix", "test")]
    for run in found:
        fix = fixes.get(run.seed, Fix(cause=OPEN, fix=OPEN, test=OPEN))
        first = _cell(run.first[0]) if run.first else ""
        rows.append((str(run.seed), str(run.problems), first, _cell(fix.cause), _cell(fix.fix), _cell(fix.test)))
    return f"## Violations\n\n{_table(rows, len(rows[0]))}"


def _cell(text: str) -> str:
    """A text in one line, that does not end its cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _seeds(runs: Sequence[Run]) -> str:
    rows: list[Sequence[str]] = [
        ("seed", "kind", "date", "commit", "seconds", "kills", "reconnects", "events", "violations")
    ]
    for run in runs:
        measures = (f"{run.count(name):,}" for name in GOALS)
        rows.append(
            (str(run.seed), run.kind, run.date, run.commit, str(run.seconds), *measures, str(run.problems))
        )  # fmt: skip
    text = "The commit is that of the server's code; `+` stands for changes that were not committed."
    return f"## Every run\n\n{text}\n\n{_table(rows, 4)}"
