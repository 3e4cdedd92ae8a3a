"""Push deliveries: events in order, each repeated until it is accepted; hosts that are down are called rarely."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tests.conftest import timings
from tests.runtime.harness import collect, kinds, request
from tests.runtime.push.push_harness import (
    DAY,
    HOOK,
    OTHER,
    SECOND,
    PushHarness,
    asker,
    counter,
    echo,
    open_push_harness,
)
from tests.runtime.push.receivers import OK, Post, answered

from dragoman.agents.functions.turn import Turn
from dragoman.core.push.delivery import DeliveryReport, PushRecord, PushState
from dragoman.core.task import states
from dragoman.core.task.maintenance import TaskSelection
from dragoman.ports import ConnectFailed, OutboundFailed, OutboundResponse
from dragoman.runtime.log import TaskSnapshots
from dragoman.runtime.push.delivery import (
    BREAKER_THRESHOLD,
    MAX_CALLS_PER_SHARE,
    MAX_FAILING_HOSTS,
    MAX_SLOW_CALLS_PER_SHARE,
    CallLimiter,
    HostBreaker,
)
from dragoman.stores.sqlite import StorageOptions
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def summaries(posts: Sequence[Post]) -> list[str]:
    """The content of each 1.0 webhook request, in a word."""
    found = []
    for post in posts:
        (kind,) = post.body
        body = post.body[kind]
        if kind == "artifactUpdate":
            found.append("".join(part["text"] for part in body["artifact"]["parts"]))
        else:
            found.append(body["status"]["state"].removeprefix("TASK_STATE_"))
    return found


# Delivering --------------------------------------------------------------------------------------------------------


async def test_every_event_arrives_in_order_as_a_stream_would_show_it(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, counter) as here:
        task = await here.send(token="secret", authentication=pb.AuthenticationInfo(scheme="Bearer", credentials="c"))
        await here.until(task.id, PushState.COMPLETE)
        posts = here.receivers.at(HOOK)
    assert summaries(posts) == ["SUBMITTED", "WORKING", "0 ", "1 ", "2 ", "COMPLETED"]
    assert [post.sequence for post in posts] == [1, 2, 3, 4, 5, 6]
    assert len({post.headers["Dragoman-Event"] for post in posts}) == 6
    for post in posts:
        assert post.headers["X-A2A-Notification-Token"] == "secret"
        assert post.headers["Authorization"] == "Bearer c"
        assert post.headers["Content-Type"] == "application/json"


async def test_the_id_of_a_webhook_request_is_the_cursor_of_the_stream(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, counter) as here:
        task = await here.send()
        await here.until(task.id, PushState.COMPLETE)
        again = here.harness.follow(task.id, cursor=here.receivers.at(HOOK)[2].headers["Dragoman-Event"])
        assert kinds(await collect(again)) == ["1 ", "2 ", "COMPLETED"]


async def test_a_later_configuration_gets_later_events(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, asker) as here:
        task = await here.harness.send()
        shown = await here.create(task.id, id="later")
        assert (shown.id, shown.task_id, shown.url) == ("later", task.id, HOOK)
        await here.harness.send("more", task_id=task.id)
        await here.until(task.id, PushState.COMPLETE)
        assert summaries(here.receivers.posts) == ["WORKING", "more", "COMPLETED"]


async def test_a_follow_up_can_bring_a_push_configuration(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, asker) as here:
        task = await here.harness.send()
        push_request = request("more", task_id=task.id)
        push_request.configuration.task_push_notification_config.url = HOOK
        await here.harness.runtime.operations.send.send_message(here.call(), push_request)
        await here.until(task.id, PushState.COMPLETE)
        assert summaries(here.receivers.posts) == ["WORKING", "more", "COMPLETED"]


async def test_an_idle_delivery_releases_its_claim_and_continues_with_the_next_turn(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, asker) as here:
        task = await here.send()
        await here.until(task.id, PushState.LIVE, last_delivered=2, session=0, due_at=0)
        assert here.push_scheduler.delivery_count(await here.ref(task.id)) == 0
        await here.harness.send("more", task_id=task.id)
        await here.until(task.id, PushState.COMPLETE)
        assert summaries(here.receivers.posts) == [
            *("SUBMITTED", "INPUT_REQUIRED"),
            *("WORKING", "more", "COMPLETED"),
        ]


async def test_a_configuration_of_a_finished_task_is_done_at_once(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, echo) as here:
        task = await here.harness.send()
        await here.create(task.id)
        (push,) = await here.pushes(task.id)
        assert push.state is PushState.COMPLETE
        await here.later(DAY)
        assert here.receivers.posts == []


@pytest.mark.usefixtures("time_to_think")
async def test_a_direct_message_goes_to_its_caller_only(tmp_path: Path) -> None:
    async def greet(turn: Turn) -> None:
        turn.reply("hi")

    async with open_push_harness(tmp_path, greet, direct=True) as here:
        push_request = request()
        push_request.configuration.task_push_notification_config.url = HOOK
        answer = pb.SendMessageResponse.FromString(
            await here.harness.runtime.operations.send.send_message(here.call(), push_request)
        )
        assert answer.HasField("message")
        await here.later(DAY)
        assert here.receivers.posts == []


# Receivers of the Task ---------------------------------------------------------------------------------------------


async def test_the_task_at_each_state_change_has_its_metadata(tmp_path: Path) -> None:
    """A snapshot of an earlier state is folded from events, which do not have the task's metadata."""

    async def works(turn: Turn) -> None:
        turn.metadata["model"] = "small"
        turn.status("at it")

    async with open_push_harness(tmp_path, works) as here:
        task = await here.send(dialect="0.3")
        await here.until(task.id, PushState.COMPLETE)
        _, *later = [(post.body["status"]["state"], post.body.get("metadata")) for post in here.receivers.posts]
        assert later == [("working", {"model": "small"}), ("completed", {"model": "small"})]
        ref = await here.ref(task.id)
        snapshots = TaskSnapshots(here.harness.store, ref)
        for event in await here.harness.store.events(ref, 0, 10):
            at_event = pb.StreamResponse.FromString((await snapshots.task_at(event)).data).task
            assert (at_event.status.state, at_event.metadata["model"]) == (event.state, "small")


