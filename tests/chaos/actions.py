"""What agents of a chaos run did, by their own account: one line per action, independent of Dragoman's verbs.

Each process appends to a file of its own in the folder CHAOS_ACTIONS. All processes of the machine share the clock
(CLOCK_MONOTONIC), so an action can be compared with the moment at which a client received a response.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BEGIN = "begin"
"""The first action of each attempt."""

END = "end"
"""The last one, in a `finally`."""

STEP = "step"
RETURNED = "returned"
"""Actions of a turn with steps, each with the number of the step: it runs; its result was returned."""

_files: dict[int, int] = {}
"""The open file of this process, by process id."""


@dataclass(frozen=True, slots=True)
class Action:
    """`at`: when it began, in seconds since the run began. `process`: where, such as `worker-2.412`."""

    at: float
    task: str
    attempt: int
    text: str
    process: str = ""


def act(task: str, attempt: int, text: str) -> None:
    """Writes an action down, with the time at which it began."""
    began = time.monotonic()
    pid = os.getpid()
    if pid not in _files:
        name = f"{os.environ.get('CHAOS_PART', 'server')}.{pid}"
        path = Path(os.environ["CHAOS_ACTIONS"]) / name
        _files[pid] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(_files[pid], f"{began:.6f} {task} {attempt} {text}\n".encode())


def read_actions(folder: Path, origin: float) -> Sequence[Action]:
    """All actions in order. `origin`: the monotonic time at which the run began."""
    found = []
    for path in folder.iterdir():
        for line in path.read_text("utf-8").splitlines():
            at, task, attempt, text = line.split(" ", 3)
            found.append(Action(round(float(at) - origin, 6), task, int(attempt), text, path.name))
    return sorted(found, key=lambda action: action.at)
