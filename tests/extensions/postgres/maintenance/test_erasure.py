"""Erasures while other processes write, or erase too."""

from __future__ import annotations

import asyncio

import pytest
from tests.extensions.postgres.two_stores import Stores
from tests.postgres import execute

from dragoman.core.names import Owner
from dragoman.core.task.cursors import TaskQuery
from dragoman.core.task.maintenance import TaskSelection
from dragoman.testing.fixtures import (
    AGENT,
    OWNER,
    Clock,
    created,
    new_ref,
    running,
)

pytestmark = pytest.mark.long


async def test_a_principal_erased_by_another_process_may_return(stores: Stores) -> None:
    """Owner numbers are not cached: rows for an erased owner would have no owner."""
    owner = Owner("default", "alice")
    await stores[0].append(created(new_ref(owner)))
    await stores[1].erasures.erase(TaskSelection(principal="alice"))
    again = (await stores[0].append(created(new_ref(owner)))).record
    assert await stores[1].find(owner, AGENT, again.id) is not None


async def test_tasks_created_while_their_principal_is_erased_exist_or_are_erased(stores: Stores) -> None:
    owner = Owner("default", "alice")
    for _ in range(10):
        sent = [stores[0].append(created(new_ref(owner))) for _ in range(20)]
        await stores[1].erasures.erase(TaskSelection(principal="alice"))
        heads = [appended.record for appended in await asyncio.gather(*sent)]
        found = [await stores[0].find(owner, AGENT, head.id) for head in heads]
        left = {head.id for head in found if head is not None}
        page = await stores[1].page(TaskQuery(owner, AGENT, page_size=100))
        assert page.total == len(page.tasks) == len(left)
        await stores[1].erasures.erase(TaskSelection(principal="alice"))


async def test_an_erasure_in_progress_in_another_process_is_not_resumed(stores: Stores, clock: Clock) -> None:
    created_tasks = [(await running(stores[0])).record for _ in range(5)]
    seen, go_on = asyncio.Event(), asyncio.Event()
    database = stores[0]._maintenance
    change = database.write

    async def slow(write: object, *arguments: object) -> object:
        result: object = await change(write, *arguments)  # type: ignore[arg-type]
        seen.set()
        await go_on.wait()
        return result

    database.write = slow  # type: ignore[method-assign, assignment]
    erasing = asyncio.create_task(stores[0].erasures.erase(TaskSelection(principal=OWNER.principal)))
    await seen.wait()
    assert await stores[1].erasures.resume() == []
    clock.now += 61_000  # a minute without progress: its process is dead
    (receipt,) = await stores[1].erasures.resume()
    assert receipt.counts.tasks == len(created_tasks)
    go_on.set()
    assert (await erasing).digest == receipt.digest


async def test_the_cancel_request_of_an_erased_task_is_deleted(stores: Stores, postgres_url: str) -> None:
    for record in [(await running(stores[0])).record for _ in range(2)]:
        await stores[0].cancel_requests.request(record.ref, b"my name is Ada")
    await stores[0].erasures.erase(TaskSelection(task=record.id))
    assert len(await execute(postgres_url, "SELECT metadata FROM cancel_requests")) == 1