async def test_a_task_with_many_bytes_of_events_is_not_folded_in_memory(tmp_path: Path) -> None:
    async def works(turn: Turn) -> AsyncIterator[str]:
        yield "first "
        turn.status("at it")
        yield "second "

    async with open_push_harness(tmp_path, works) as here:
        task = await here.send(dialect="0.3")
        await here.until(task.id, PushState.COMPLETE)
        ref = await here.ref(task.id)
        events = await here.harness.store.events(ref, 0, 10)
        working = next(event for event in events if event.state == states.WORKING and b"at it" in event.data)
        shown = {}
        for max_bytes in (len(events[0].data), 1 << 20):
            event = await TaskSnapshots(here.harness.store, ref, max_bytes).task_at(working)
            folded = pb.StreamResponse.FromString(event.data).task
            assert folded.status.message.parts[0].text == "at it"
            shown[max_bytes] = ["".join(part.text for part in one.parts) for one in folded.artifacts]
        assert list(shown.values()) == [["first second "], ["first "]]


@pytest.mark.parametrize("dialect", ["0.3", "0.1", "google"])
async def test_older_dialects_get_the_task_at_each_state_change(tmp_path: Path, dialect: str) -> None:
    async def works(turn: Turn) -> AsyncIterator[str]:
        turn.status("at it")
        yield "1 "
        turn.status("still at it")
        yield "2 "

    async with open_push_harness(tmp_path, works) as here:
        task = await here.send(dialect=dialect)
        await here.until(task.id, PushState.COMPLETE)
        states = [post.body["status"]["state"] for post in here.receivers.posts]
        words = ["SUBMITTED", "WORKING", "COMPLETED"]
        assert states == [f"TASK_STATE_{word}" if dialect == "google" else word.lower() for word in words]
        last = here.receivers.posts[-1].body
        assert [part["text"] for part in last["artifacts"][0]["parts"]] == ["1 2 "]


