"""Reports of chaos runs, for `make scorecard` and `make campaign`."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.chaos.history import Fault

ROOT: Final = Path(__file__).parents[2]
REPORTS: Final = ROOT / ".chaos"
SCORED: Final = {"one": "one.json", "cluster": "several.json"}
"""The kinds of runs on the scorecard, with their files."""
MOST_REPORTED: Final = 5
"""Problems in a report."""
MOST_CHARS: Final = 300
"""Characters of a problem in a report."""
FAULT_NAMES: Final = {
    "kill": "kills",
    "pause": "pauses",
    "drain": "drains",
    "restart": "restarts",
    "failover": "failovers",
    "hang": "failovers from a frozen primary",
    "wipe": "restarts without its store",
    "fill": "full disks",
    "take": "times without descriptors",
    "step": "clock steps",
    "cut": "cuts",
}
"""The name in a report for each kind of fault."""
NAMED_WITHOUT_PART: Final = ("fill", "take", "step")
_FOLDER: Final = re.compile(r"/\S*?/chaos-\w+")
SERVED: Final = ("server", "gen", "proto")
"""The folders of the server's code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The result of one run. `commit`: of the server's code, with a `+` if that has changes."""

    date: str
    commit: str
    seconds: int
    seed: int
    faults: Mapping[str, int]
    counts: Mapping[str, int]
    problems: Sequence[str]

    @property
    def text(self) -> str:
        """All counts in one line."""
        return ", ".join(f"{number} {name}" for name, number in {**self.faults, **self.counts}.items())

    def values(self, kind: str) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "date": self.date,
            "commit": self.commit,
            "kind": kind,
            "seconds": self.seconds,
            "seed": self.seed,
            "faults": dict(self.faults),
            "counts": dict(self.counts),
            "problems": len(self.problems),
            "first": [summarize(problem) for problem in self.problems[:MOST_REPORTED]],
        }

    def write(self, kind: str, path: Path | None = None) -> None:
        """Writes the report: to `path`, or for the scorecard, where it replaces the last one of its kind."""
        values = self.values(kind)
        if path is None:
            if kind not in SCORED:
                return
            path = REPORTS / SCORED[kind]
            values["several"] = kind == "cluster"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(values, indent=1) + "\n", "utf-8")


def name_of(fault: Fault) -> str:
    """Returns the name under which a fault is counted: its kind, and its part unless that is the server."""
    name = FAULT_NAMES[fault.how]
    return name if fault.part == "server" or fault.how in NAMED_WITHOUT_PART else f"{name} of {fault.part}"


def summarize(problem: str) -> str:
    """Returns a problem without the folders of this machine, and without its end if it is long."""
    text = _FOLDER.sub("FOLDER", problem.replace(f"{ROOT}/", ""))
    return text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS - 1]}…"


def commit() -> str:
    """Returns the commit of the server's code; empty without a repository."""
    head = _git("rev-parse", "--short", "HEAD")
    return head + "+" * bool(head and _git("status", "--porcelain", "--", *SERVED))


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
