"""Large parts in rows of their own, and the removal of unreferenced ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.postgres import execute

from dragoman.core.task.maintenance import TaskSelection
from dragoman.extensions.postgres import blobs
from dragoman.extensions.postgres.store import PostgresStore
from dragoman.testing.fixtures import (
    Clock,
    by_runner,
    file,
    finished,
    running,
)

pytestmark = pytest.mark.long


async def test_unreferenced_large_parts_are_removed_after_a_grace_period(
    store: PostgresStore, postgres_url: str, clock: Clock
) -> None:
    content, other = b"x" * 300_000, b"y" * 300_000
    first = await finished(store, file("a", content), file("b", other))
    second = await finished(store, file("a", content))

    async def kept() -> int:
        (row,) = await execute(postgres_url, "SELECT count(*) FROM blobs")
        return int(row[0])

    clock.now += blobs.UNUSED_BLOB_GRACE_MS + 1
    assert (await store.compact()).files == 0
    await store.erasures.erase(TaskSelection(task=first.record.id))
    assert (await store.compact()).files == 1
    assert await kept() == 1
    assert (await store.compact()).files == 0
    await store.erasures.erase(TaskSelection(task=second.record.id))
    assert (await store.compact()).files == 1
    late = await running(store)
    with pytest.raises(Exception, match="fenced"):
        await store.append(replace(by_runner(late, file("a", content)), guard=by_runner(first).guard))
    assert await kept() == 1
    assert (await store.compact()).files == 0  # it was just written: its append might be in progress
    clock.now += blobs.UNUSED_BLOB_GRACE_MS + 1
    assert (await store.compact()).files == 1