async def test_the_pushed_task_equals_the_task_of_a_get(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, asker) as here:
        task = await here.send(dialect="0.3")
        await here.until(task.id, PushState.LIVE, last_delivered=2, due_at=0)
        body = here.receivers.posts[-1].body
        assert body["status"]["state"] == "input-required"
        assert body["status"]["message"]["parts"][0]["text"] == "and then?"
        assert [message["role"] for message in body["history"]] == ["user"]


async def test_a_receiver_that_was_down_gets_the_missed_states_as_they_were(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, asker) as here:
        here.receivers.answer(HOOK, OutboundFailed("down"))
        task = await here.send(dialect="0.3")
        await here.until(task.id, PushState.LIVE, failures=1, session=0)
        await here.harness.send("more", task_id=task.id)
        await here.later(SECOND)
        await here.until(task.id, PushState.COMPLETE)
        bodies = [post.body for post in here.receivers.at(HOOK)[1:]]
    assert [body["status"]["state"] for body in bodies] == [
        *("submitted", "input-required"),
        *("working", "completed"),
    ]
    assert bodies[1]["status"]["message"]["parts"][0]["text"] == "and then?"
    assert [len(body.get("artifacts", ())) for body in bodies] == [0, 0, 0, 1]
    assert ["history" in body for body in bodies] == [False, False, False, True]
    assert [post.sequence for post in here.receivers.at(HOOK)[1:]] == [1, 2, 3, 5]


# Retries -----------------------------------------------------------------------------------------------------------


async def test_a_receiver_that_was_down_gets_all_events_after_recovery(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, counter) as here:
        here.receivers.answer(HOOK, OutboundFailed("refused the connection"), answered(500), answered(302))
        task = await here.send()
        for tries, wait in ((1, 1), (2, 2), (3, 4)):
            push = await here.until(task.id, PushState.LIVE, failures=tries, session=0)
            assert push.due_at == here.clock.now + wait * SECOND
            await here.later(wait * SECOND - 1)
            assert len(here.receivers.posts) == tries
            await here.later(1)
        await here.until(task.id, PushState.COMPLETE)
        assert here.receivers.taken(HOOK) == [1, 2, 3, 4, 5, 6]
        assert [post.sequence for post in here.receivers.at(HOOK)[:3]] == [1, 1, 1]
        tries_kept = await here.harness.store.pushes.attempts(await here.ref(task.id), task.id)
        assert [(one.status, one.error) for one in tries_kept[-3:]] == [
            (302, ""),
            (500, ""),
            (0, "refused the connection"),
        ]


async def test_a_failure_in_the_middle_keeps_the_order(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, counter) as here:
        here.receivers.answer(HOOK, OK, OK, answered(503), OK, answered(503))
        task = await here.send()
        for event in (2, 3):
            await here.until(task.id, PushState.LIVE, failures=1, session=0, last_delivered=event)
            await here.later(SECOND)
        await here.until(task.id, PushState.COMPLETE)
        assert [post.sequence for post in here.receivers.posts] == [1, 2, 3, 3, 4, 4, 5, 6]
        assert here.receivers.taken(HOOK) == [1, 2, 3, 4, 5, 6]


async def test_retry_after_is_respected_up_to_the_maximum_delay(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, echo) as here:
        here.receivers.answer(HOOK, answered(429, retry_after="30"), answered(503, retry_after="100000"))
        task = await here.send()
        push = await here.until(task.id, PushState.LIVE, failures=1, session=0)
        assert push.due_at == here.clock.now + 30 * SECOND
        await here.later(30 * SECOND)
        push = await here.until(task.id, PushState.LIVE, failures=2, session=0)
        assert push.due_at == here.clock.now + 60 * SECOND


