"""Push configurations of several processes: cursors, claims and locks."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.extensions.postgres.two_stores import Stores

from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import DeliveryOutcome, DeliveryReport
from dragoman.testing.fixtures import (
    artifact,
    by_runner,
    created,
    new_ref,
)

pytestmark = pytest.mark.long


async def test_delivery_cursors_are_updated_against_the_current_log(stores: Stores) -> None:
    """An append in one process and a report in another: no event stays undelivered."""
    hook = PushConfig(id="hook", url="https://one.example/hook")
    session = await stores[1].open_session(3600)
    for _ in range(20):
        task = await stores[0].append(replace(created(new_ref(), claim=7), push_config=hook))
        (push,) = await stores[1].pushes.claim(session, [(task.record.ref, "hook")])
        report = DeliveryReport(
            task=push.task,
            id="hook",
            session=session,
            token=push.token,
            outcome=DeliveryOutcome.DELIVERED,
            last_delivered=1,
            release=True,
        )
        appended, _ = await asyncio.gather(
            stores[0].append(by_runner(task, artifact("a", "x"))), stores[1].pushes.apply_reports([report])
        )
        (after,) = await stores[0].pushes.list_configs(task.record.ref)
        assert after.lag == 1
        assert after.due_at > 0
        assert appended.record.last_sequence == 2
