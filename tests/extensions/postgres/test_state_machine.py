"""PostgreSQL against the model: the same changes and crashes give the same tasks, and exact counters."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, run_state_machine_as_test
from tests.extensions.postgres.two_stores import STATEMENT_TIMEOUT
from tests.postgres import Server, execute

from dragoman.core.limits.quotas import Quota
from dragoman.core.task.log import Append
from dragoman.extensions.postgres.errors import InvalidDatabase
from dragoman.extensions.postgres.store import open_store
from dragoman.ports import Store
from dragoman.testing.contracts.store_machine import StoreMachine
from dragoman.testing.fixtures import Clock

pytestmark = pytest.mark.longest

EXAMPLES = 50 if os.environ.get("HYPOTHESIS_PROFILE") else 5
"""Each example creates a database and opens a store several times."""

PLENTY = Quota(live_tasks=10**9, queued_bytes=10**12)

COUNTERS = (
    (
        "SELECT principal, agent, sum(live) FROM quota_counters GROUP BY 1, 2 HAVING sum(live) <> 0",
        "SELECT principal, agent, count(*) FROM tasks WHERE state NOT IN (3, 4, 5, 7) GROUP BY 1, 2",
    ),
    (
        "SELECT principal, agent, sum(queued) FROM quota_counters GROUP BY 1, 2 HAVING sum(queued) <> 0",
        "SELECT coalesce(nullif(m.sender, ''), o.principal), t.agent, sum(m.size)"
        " FROM tasks t JOIN owners o USING (owner) JOIN messages m USING (owner, task)"
        " WHERE m.number > t.last_delivered AND m.size > 0 AND t.state NOT IN (3, 4, 5, 7) GROUP BY 1, 2",
    ),
    (
        "SELECT owner, agent, state, sum(tasks) FROM totals GROUP BY 1, 2, 3 HAVING sum(tasks) <> 0",
        "SELECT owner, agent, state, count(*) FROM tasks WHERE visible GROUP BY 1, 2, 3",
    ),
)
"""The counters, and what they count."""

BOTH = (*COUNTERS, *((there, counted) for counted, there in COUNTERS))


def machine(postgres: Server, **methods: Callable[..., object]) -> type[StoreMachine]:
    """The machine on this server, in a database for each example."""

    class OnPostgres(StoreMachine):
        @property
        def url(self) -> str:
            return postgres.url(Path(self.folder.name).name.replace("-", "_"))

        async def open_store(self, folder: Path, clock: Clock) -> Store:
            try:
                return await open_store(self.url, clock=clock, statement_timeout=STATEMENT_TIMEOUT)
            except InvalidDatabase:  # there is no store yet
                await execute(postgres.url(), f"CREATE DATABASE {self.url.rpartition('/')[2]}")
                return await open_store(self.url, clock=clock, statement_timeout=STATEMENT_TIMEOUT)

        def teardown(self) -> None:
            super().teardown()
            if hasattr(self, "folder"):
                name = self.url.rpartition("/")[2]
                asyncio.run(execute(postgres.url(), f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))

    return type("OnPostgres", (OnPostgres,), methods)


def _with_a_quota(self: Any, change: Append) -> None:
    StoreMachine._append(self, replace(change, quota=PLENTY) if change.message is not None else change)


@invariant()
def _counts(self: Any) -> None:
    if not hasattr(self, "store") or self.pending:
        return
    wrong = " UNION ALL ".join(f"SELECT 1 FROM (({counted}) EXCEPT ({there})) x" for counted, there in BOTH)
    assert self._run(execute(self.url, wrong)) == []


@pytest.mark.parametrize("methods", [{}, {"_do": _with_a_quota, "counts": _counts}], ids=["tasks", "counters"])
def test_the_store_and_the_model_agree(postgres: Server, methods: dict[str, Callable[..., object]]) -> None:
    run_state_machine_as_test(
        machine(postgres, **methods),
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