async def test_a_receiver_that_answers_410_is_called_once(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, counter) as here:
        here.receivers.answer(HOOK, OK, answered(410))
        task = await here.send()
        push = await here.until(task.id, PushState.UNSUBSCRIBED)
        assert push.last_delivered == 1
        await here.later(DAY)
        assert len(here.receivers.posts) == 2


async def test_an_event_that_is_rejected_three_times_is_given_up_and_can_be_resent(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, counter) as here:
        here.receivers.answer(HOOK, OK, answered(422), answered(422), answered(503), answered(422))
        task = await here.send()
        for failures in (1, 2, 3):
            await here.until(task.id, PushState.LIVE, failures=failures, session=0, last_delivered=1)
            await here.later(4 * SECOND)
        push = await here.until(task.id, PushState.GIVEN_UP)
        assert here.receivers.taken(HOOK) == [1, 3, 4, 5, 6]
        assert [post.sequence for post in here.receivers.posts] == [1, 2, 2, 2, 2, 3, 4, 5, 6]
        assert (push.lag, push.reason) == (0, "given up after 3 rejections: event 2")
        assert here.push_scheduler.deps.counters.given_up == 1
        await here.harness.store.pushes.restart(await here.ref(task.id), ())
        await here.later(0)
        await here.until(task.id, PushState.COMPLETE)
        assert here.receivers.taken(HOOK)[5:] == [2, 3, 4, 5, 6]


async def test_a_failing_receiver_is_given_up_and_gets_all_events_on_redelivery(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, counter) as here:
        here.receivers.answer(HOOK, then=answered(500))
        task = await here.send()
        await here.until(task.id, PushState.LIVE, failures=1, session=0)
        await here.later(3600 * SECOND)
        push = await here.until(task.id, PushState.GIVEN_UP)
        assert push.lag == 6
        await here.later(DAY)
        assert len(here.receivers.posts) == 2
        here.receivers.answer(HOOK)
        await here.create(task.id, id=task.id)  # the same configuration continues where it was given up
        await here.until(task.id, PushState.COMPLETE)
        assert here.receivers.taken(HOOK) == [1, 2, 3, 4, 5, 6]


async def test_results_that_cannot_be_recorded_at_once_are_recorded_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_push_harness(tmp_path, echo) as here:
        pushes, failures = here.harness.store.pushes, [OSError("the disk is full"), OSError("still")]
        settle = pushes.apply_reports

        async def fails(body: Sequence[DeliveryReport]) -> list[PushRecord | None]:
            if failures:
                raise failures.pop()
            return await settle(body)

        monkeypatch.setattr(pushes, "apply_reports", fails)
        task = await here.send()
        await here.until(task.id, PushState.COMPLETE)
        assert here.receivers.taken(HOOK) == [1, 2, 3]  # no event twice


# Changed configurations --------------------------------------------------------------------------------------------


async def test_a_deleted_configuration_gets_no_more_events(tmp_path: Path) -> None:
    # The delivery waits for the next event during the test.
    async with open_push_harness(tmp_path, asker, hold=60.0) as here:
        task = await here.send()
        await here.until(task.id, PushState.LIVE, last_delivered=2)
        await here.delete(task.id, task.id)
        await here.delete(task.id, task.id)
        await here.harness.send("more", task_id=task.id)
        await here.later(DAY)
        assert here.receivers.taken(HOOK) == [1, 2]


async def test_a_new_url_gets_the_events_that_the_old_one_has_not_accepted(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, asker, hold=60.0) as here:
        task = await here.send()
        await here.until(task.id, PushState.LIVE, last_delivered=2)
        await here.create(task.id, id=task.id, url=OTHER)
        await here.harness.send("more", task_id=task.id)
        await here.until(task.id, PushState.COMPLETE)
        assert (here.receivers.taken(HOOK), here.receivers.taken(OTHER)) == ([1, 2], [3, 4, 5])


