"""ListTasks: how long a page takes, the first one and one far behind."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from bench.asking import FORMS, Form, Wanted
from bench.job import Job
from bench.lines import Line, Wrong, connect

SIZE: Final = 10
"""Tasks on a page, so that a thousand tasks have a hundred pages."""


@dataclass(frozen=True, slots=True)
class Pages:
    """Median milliseconds by number of the page, and the total that the answers name."""

    ms: dict[int, float]
    total: int


async def measure(job: Job) -> Pages:
    """The pages of the job by turns, for its seconds. Raises Wrong when one is not full."""
    form = FORMS[job.binding, job.whose]
    line = await connect(job.binding, job.target, form)
    tokens = await _tokens(line, form, job)
    took: dict[int, list[float]] = {page: [] for page in job.pages}
    total = 0
    end = time.perf_counter() + job.seconds
    while time.perf_counter() < end or not all(took.values()):
        for page in job.pages:
            wire = form.list(Wanted(SIZE, tokens[page], job.state))
            begin = time.perf_counter()
            answer = await line.ask(wire)
            took[page].append((time.perf_counter() - begin) * 1000)
            listed = form.listed(answer)
            if listed.tasks != SIZE:
                raise Wrong(f"page {page} has {listed.tasks} tasks instead of {SIZE}")
            total = listed.total
    line.close()
    return Pages({page: sorted(times)[len(times) // 2] for page, times in took.items()}, total)


async def _tokens(line: Line, form: Form, job: Job) -> dict[int, str]:
    """The token of each page of the job, by going there page by page."""
    tokens = {1: ""}
    for page in range(1, max(job.pages)):
        listed = form.listed(await line.ask(form.list(Wanted(SIZE, tokens[page], job.state))))
        if not listed.next:
            raise Wrong(f"{page} pages, and no page {max(job.pages)}")
        tokens[page + 1] = listed.next
    return tokens
