"""What a server or worker logged as an error, without what a blow explains."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dragoman.stores.postgres.database import WRITE_RETRY_TIMEOUT

AWAY: Final = "Unavailable: the store does not respond"


def errors_of(log: Path, outages: Sequence[tuple[float, float]]) -> list[str]:
    """A line for each error, with how often there was one.

    `outages`: from when to when there was no database, in seconds of the epoch. That it is away is what a server says
    then, and for as long as it asks again; all else is an error then, too.
    """
    found = Counter[str]()
    for text in log.read_text("utf-8", "replace").splitlines():
        if '"level": "ERROR"' not in text or "failing, as asked" in text:
            continue
        line = json.loads(text)
        response_text, when = error_of(line), datetime.fromisoformat(line["time"]).timestamp()
        if AWAY not in response_text or not any(began <= when <= over + WRITE_RETRY_TIMEOUT for began, over in outages):
            found[response_text] += 1
    return [f"{log.stem} logged, {times} times: {text}" for text, times in found.items()]


def error_of(line: dict[str, Any]) -> str:
    """The error itself, without what differs from one time to the next."""
    return f"{line['logger']}: {line['message']}: {line.get('exception', '').rpartition(chr(10))[2]}"
