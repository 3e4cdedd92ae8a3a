"""A batch of appends: what it locks, in which order, and what one of two processes may write."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.extensions.postgres.two_stores import Stores, all_of, reasons

from dragoman.core.task import states
from dragoman.core.task.log import (
    EXISTS,
    NOT_READY,
    Append,
    NewTask,
    Ready,
)
from dragoman.testing.fixtures import (
    AGENT,
    by_runner,
    cancel,
    chunk,
    created,
    new_ref,
    running,
    status,
)

pytestmark = pytest.mark.long


async def test_a_task_is_claimed_once(stores: Stores) -> None:
    refs = [(await stores[0].append(created(new_ref()))).record.ref for _ in range(40)]
    claims = [Append(task=ref, guard=Ready(), claim_session=session) for ref in refs for session in (1, 2)]
    reasons_given = reasons(await all_of(stores, claims))
    for one, other in zip(reasons_given[::2], reasons_given[1::2], strict=True):
        assert sorted((one, other)) == ["", NOT_READY]


async def test_events_of_two_writers_have_no_gap(stores: Stores) -> None:
    claimed = await running(stores[0])
    changes = [by_runner(claimed, chunk("out", f"{number} ")) for number in range(200)]
    assert set(reasons(await all_of(stores, changes))) == {""}
    events = await stores[1].events(claimed.record.ref, 0, 1000)
    assert [event.sequence for event in events] == list(range(1, 202))


async def test_one_of_two_concurrent_ends_is_written(stores: Stores) -> None:
    for _ in range(10):
        claimed = await running(stores[0])
        end = by_runner(claimed, status(states.COMPLETED), end=True)
        reasons_given = reasons(await all_of(stores, [end, cancel(claimed.record.ref)]))
        assert sorted(bool(reason) for reason in reasons_given) == [False, True]


async def test_an_alias_is_assigned_once(stores: Stores) -> None:
    changes = [replace(created(new_ref()), create=NewTask(AGENT, "mine", "c", alias=True)) for _ in range(20)]
    assert sorted(reasons(await all_of(stores, changes))) == ["", *[EXISTS] * 19]
