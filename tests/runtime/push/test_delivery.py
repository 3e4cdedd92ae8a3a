"""Push deliveries: events in order, each repeated until it is accepted."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tests.runtime.harness import collect, kinds, request
from tests.runtime.push.push_harness import (
    DAY,
    HOOK,
    OTHER,
    SECOND,
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
from dragoman.ports import OutboundFailed
from dragoman.runtime.log import TaskSnapshots
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
