"""Two independent stores on one database, as two processes have them, and concurrent changes on both."""

from __future__ import annotations

import asyncio
from typing import Final

from dragoman.core.task.log import Append, Appended, AppendRejected
from dragoman.extensions.postgres.store import PostgresStore

STATEMENT_TIMEOUT: Final = 60.0
"""Seconds for a statement: a batch of hundreds of writes outlasts the five of a server on a slow machine."""

Stores = tuple[PostgresStore, PostgresStore]


async def all_of(stores: Stores, changes: list[Append]) -> list[Appended | BaseException]:
    """The results of concurrent changes, every other one on the second store."""
    futures = [stores[number % 2].append(change) for number, change in enumerate(changes)]
    return await asyncio.gather(*futures, return_exceptions=True)


def reasons(results: list[Appended | BaseException]) -> list[str]:
    """Why each was rejected; empty for what was written. Other exceptions are raised."""
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, AppendRejected):
            raise result
    return [result.reason if isinstance(result, AppendRejected) else "" for result in results]
