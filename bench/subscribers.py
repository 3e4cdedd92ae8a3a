"""One task and many who follow it: events a second that arrive at all of them together.

The task's events are held back until everybody is there. The clock runs from the first event that arrives anywhere to
the last one; each subscriber has to get all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.answers import ID, TICKS
from bench.asking import FORMS, Form
from bench.job import Job, Measured
from bench.lines import Line, Wrong, connect
from bench.spent import cpu

SETTLE: Final = 0.2
"""Seconds between the last subscriber's first sign and the first event: a server may still be taking it in."""

WAIT_TIMEOUT: Final = 60.0


async def measure(job: Job) -> Measured:
    """Raises Wrong when somebody got too few events, or too many."""
    form = FORMS[job.binding, job.whose]
    lines = [await connect(job.binding, job.target, form) for _ in range(job.callers + 1)]
    task = await _task(job, form, lines[0])
    audience = Audience(job.callers)
    wire = form.subscribe(_text(job), task)
    following = asyncio.gather(*(line.follow(wire, audience.listener(number)) for number, line in enumerate(lines[1:])))
    try:
        await audience.complete(following)
        await asyncio.sleep(SETTLE)
        server, load = cpu(job.pid), time.process_time()
        Path(job.go).touch()
        await asyncio.wait_for(following, WAIT_TIMEOUT)
        server, load = cpu(job.pid) - server, time.process_time() - load
    except TimeoutError:
        raise Wrong(f"{job.callers} subscribers got {sum(audience.got)} events in {WAIT_TIMEOUT:.0f} s") from None
    finally:
        Path(job.go).unlink(missing_ok=True)
        for line in lines:
            line.close()
    if set(audience.got) != {TICKS}:
        raise Wrong(f"between {min(audience.got)} and {max(audience.got)} events instead of {TICKS}")
    return Measured(
        kind=job.kind, count=sum(audience.got), seconds=audience.last - audience.first, p50=0.0, p99=0.0,
        server_cpu=server, load_cpu=load, tool="own client",
    )  # fmt: skip


class Audience:
    """What each subscriber got, and when the first and the last event came."""

    def __init__(self, size: int) -> None:
        self.got = [0] * size
        self.first = 0.0
        self.last = 0.0
        self._absent = set(range(size))
        self._complete = asyncio.Event()

    async def complete(self, following: asyncio.Future[Any]) -> None:
        """Returns once everybody is there. Raises TimeoutError, and what `following` raises before."""
        present = asyncio.ensure_future(self._complete.wait())
        await asyncio.wait((present, following), timeout=WAIT_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            await following
        if not present.done():
            raise TimeoutError

    def listener(self, number: int) -> Callable[[int], None]:
        """What is told of the events of one subscriber."""

        def arrived(count: int) -> None:
            if self._absent:
                self._absent.discard(number)
                if not self._absent:
                    self._complete.set()
            if count:
                self.last = time.perf_counter()
                self.first = self.first or self.last
                self.got[number] += count

        return arrived


async def _task(job: Job, form: Form, line: Line) -> str:
    if job.whose == "bare":
        return ID
    return form.task(await line.ask(form.send(_text(job), wait=False)))


def _text(job: Job) -> str:
    return f"ticks {TICKS} {job.go}"
