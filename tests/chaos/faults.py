"""Errors in the log of a server or worker that no fault explains."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dragoman.stores.postgres.database import DEFAULT_RETRIES

AWAY: Final = ("the store does not respond", "the store stopped responding", "dragoman.store: a batch of")
"""Parts of the errors that a server without its database logs."""


def errors_of(log: Path, outages: Sequence[tuple[float, float]]) -> list[str]:
    """Returns a line for each distinct error, with its count.

    outages: periods without a database, in seconds of the epoch. Reports of an unavailable store are expected during
    an outage and until the next retry; all other errors count.
    """
    found = Counter[str]()
    for text in log.read_text("utf-8", "replace").splitlines():
        if '"level": "ERROR"' not in text or "failing, as asked" in text:
            continue
        line = json.loads(text)
        response_text, when = error_of(line), datetime.fromisoformat(line["time"]).timestamp()
        during_outage = any(began <= when <= over + DEFAULT_RETRIES.write for began, over in outages)
        if not (during_outage and any(text in response_text for text in AWAY)):
            found[response_text] += 1
    return [f"{log.stem} logged, {times} times: {text}" for text, times in found.items()]


def error_of(line: dict[str, Any]) -> str:
    """Returns the error without its variable parts."""
    return f"{line['logger']}: {line['message']}: {line.get('exception', '').rpartition(chr(10))[2]}"
