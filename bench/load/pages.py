"""Load kind `list`: latency of ListTasks pages."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from bench.load.codecs import CODECS, Codec, PageRequest
from bench.load.connections import Connection, WrongResponse, connect
from bench.load.jobs import Job

PAGE_SIZE: Final = 10
"""Tasks per page, so that a thousand tasks have a hundred pages."""


@dataclass(frozen=True, slots=True)
class Pages:
    """Median milliseconds by page number, and the total in the responses."""

    ms: dict[int, float]
    total: int


async def measure(job: Job) -> Pages:
    """Reads the pages of the job in turn for its duration. Raises WrongResponse for a page that is not full."""
    codec = CODECS[job.binding, job.implementation]
    connection = await connect(job.binding, job.target, codec)
    tokens = await _page_tokens(connection, codec, job)
    durations: dict[int, list[float]] = {page: [] for page in job.pages}
    total = 0
    end = time.perf_counter() + job.seconds
    while time.perf_counter() < end or not all(durations.values()):
        for number in job.pages:
            request = codec.list(PageRequest(PAGE_SIZE, tokens[number], job.state))
            begin = time.perf_counter()
            response = await connection.call(request)
            durations[number].append((time.perf_counter() - begin) * 1000)
            page = codec.page(response)
            if page.tasks != PAGE_SIZE:
                raise WrongResponse(f"page {number} has {page.tasks} tasks instead of {PAGE_SIZE}")
            total = page.total
    connection.close()
    return Pages({number: sorted(times)[len(times) // 2] for number, times in durations.items()}, total)


async def _page_tokens(connection: Connection, codec: Codec, job: Job) -> dict[int, str]:
    """Returns the token of each page up to the last page of the job, by reading all pages."""
    tokens = {1: ""}
    for number in range(1, max(job.pages)):
        page = codec.page(await connection.call(codec.list(PageRequest(PAGE_SIZE, tokens[number], job.state))))
        if not page.next_token:
            raise WrongResponse(f"{number} pages, and no page {max(job.pages)}")
        tokens[number + 1] = page.next_token
    return tokens