async def test_two_receivers_of_a_task_progress_independently(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, asker) as here:
        here.receivers.answer(OTHER, answered(500))
        task = await here.send()
        await here.create(task.id, url=OTHER, id="other")
        await here.harness.send("more", task_id=task.id)
        await here.receivers.until(lambda: here.receivers.taken(HOOK)[-1:] == [5])
        await here.receivers.until(lambda: len(here.receivers.at(OTHER)) == 1)
        await here.idle()
        await here.later(SECOND)
        await here.receivers.until(lambda: here.receivers.taken(OTHER) == [3, 4, 5])


async def test_a_configuration_of_an_unknown_dialect_fails_alone(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, asker) as here:
        here.receivers.answer(HOOK, answered(500))
        unreadable = await here.send()
        await here.until(unreadable.id, PushState.LIVE, failures=1)
        with closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as database:
            database.execute("UPDATE pushes SET dialect = 'pigeon'")
        await here.later(SECOND)
        await here.until(unreadable.id, PushState.LIVE, failures=2)
        other = await here.send(url=OTHER)
        await here.until(other.id, PushState.LIVE, last_delivered=2, due_at=0)


async def test_an_erased_task_is_no_longer_pushed(tmp_path: Path) -> None:
    async with open_push_harness(tmp_path, asker, hold=60.0) as here:
        task = await here.send()
        await here.until(task.id, PushState.LIVE, last_delivered=2)
        await here.harness.runtime.maintenance.purge(TaskSelection(task=task.id))
        await here.idle()
        assert here.receivers.taken(HOOK) == [1, 2]


async def test_a_receiver_whose_next_event_was_truncated_gets_the_current_task(tmp_path: Path) -> None:
    async def long(turn: Turn) -> AsyncIterator[str]:
        for number in range(200):
            yield f"{number} "
            await turn.flush()

    async with open_push_harness(tmp_path, long, sizes=StorageOptions(0, 1.0, 1 << 20)) as here:
        here.receivers.answer(HOOK, then=answered(500))
        for dialect in ("1.0", "0.3"):
            task = await here.send(dialect=dialect)
            await here.until(task.id, PushState.LIVE, failures=1, session=0)
            await here.later(3600 * SECOND)
            await here.until(task.id, PushState.GIVEN_UP)  # no delivery is pending any more, so its log is truncated
            here.clock.now += 10 * SECOND
            assert (await here.harness.store.compact()).events > 0
            before = len(here.receivers.posts)
            here.receivers.answer(HOOK)
            await here.harness.store.pushes.restart(await here.ref(task.id), ())
            await here.later(0)
            await here.until(task.id, PushState.COMPLETE)
            (post,) = here.receivers.posts[before:]
            body = post.body["task"] if dialect == "1.0" else post.body
            assert body["metadata"]["urn:dragoman:resume:v1"] == {"gap": True, "from": 0, "sequence": post.sequence}
            assert body["status"]["state"] in ("TASK_STATE_COMPLETED", "completed")
            here.receivers.answer(HOOK, then=answered(500))


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


PATH_FAILURES = ["silent for 10 s", "connection lost"]


@pytest.mark.parametrize("reason", PATH_FAILURES)
async def test_a_path_that_fails_does_not_stop_the_others(here: PushHarness, reason: str) -> None:
    here.receivers.answer(HOOK, then=OutboundFailed(f"{HOST}: {reason}"))
    for _ in range(2 * BREAKER_THRESHOLD):
        await here.send()
    good = await here.send(url="https://hook.example/good")
    await here.until(good.id, PushState.COMPLETE)


@pytest.mark.parametrize("reason", PATH_FAILURES)
async def test_a_probe_whose_path_fails_shows_that_the_host_is_up(here: PushHarness, reason: str) -> None:
    tasks = await open_breaker_of_hook(here)
    here.receivers.answer(HOOK, then=OutboundFailed(f"{HOST}: {reason}"))
    await here.later(SECOND)
    for task in tasks:
        await here.until(task, PushState.LIVE, failures=2, session=0)
    assert HOST not in here.push_scheduler.breaker


