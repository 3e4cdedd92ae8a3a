"""The push scheduler: claims of deliveries, limits per host, start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import timings
from tests.runtime.harness import EndlessLease, collect, kinds
from tests.runtime.push.push_harness import (
    HOOK,
    OTHER,
    RETRY_POLICY,
    SECOND,
    counter,
    echo,
    open_push_harness,
)
from tests.runtime.push.receivers import OK, Receivers, Stamp, answered

from dragoman.agents.functions.declaration import agent
from dragoman.bindings.event_encoders import DialectWebhookEncoder
from dragoman.bus.local import LocalBus
from dragoman.core.errors import Unavailable
from dragoman.core.push.delivery import PushRecord, PushState
from dragoman.ports import OutboundResponse, PushConfigKey
from dragoman.runtime import Ports, PushOptions, RuntimeConfig, open_runtime
from dragoman.runtime.lease import LeaseHold
from dragoman.runtime.push.delivery import MAX_CALLS_PER_SHARE
from dragoman.security.secret_box import AesGcmSecretBox
from dragoman.testing.fixtures import Clock
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def test_pushes_with_claims_of_unknown_outcome_are_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.runtime.push.scheduler.MAX_HELD_PER_SHARE", 2)
    async with open_push_harness(tmp_path, echo, timings=timings(push_poll_interval=0.01)) as here:
        pushes, broken_off, held = here.harness.store.pushes, 0, 0
        claim, carry = pushes.claim, here.push_scheduler._start_delivery

        async def breaks_off(session: int, keys: Sequence[PushConfigKey], **options: Any) -> list[PushRecord]:
            nonlocal broken_off
            taken = await claim(session, keys, **options)
            if taken and broken_off < 3:
                broken_off += 1
                error = Unavailable("the store stopped answering in a commit")
                error.outcome_unknown = True
                raise error
            return taken

        def carries(push: PushRecord, hold: LeaseHold | None) -> None:
            nonlocal held
            carry(push, hold)
            held = max(held, here.push_scheduler.held)

        here.push_scheduler._start_delivery = carries
        monkeypatch.setattr(pushes, "claim", breaks_off)
        for task in await asyncio.gather(*(here.send(str(number)) for number in range(9))):
            await here.until(task.id, PushState.COMPLETE)
        assert sorted(here.receivers.taken(HOOK)) == sorted([1, 2, 3] * 9)
        assert (broken_off, held) == (3, 2)


# Slow receivers ----------------------------------------------------------------------------------------------------


async def test_a_slow_receiver_delays_no_other(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, counter, echo) as here:
        let_go = asyncio.Event()

        async def slow() -> OutboundResponse:
            await let_go.wait()
            return OK

        here.receivers.answer(HOOK, slow)
        slowly = await here.send()  # a blocking send returns although its receiver does not respond
        assert slowly.status.state == pb.TASK_STATE_COMPLETED
        await here.create(slowly.id, url=OTHER, id="other")
        for _ in range(3):
            task = await here.send(url=OTHER)
            await here.until(task.id, PushState.COMPLETE)
        assert kinds(await collect(here.harness.stream())) == [
            *("task SUBMITTED", "WORKING"),
            *("0 ", "1 ", "2 ", "COMPLETED"),
        ]
        assert here.receivers.at(HOOK) == []
        let_go.set()
        await here.receivers.until(lambda: len(here.receivers.taken(HOOK)) == 6)
        assert here.receivers.taken(HOOK) == [1, 2, 3, 4, 5, 6]


async def test_concurrent_requests_are_limited_per_host(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, echo) as here:
        let_go = asyncio.Event()

        async def slow() -> OutboundResponse:
            await let_go.wait()
            return OK

        urls = [f"https://hook.example/{number}" for number in range(3 * MAX_CALLS_PER_SHARE)]
        for url in urls:
            here.receivers.answer(url, slow)
        for url in urls:
            await here.send(url=url)
        task = await here.send(url=OTHER)
        await here.until(task.id, PushState.COMPLETE)
        assert here.receivers.calls == MAX_CALLS_PER_SHARE
        let_go.set()
        await here.receivers.until(lambda: all(here.receivers.taken(url) == [1, 2, 3] for url in urls))


async def test_receivers_that_hang_delay_no_other_of_their_host(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, echo, timings=timings(push_place_time=0.01)) as here:
        let_go = asyncio.Event()

        async def hang() -> OutboundResponse:
            await let_go.wait()
            return OK

        urls = [f"https://hook.example/{number}" for number in range(3 * MAX_CALLS_PER_SHARE)]
        for url in urls:
            here.receivers.answer(url, hang)
        hanging = [await here.send(url=url) for url in urls]
        task = await here.send()
        await here.until(task.id, PushState.COMPLETE)
        assert here.receivers.taken(HOOK) == [1, 2, 3]
        assert not any(here.receivers.taken(url) for url in urls)
        let_go.set()
        for task in hanging:
            await here.until(task.id, PushState.COMPLETE)


async def test_receivers_that_failed_delay_no_other_of_their_host(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, echo) as here:
        let_go = asyncio.Event()

        async def hang() -> OutboundResponse:
            await let_go.wait()
            return OK

        urls = [f"https://hook.example/{number}" for number in range(MAX_CALLS_PER_SHARE)]
        for url in urls:
            here.receivers.answer(url, answered(503), hang)
        failed = [await here.send(url=url) for url in urls]
        for task in failed:
            await here.until(task.id, PushState.LIVE, failures=1, session=0)
        await here.later(SECOND)
        task = await here.send()
        await here.until(task.id, PushState.COMPLETE)
        let_go.set()
        for task in failed:
            await here.until(task.id, PushState.COMPLETE)


# Processes ---------------------------------------------------------------------------------------------------------


async def test_undelivered_events_of_a_stopped_process_are_delivered_by_the_next(tmp_path: Path) -> None:
    receivers, clock = Receivers(), Clock()
    receivers.answer(HOOK, OK, OK, answered(500), then=answered(500))
    async with open_push_harness(tmp_path, counter, receivers=receivers, clock=clock) as here:
        task = await here.send()
        await here.until(task.id, PushState.LIVE, failures=1, session=0)
    receivers.answer(HOOK)
    clock.now += SECOND
    async with open_push_harness(tmp_path, counter, receivers=receivers, clock=clock) as here:
        await here.until(task.id, PushState.COMPLETE)
    assert receivers.taken(HOOK) == [1, 2, 3, 4, 5, 6]


async def test_nothing_is_pushed_before_the_server_listens(tmp_path: Path) -> None:
    receivers, ready, listening = Receivers(), asyncio.Event(), []

    async def take() -> OutboundResponse:
        listening.append(ready.is_set())
        return OK

    receivers.answer(HOOK, then=take)
    async with open_push_harness(tmp_path, counter, receivers=receivers, ready=ready) as here:
        task = await here.send()
        ready.set()
        await here.until(task.id, PushState.COMPLETE)
    assert listening == [True] * 6


async def test_a_stopping_process_finishes_its_request_and_releases_the_rest(tmp_path: Path) -> None:
    receivers, calling, let_go = Receivers(), asyncio.Event(), asyncio.Event()

    async def slow() -> OutboundResponse:
        calling.set()
        await let_go.wait()
        return OK

    receivers.answer(HOOK, OK, slow)
    async with open_push_harness(tmp_path, counter, receivers=receivers) as here:
        task = await here.send()
        await calling.wait()
        stopping = asyncio.ensure_future(here.push_scheduler.stop())
        await asyncio.sleep(0)
        let_go.set()
        await stopping
        (push,) = await here.pushes(task.id)
        assert (push.last_delivered, push.session) == (2, 0)
        assert push.due_at
    assert receivers.taken(HOOK) == [1, 2]


async def test_two_processes_on_one_store_deliver_each_event_once(tmp_path: Path) -> None:
    receivers = Receivers()
    async with open_push_harness(tmp_path, counter, receivers=receivers) as here:
        pushing = PushOptions(
            outbound=receivers, encoder=DialectWebhookEncoder(Stamp(), AesGcmSecretBox()), retry_policy=RETRY_POLICY
        )
        ports = Ports(here.harness.store, LocalBus(), [agent()(counter)], pushing)
        async with open_runtime(ports, RuntimeConfig(exclusive=False, run_lease=EndlessLease())) as second:
            assert second.push_scheduler is not None
            tasks = [await here.send(f"{number}", url=f"https://{number}.example/") for number in range(10)]
            for _ in range(5):
                await asyncio.gather(second.push_scheduler.poll(), here.push_scheduler.poll())
            for task in tasks:
                await here.until(task.id, PushState.COMPLETE)
    for number in range(10):
        assert receivers.taken(f"https://{number}.example/") == [1, 2, 3, 4, 5, 6]
