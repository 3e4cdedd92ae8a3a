"""Circuit breaker: hosts that are down are called rarely, and get everything once they respond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conftest import timings
from tests.runtime.push.push_harness import HOOK, OTHER, SECOND, PushHarness, echo, open_push_harness
from tests.runtime.push.receivers import OK, answered

from dragoman.core.push.delivery import PushState
from dragoman.ports import ConnectFailed, OutboundFailed, OutboundResponse
from dragoman.runtime.push.breaker import BREAKER_THRESHOLD, MAX_FAILING_HOSTS, HostBreaker

HOST = "hook.example:443"
DOWN = ConnectFailed("hook.example:443: refused the connection")


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[PushHarness]:
    """A runtime whose push scheduler does not poll by itself."""
    async with open_push_harness(tmp_path, echo, timings=timings(push_poll_interval=10.0**6)) as opened:
        yield opened


async def open_breaker_of_hook(here: PushHarness) -> list[str]:
    """Opens the breaker of the host by failed deliveries. Returns their tasks."""
    here.receivers.answer(HOOK, then=DOWN)
    tasks = []
    for _ in range(BREAKER_THRESHOLD):
        tasks.append((await here.send()).id)
        await here.until(tasks[-1], PushState.LIVE, failures=1, session=0)
        await here.idle()  # a poll skips pushes whose delivery has not ended
    return tasks


async def test_a_host_that_is_down_is_not_called_for_each_new_task(here: PushHarness) -> None:
    await open_breaker_of_hook(here)
    tasks = [(await here.send()).id for _ in range(5)]
    await here.push_scheduler.claim_woken()
    assert len(here.receivers.posts) == BREAKER_THRESHOLD
    assert not here.push_scheduler.held
    for task in tasks:
        (push,) = await here.pushes(task)
        assert (push.state, push.failures, push.due_at) == (PushState.LIVE, 0, here.clock.now)


async def test_one_probe_decides_for_all_due_pushes(here: PushHarness) -> None:
    failed = await open_breaker_of_hook(here)
    tasks = failed + [(await here.send()).id for _ in range(5)]
    await here.later(SECOND)
    for task in tasks:
        push = await here.until(task, PushState.LIVE, failures=2 if task in failed else 1, session=0)
        wait = 2 if task in failed else 1
        assert (push.reason, push.due_at) == (str(DOWN), here.clock.now + wait * SECOND)
        kept = await here.harness.store.pushes.attempts(push.task, push.config.id)
        assert (kept[0].sequence, kept[0].status, kept[0].error) == (1, 0, str(DOWN))
    # On a slow machine a delivery that starts after the response makes its own probe.
    assert BREAKER_THRESHOLD < len(here.receivers.posts) < BREAKER_THRESHOLD + len(tasks)


async def test_the_first_accepted_request_closes_the_breaker(here: PushHarness) -> None:
    tasks = await open_breaker_of_hook(here)
    tasks += [(await here.send()).id for _ in range(5)]
    here.receivers.answer(HOOK)
    await here.later(SECOND)
    for task in tasks:
        await here.until(task, PushState.COMPLETE)
    assert HOST not in here.push_scheduler.breaker
    assert here.receivers.taken(HOOK).count(1) == len(tasks)
    late = await here.send()
    await here.until(late.id, PushState.COMPLETE)  # at once, as ever


async def test_pending_pushes_start_when_the_host_responds(here: PushHarness) -> None:
    await open_breaker_of_hook(here)
    late = await here.send()
    await here.push_scheduler.claim_woken()
    here.push_scheduler.breaker.record_success(HOST)  # without a poll
    here.receivers.answer(HOOK)
    await here.until(late.id, PushState.COMPLETE)


async def test_an_error_status_counts_as_a_response(here: PushHarness) -> None:
    tasks = await open_breaker_of_hook(here)
    here.receivers.answer(HOOK, then=answered(500))
    await here.later(SECOND)
    for task in tasks:
        await here.until(task, PushState.LIVE, failures=2, session=0)
    assert len(here.receivers.posts) == 2 * BREAKER_THRESHOLD
    assert HOST not in here.push_scheduler.breaker


async def test_a_path_that_times_out_does_not_stop_the_others(here: PushHarness) -> None:
    here.receivers.answer(HOOK, then=OutboundFailed("hook.example:443: silent for 10 s"))
    for _ in range(2 * BREAKER_THRESHOLD):
        await here.send()
    good = await here.send(url="https://hook.example/good")
    await here.until(good.id, PushState.COMPLETE)


async def test_the_breakers_of_other_hosts_stay_closed(here: PushHarness) -> None:
    await open_breaker_of_hook(here)
    task = await here.send(url=OTHER)
    await here.until(task.id, PushState.COMPLETE)


async def test_receivers_with_an_open_breaker_are_given_up_as_well(here: PushHarness) -> None:
    tasks = await open_breaker_of_hook(here)
    await here.later(3600 * SECOND)
    for task in tasks:
        assert (await here.until(task, PushState.GIVEN_UP)).reason == f"given up after 2 attempts: {DOWN}"
    assert len(here.receivers.posts) > BREAKER_THRESHOLD  # a late delivery makes its own probe; see above


async def test_other_deliveries_wait_for_the_probe(here: PushHarness) -> None:
    tasks = await open_breaker_of_hook(here)
    calling, let_go = asyncio.Event(), asyncio.Event()

    async def slow() -> OutboundResponse:
        calling.set()
        await let_go.wait()
        return OK

    here.receivers.answer(HOOK, slow)
    await here.later(SECOND)
    await calling.wait()
    assert here.receivers.calls == 1
    let_go.set()
    for task in tasks:
        await here.until(task, PushState.COMPLETE)


# Breakers alone ----------------------------------------------------------------------------------------------------


def open_breaker() -> HostBreaker:
    breaker = HostBreaker()
    for _ in range(BREAKER_THRESHOLD):
        breaker.record_failure(HOST, "down")
    return breaker


async def test_only_consecutive_failures_open_a_breaker() -> None:
    breaker = HostBreaker()
    for _ in range(BREAKER_THRESHOLD - 1):
        breaker.record_failure(HOST, "down")
    breaker.record_success(HOST)
    for _ in range(BREAKER_THRESHOLD - 1):
        breaker.record_failure(HOST, "down")
    assert HOST not in breaker
    breaker.record_failure(HOST, "down")
    assert HOST in breaker


async def test_after_an_inconclusive_probe_the_next_call_probes() -> None:
    breaker, order = open_breaker(), []
    first = asyncio.Event()

    async def leaves() -> None:
        async with breaker.call(HOST) as why:
            order.append(("first", why))
            await first.wait()
            raise LookupError

    async def follows() -> None:
        async with breaker.call(HOST) as why:
            order.append(("second", why))
            await asyncio.sleep(0)  # for the third to wait
            breaker.record_failure(HOST, "still down")

    async def learns() -> None:
        async with breaker.call(HOST) as why:
            order.append(("third", why))

    async with asyncio.timeout(60):
        tasks = [asyncio.create_task(one()) for one in (leaves, follows, learns)]
        await asyncio.sleep(0)
        first.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in found] == [LookupError, type(None), type(None)]
    assert order == [("first", ""), ("second", ""), ("third", "still down")]


async def test_a_call_canceled_while_waiting_for_the_probe_has_no_effect() -> None:
    breaker = open_breaker()
    async with breaker.call(HOST) as why:
        assert why == ""

        async def waits() -> str:
            async with breaker.call(HOST) as opened:
                return opened

        canceled, other = asyncio.create_task(waits()), asyncio.create_task(waits())
        await asyncio.sleep(0)
        canceled.cancel()
        await asyncio.gather(canceled, return_exceptions=True)
        breaker.record_failure(HOST, "down")
        assert await other == "down"
    assert canceled.cancelled()


async def test_the_number_of_remembered_hosts_is_limited() -> None:
    breaker = HostBreaker()
    for number in range(2 * MAX_FAILING_HOSTS):
        breaker.record_failure(f"{number}.example:443", "down")
    assert len(breaker._hosts) == MAX_FAILING_HOSTS