async def test_a_url_that_hangs_is_called_once_at_a_time(tmp_path: Path) -> None:
    async with open_push_harness(
        tmp_path, echo, timings=timings(push_place_time=0.0, push_poll_interval=10.0**6)
    ) as here:
        calling, let_go = asyncio.Event(), asyncio.Event()

        async def hang() -> OutboundResponse:
            calling.set()
            await let_go.wait()
            return OK

        silent = OutboundFailed("hook.example:443: silent for 10 s")
        here.receivers.answer(HOOK, silent, hang)
        first = await here.send()
        await here.until(first.id, PushState.LIVE, failures=1, session=0)
        probe = await here.send()
        await here.push_scheduler.claim_woken()
        await calling.wait()
        other = await here.send()
        push = await here.until(other.id, PushState.LIVE, failures=1, session=0)
        assert (push.reason, here.receivers.calls) == (str(silent), 1)
        good = await here.send(url="https://hook.example/good")
        await here.until(good.id, PushState.COMPLETE)
        let_go.set()
        await here.until(probe.id, PushState.COMPLETE)
        await here.later(SECOND)
        for task in (first, other):
            await here.until(task.id, PushState.COMPLETE)


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


# Places ------------------------------------------------------------------------------------------------------------

WORKING_SHARE, FAILING_SHARE = (HOST, False), (HOST, True)


class Calls:
    """Requests with a place of a limiter, until they are ended."""

    def __init__(self, limiter: CallLimiter, seconds: float) -> None:
        self._limiter = limiter
        self._seconds = seconds
        self._running: list[asyncio.Task[None]] = []
        self.cut = asyncio.Event()
        """Set when the limiter ends one."""

    async def begin(self, share: tuple[str, bool]) -> asyncio.Event:
        """Returns once a request has a place. Setting the event ends it."""
        over, begun = asyncio.Event(), asyncio.Event()

        async def run() -> None:
            async with self._limiter(share, self._seconds, self.cut.set):
                begun.set()
                await over.wait()

        self._running.append(asyncio.create_task(run()))
        async with asyncio.timeout(60):
            await begun.wait()
        return over


async def test_a_request_that_outlasts_its_place_delays_no_other() -> None:
    calls = Calls(CallLimiter(), 0.0)
    for _ in range(MAX_SLOW_CALLS_PER_SHARE + MAX_CALLS_PER_SHARE):
        await calls.begin(WORKING_SHARE)
    assert not calls.cut.is_set()  # the last ones keep their places


async def test_a_receiver_that_failed_is_ended_when_too_many_are_slow() -> None:
    calls = Calls(CallLimiter(), 0.0)
    for _ in range(MAX_SLOW_CALLS_PER_SHARE):
        await calls.begin(FAILING_SHARE)
    assert not calls.cut.is_set()
    await calls.begin(FAILING_SHARE)
    async with asyncio.timeout(60):
        await calls.cut.wait()


async def test_the_shares_of_a_host_do_not_wait_for_each_other() -> None:
    limiter = CallLimiter()
    calls = Calls(limiter, 3600.0)
    ends = [await calls.begin(FAILING_SHARE) for _ in range(MAX_CALLS_PER_SHARE)]
    for _ in range(MAX_CALLS_PER_SHARE):
        await calls.begin(WORKING_SHARE)
    waiting = asyncio.create_task(calls.begin(FAILING_SHARE))
    await asyncio.sleep(0)
    await calls.begin(("other.example:443", True))
    assert not waiting.done()
    ends[0].set()
    await waiting


async def test_a_slow_request_frees_its_room_when_it_ends() -> None:
    calls = Calls(CallLimiter(), 0.0)
    for _ in range(3 * MAX_SLOW_CALLS_PER_SHARE):
        (await calls.begin(FAILING_SHARE)).set()
    assert not calls.cut.is_set()


async def test_the_number_of_remembered_hosts_is_limited() -> None:
    breaker = HostBreaker()
    for number in range(2 * MAX_FAILING_HOSTS):
        breaker.record_failure(f"{number}.example:443", "down")
    assert len(breaker._hosts) == MAX_FAILING_HOSTS
