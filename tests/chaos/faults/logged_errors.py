"""Errors in the log of a server or worker that no fault explains."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dragoman.extensions.postgres.database import DEFAULT_RETRIES

AWAY: Final = ("the store does not respond", "the store stopped responding", "dragoman.store: a batch of")
"""Parts of the errors that a server without its database logs."""
FAILED_OVER: Final = "dragoman.store: the database was failed over (timeline"
"""The error that a server logs when it meets another primary: it cannot know that the standby was synchronous."""
NOTICED: Final = 15.0
"""Seconds in which a server meets the new primary, also one that is paused."""


Period = tuple[float, float]
"""Begin and end, in seconds of the epoch."""


def errors_of(log: Path, outages: Sequence[Period], failovers: Sequence[Period] = ()) -> list[str]:
    """Returns a line for each distinct error, with its count.

    outages: periods without a database. Reports of an unavailable store are expected during an outage and until the
    next retry. failovers: those with another primary at their end, which every server reports. All other errors count.
    """
    found = Counter[str]()
    for text in log.read_text("utf-8", "replace").splitlines():
        if '"level": "ERROR"' not in text or "failing, as asked" in text:
            continue
        line = json.loads(text)
        response_text, when = error_of(line), datetime.fromisoformat(line["time"]).timestamp()
        away = any(text in response_text for text in AWAY) and _is_within(outages, when, DEFAULT_RETRIES.write)
        failed_over = response_text.startswith(FAILED_OVER) and _is_within(failovers, when, NOTICED)
        if not (away or failed_over):
            found[response_text] += 1
    return [f"{log.stem} logged, {times} times: {text}" for text, times in found.items()]


def error_of(line: dict[str, Any]) -> str:
    """Returns the error without its variable parts."""
    return f"{line['logger']}: {line['message']}: {line.get('exception', '').rpartition(chr(10))[2]}"


def _is_within(periods: Sequence[Period], when: float, after: float) -> bool:
    """Whether a time is in one of the periods, or so many seconds after it."""
    return any(began <= when <= over + after for began, over in periods)
