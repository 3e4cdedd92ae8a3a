"""Push notifications: in order, each until it is accepted, and never delaying anyone else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.harness import Harness, collect, kinds, open_harness, request
from tests.runtime.push.receivers import OK, Post, Receivers, Stamp, answered

from dragoman.agents.functions.declaration import agent
from dragoman.agents.functions.turn import Turn
from dragoman.bindings.event_encoders import DialectWebhookEncoder
from dragoman.bus.local import LocalBus
from dragoman.core.errors import InvalidParams, PushNotificationNotSupported, TaskEnded, TaskNotFound, Unavailable
from dragoman.core.push.configuration import MAX_PUSH_CONFIGS, OLDEST_CONFIG_ID
from dragoman.core.push.delivery import DeliveryReport, PushRecord, PushRetryPolicy, PushState
from dragoman.core.task.log import TaskRef
from dragoman.core.task.maintenance import TaskSelection
from dragoman.ports import OutboundFailed, OutboundResponse, PushConfigKey
from dragoman.runtime import Call, open_runtime
from dragoman.runtime.assembly import PushOptions
from dragoman.runtime.push.scheduler import MAX_CALLS_PER_HOST
from dragoman.security.secret_box import AesGcmSecretBox
from dragoman.stores.sqlite import StorageOptions, open_store
from dragoman.testing.fixtures import Clock
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

HOOK = "https://hook.example/a"
OTHER = "https://other.example/b"
SECOND = 1000
DAY = 86_400 * SECOND

RETRY_POLICY = PushRetryPolicy(first_delay=1, max_delay=60, give_up_after=3600)


async def counter(turn: Turn) -> AsyncIterator[str]:
    """Says three things."""
    for number in range(3):
        yield f"{number} "


async def asker(turn: Turn) -> str:
    """Asks once."""
    if turn.question is None:
        turn.ask("and then?")
    return turn.text


async def echo(turn: Turn) -> str:
    return turn.text


class Scene:
    """A world with receivers, and a clock of the store that only the test moves."""

    def __init__(self, harness: Harness, receivers: Receivers, clock: Clock) -> None:
        self.world = harness
        self.receivers = receivers
        self.clock = clock
        self.settled = asyncio.Condition()
        """Told whenever it was written down what came of a try, or a carrier has ended."""
        self._settle = harness.store.pushes.apply_reports
        self._over = self.push_scheduler._on_delivery_ended
        self._begin = self.push_scheduler._claim
        self._beginning = asyncio.Lock()
        self.push_scheduler._claim = self._begins
        harness.store.pushes.apply_reports = self._settles  # type: ignore[method-assign]
        self.push_scheduler._on_delivery_ended = self._ends

    async def _settles(self, reports: Sequence[DeliveryReport]) -> list[PushRecord | None]:
        after = await self._settle(reports)
        await self._notify()
        return after

    async def _begins(self, found: Iterable[PushRecord]) -> int:
        """One at a time: the courier never looks twice at once, but `later` looks beside it, and both would claim."""
        async with self._beginning:
            return int(await self._begin(found))

    def _ends(self, push: PushRecord, done: asyncio.Task[None]) -> None:
        self._over(push, done)
        self._notifying = asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        async with self.settled:
            self.settled.notify_all()

    @property
    def push_scheduler(self) -> Any:
        assert self.world.runtime.push_scheduler is not None
        return self.world.runtime.push_scheduler

    def call(self, dialect: str = "1.0") -> Call:
        return Call(self.world.call.caller, dialect=dialect)

    async def send(self, text: str = "hello", *, dialect: str = "1.0", url: str = HOOK, **config: Any) -> pb.Task:
        """A blocking send with a configuration."""
        push_request = request(text)
        push_request.configuration.task_push_notification_config.MergeFrom(
            pb.TaskPushNotificationConfig(url=url, **config)
        )
        sent = await self.world.runtime.service.send_message(self.call(dialect), push_request)
        return pb.SendMessageResponse.FromString(sent).task

    async def create(self, task: str, *, dialect: str = "1.0", url: str = HOOK, **config: Any) -> Any:
        push_request = pb.TaskPushNotificationConfig(task_id=task, url=url, **config)
        return pb.TaskPushNotificationConfig.FromString(
            await self.world.runtime.service.create_push(self.call(dialect), push_request)
        )

    async def delete(self, task: str, id: str) -> None:
        push_request = pb.DeleteTaskPushNotificationConfigRequest(task_id=task, id=id)
        assert await self.world.runtime.service.delete_push(self.call(), push_request) == b""

    async def ref(self, task: str) -> TaskRef:
        (head,) = await self.world.store.locate(task)
        return head.ref

    async def pushes(self, task: str) -> list[PushRecord]:
        return await self.world.store.pushes.list_configs(await self.ref(task))

    async def until(self, task: str, state: PushState, **more: int) -> PushRecord:
        """Its one push, once it is in that state, and has these values."""
        push = None
        try:
            async with asyncio.timeout(60), self.settled:
                while True:
                    (push,) = await self.pushes(task)
                    if push.state is state and all(getattr(push, name) == value for name, value in more.items()):
                        return push
                    await self.settled.wait()
        except TimeoutError:
            raise AssertionError(f"it stays {push}") from None

    async def idle(self) -> None:
        """Returns when nobody delivers here."""
        async with asyncio.timeout(60), self.settled:
            while self.push_scheduler._deliveries:
                await self.settled.wait()

    async def later(self, milliseconds: int) -> None:
        """Lets time pass for the store, and looks."""
        self.clock.now += milliseconds
        await self.push_scheduler.poll()


@asynccontextmanager
async def scene(
    tmp_path: Path,
    *functions: Any,
    receivers: Receivers | None = None,
    clock: Clock | None = None,
    sizes: StorageOptions | None = None,
    hold: float = 0.02,
    ready: asyncio.Event | None = None,
    **options: Any,
) -> AsyncIterator[Scene]:
    receivers, clock = receivers or Receivers(), clock or Clock()
    store = open_store(tmp_path / "tasks.db", clock=clock, sizes=sizes or StorageOptions())
    # A session that lasts for as long as a test lets time pass.
    encoder = DialectWebhookEncoder(Stamp(), AesGcmSecretBox())
    pushing = PushOptions(
        receivers, encoder, retry_policy=RETRY_POLICY, random=lambda: 1.0, claim_hold=hold, ready=ready
    )
    async with open_harness(
        tmp_path, *functions, store=store, push_options=pushing, lease=10.0**6, **options
    ) as harness:
        yield Scene(harness, receivers, clock)


def harness(posts: Sequence[Post]) -> list[str]:
    """What each 1.0 letter says, in a word."""
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
    async with scene(tmp_path, counter) as here:
        task = await here.send(token="secret", authentication=pb.AuthenticationInfo(scheme="Bearer", credentials="c"))
        await here.until(task.id, PushState.DONE)
        posts = here.receivers.at(HOOK)
    assert harness(posts) == ["SUBMITTED", "WORKING", "0 ", "1 ", "2 ", "COMPLETED"]
    assert [post.sequence for post in posts] == [1, 2, 3, 4, 5, 6]
    assert len({post.headers["Dragoman-Event"] for post in posts}) == 6
    for post in posts:
        assert post.headers["X-A2A-Notification-Token"] == "secret"
        assert post.headers["Authorization"] == "Bearer c"
        assert post.headers["Content-Type"] == "application/json"


async def test_the_id_of_a_webhook_request_is_the_cursor_of_the_stream(tmp_path: Path) -> None:
    async with scene(tmp_path, counter) as here:
        task = await here.send()
        await here.until(task.id, PushState.DONE)
        call = replace(here.call(), cursor=here.receivers.at(HOOK)[2].headers["Dragoman-Event"])
        again = here.world.runtime.service.subscribe_to_task(call, pb.SubscribeToTaskRequest(id=task.id))
        assert kinds(await collect(again)) == ["1 ", "2 ", "COMPLETED"]


async def test_a_later_configuration_gets_later_events(tmp_path: Path) -> None:
    async with scene(tmp_path, asker) as here:
        task = await here.world.send()
        shown = await here.create(task.id)
        assert (shown.id, shown.task_id, shown.url) == (task.id, task.id, HOOK)
        await here.world.send("more", task_id=task.id)
        await here.until(task.id, PushState.DONE)
        assert harness(here.receivers.posts) == ["WORKING", "more", "COMPLETED"]


async def test_a_follow_up_brings_its_receiver_along(tmp_path: Path) -> None:
    async with scene(tmp_path, asker) as here:
        task = await here.world.send()
        push_request = request("more", task_id=task.id)
        push_request.configuration.task_push_notification_config.url = HOOK
        await here.world.runtime.service.send_message(here.call(), push_request)
        await here.until(task.id, PushState.DONE)
        assert harness(here.receivers.posts) == ["WORKING", "more", "COMPLETED"]


async def test_a_receiver_of_a_task_that_waits_holds_nothing_and_hears_of_the_answer(tmp_path: Path) -> None:
    async with scene(tmp_path, asker) as here:
        task = await here.send()
        await here.until(task.id, PushState.LIVE, last_delivered=2, session=0, due_at=0)
        assert here.push_scheduler.delivery_count(await here.ref(task.id)) == 0
        await here.world.send("more", task_id=task.id)
        await here.until(task.id, PushState.DONE)
        assert harness(here.receivers.posts) == [
            *("SUBMITTED", "INPUT_REQUIRED"),
            *("WORKING", "more", "COMPLETED"),
        ]


async def test_a_finished_task_has_nothing_more_to_tell(tmp_path: Path) -> None:
    async with scene(tmp_path, echo) as here:
        task = await here.world.send()
        await here.create(task.id)
        (push,) = await here.pushes(task.id)
        assert push.state is PushState.DONE
        await here.later(DAY)
        assert here.receivers.posts == []


@pytest.mark.usefixtures("time_to_think")
async def test_a_direct_message_goes_to_its_caller_only(tmp_path: Path) -> None:
    async def greet(turn: Turn) -> None:
        turn.reply("hi")

    async with scene(tmp_path, greet, direct=True) as here:
        push_request = request()
        push_request.configuration.task_push_notification_config.url = HOOK
        answer = pb.SendMessageResponse.FromString(
            await here.world.runtime.service.send_message(here.call(), push_request)
        )
        assert answer.HasField("message")
        await here.later(DAY)
        assert here.receivers.posts == []


# Who is told the Task ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["0.3", "0.1", "google"])
async def test_older_dialects_get_the_task_at_each_state_change(tmp_path: Path, dialect: str) -> None:
    async def works(turn: Turn) -> AsyncIterator[str]:
        turn.status("at it")
        yield "1 "
        turn.status("still at it")
        yield "2 "

    async with scene(tmp_path, works) as here:
        task = await here.send(dialect=dialect)
        await here.until(task.id, PushState.DONE)
        states = [post.body["status"]["state"] for post in here.receivers.posts]
        words = ["SUBMITTED", "WORKING", "COMPLETED"]
        assert states == [f"TASK_STATE_{word}" if dialect == "google" else word.lower() for word in words]
        last = here.receivers.posts[-1].body
        assert [part["text"] for part in last["artifacts"][0]["parts"]] == ["1 2 "]


async def test_the_pushed_task_equals_the_task_of_a_get(tmp_path: Path) -> None:
    async with scene(tmp_path, asker) as here:
        task = await here.send(dialect="0.3")
        await here.until(task.id, PushState.LIVE, last_delivered=2, due_at=0)
        body = here.receivers.posts[-1].body
        assert body["status"]["state"] == "input-required"
        assert body["status"]["message"]["parts"][0]["text"] == "and then?"
        assert [message["role"] for message in body["history"]] == ["user"]


async def test_a_receiver_that_was_down_gets_the_missed_states_as_they_were(tmp_path: Path) -> None:
    async with scene(tmp_path, asker) as here:
        here.receivers.answer(HOOK, OutboundFailed("down"))
        task = await here.send(dialect="0.3")
        await here.until(task.id, PushState.LIVE, failures=1, session=0)
        await here.world.send("more", task_id=task.id)
        await here.later(SECOND)
        await here.until(task.id, PushState.DONE)
        bodies = [post.body for post in here.receivers.at(HOOK)[1:]]
    assert [body["status"]["state"] for body in bodies] == [
        *("submitted", "input-required"),
        *("working", "completed"),
    ]
    assert bodies[1]["status"]["message"]["parts"][0]["text"] == "and then?"
    assert [len(body.get("artifacts", ())) for body in bodies] == [0, 0, 0, 1]
    assert ["history" in body for body in bodies] == [False, False, False, True]
    assert [post.sequence for post in here.receivers.at(HOOK)[1:]] == [1, 2, 3, 5]


# Trying again ------------------------------------------------------------------------------------------------------


async def test_a_receiver_that_is_down_gets_everything_once_it_is_well(tmp_path: Path) -> None:
    async with scene(tmp_path, counter) as here:
        here.receivers.answer(HOOK, OutboundFailed("refused the connection"), answered(500), answered(302))
        task = await here.send()
        for tries, wait in ((1, 1), (2, 2), (3, 4)):
            push = await here.until(task.id, PushState.LIVE, failures=tries, session=0)
            assert push.due_at == here.clock.now + wait * SECOND
            await here.later(wait * SECOND - 1)
            assert len(here.receivers.posts) == tries
            await here.later(1)
        await here.until(task.id, PushState.DONE)
        assert here.receivers.taken(HOOK) == [1, 2, 3, 4, 5, 6]
        assert [post.sequence for post in here.receivers.at(HOOK)[:3]] == [1, 1, 1]
        tries_kept = await here.world.store.pushes.attempts(await here.ref(task.id), task.id)
        assert [(one.status, one.error) for one in tries_kept[-3:]] == [
            (302, ""),
            (500, ""),
            (0, "refused the connection"),
        ]


async def test_a_failure_in_the_middle_keeps_the_order(tmp_path: Path) -> None:
    async with scene(tmp_path, counter) as here:
        here.receivers.answer(HOOK, OK, OK, answered(503), OK, answered(503))
        task = await here.send()
        for event in (2, 3):
            await here.until(task.id, PushState.LIVE, failures=1, session=0, last_delivered=event)
            await here.later(SECOND)
        await here.until(task.id, PushState.DONE)
        assert [post.sequence for post in here.receivers.posts] == [1, 2, 3, 3, 4, 4, 5, 6]
        assert here.receivers.taken(HOOK) == [1, 2, 3, 4, 5, 6]


async def test_a_receiver_gets_the_time_that_it_asks_for_but_no_more_than_the_longest(tmp_path: Path) -> None:
    async with scene(tmp_path, echo) as here:
        here.receivers.answer(HOOK, answered(429, retry_after="30"), answered(503, retry_after="100000"))
        task = await here.send()
        push = await here.until(task.id, PushState.LIVE, failures=1, session=0)
        assert push.due_at == here.clock.now + 30 * SECOND
        await here.later(30 * SECOND)
        push = await here.until(task.id, PushState.LIVE, failures=2, session=0)
        assert push.due_at == here.clock.now + 60 * SECOND


async def test_a_receiver_that_answers_410_is_called_once(tmp_path: Path) -> None:
    async with scene(tmp_path, counter) as here:
        here.receivers.answer(HOOK, OK, answered(410))
        task = await here.send()
        push = await here.until(task.id, PushState.ENDED)
        assert push.last_delivered == 1
        await here.later(DAY)
        assert len(here.receivers.posts) == 2


async def test_a_failing_receiver_is_given_up_and_gets_all_events_on_redelivery(tmp_path: Path) -> None:
    async with scene(tmp_path, counter) as here:
        here.receivers.answer(HOOK, then=answered(500))
        task = await here.send()
        await here.until(task.id, PushState.LIVE, failures=1, session=0)
        await here.later(3600 * SECOND)
        push = await here.until(task.id, PushState.DEAD)
        assert push.lag == 6
        await here.later(DAY)
        assert len(here.receivers.posts) == 2
        here.receivers.answer(HOOK)
        await here.create(task.id)  # the same configuration once more: it goes on where it was given up
        await here.until(task.id, PushState.DONE)
        assert here.receivers.taken(HOOK) == [1, 2, 3, 4, 5, 6]


async def test_results_that_cannot_be_recorded_at_once_are_recorded_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.runtime.push.delivery.RECORD_RETRY_SECONDS", 0.01)
    async with scene(tmp_path, echo) as here:
        pushes, failures = here.world.store.pushes, [OSError("the disk is full"), OSError("still")]
        settle = pushes.apply_reports

        async def fails(body: Sequence[DeliveryReport]) -> list[PushRecord | None]:
            if failures:
                raise failures.pop()
            return await settle(body)

        monkeypatch.setattr(pushes, "apply_reports", fails)
        task = await here.send()
        await here.until(task.id, PushState.DONE)
        assert here.receivers.taken(HOOK) == [1, 2, 3]  # nothing twice


async def test_pushes_with_claims_of_unknown_outcome_are_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.runtime.push.scheduler.MAX_HELD_PER_HOST", 2)
    async with scene(tmp_path, echo) as here:
        pushes, broken_off, held = here.world.store.pushes, 0, 0
        claim, carry = pushes.claim, here.push_scheduler._start_delivery

        async def breaks_off(session: int, keys: Sequence[PushConfigKey]) -> list[PushRecord]:
            nonlocal broken_off
            taken = await claim(session, keys)
            if taken and broken_off < 3:
                broken_off += 1
                error = Unavailable("the store stopped answering in a commit")
                error.outcome_unknown = True
                raise error
            return taken

        def carries(push: PushRecord) -> None:
            nonlocal held
            carry(push)
            held = max(held, here.push_scheduler.held)

        here.push_scheduler._poll_interval = 0.01
        here.push_scheduler._start_delivery = carries
        monkeypatch.setattr(pushes, "claim", breaks_off)
        for task in await asyncio.gather(*(here.send(str(number)) for number in range(9))):
            await here.until(task.id, PushState.DONE)
        assert sorted(here.receivers.taken(HOOK)) == sorted([1, 2, 3] * 9)
        assert (broken_off, held) == (3, 2)


# Nobody waits ------------------------------------------------------------------------------------------------------


async def test_a_slow_receiver_delays_no_other(tmp_path: Path) -> None:
    async with scene(tmp_path, counter, echo) as here:
        let_go = asyncio.Event()

        async def slow() -> OutboundResponse:
            await let_go.wait()
            return OK

        here.receivers.answer(HOOK, slow)
        slowly = await here.send()  # a blocking send: it is answered while its receiver sleeps
        assert slowly.status.state == pb.TASK_STATE_COMPLETED
        await here.create(slowly.id, url=OTHER, id="other")
        for _ in range(3):
            task = await here.send(url=OTHER)
            await here.until(task.id, PushState.DONE)
        assert kinds(await collect(here.world.stream())) == [
            *("task SUBMITTED", "WORKING"),
            *("0 ", "1 ", "2 ", "COMPLETED"),
        ]
        assert here.receivers.at(HOOK) == []
        let_go.set()
        await here.receivers.until(lambda: len(here.receivers.taken(HOOK)) == 6)
        assert here.receivers.taken(HOOK) == [1, 2, 3, 4, 5, 6]


async def test_one_host_is_called_so_many_times_at_once_and_others_meanwhile(tmp_path: Path) -> None:
    async with scene(tmp_path, echo) as here:
        let_go = asyncio.Event()

        async def slow() -> OutboundResponse:
            await let_go.wait()
            return OK

        urls = [f"https://hook.example/{number}" for number in range(3 * MAX_CALLS_PER_HOST)]
        for url in urls:
            here.receivers.answer(url, slow)
        for url in urls:
            await here.send(url=url)
        task = await here.send(url=OTHER)
        await here.until(task.id, PushState.DONE)
        assert here.receivers.calls == MAX_CALLS_PER_HOST
        let_go.set()
        await here.receivers.until(lambda: all(here.receivers.taken(url) == [1, 2, 3] for url in urls))


# Changing ----------------------------------------------------------------------------------------------------------


async def test_a_deleted_configuration_gets_no_more_events(tmp_path: Path) -> None:
    async with scene(tmp_path, asker, hold=60.0) as here:  # its carrier waits for the next event all the while
        task = await here.send()
        await here.until(task.id, PushState.LIVE, last_delivered=2)
        await here.delete(task.id, task.id)
        await here.delete(task.id, task.id)
        await here.world.send("more", task_id=task.id)
        await here.later(DAY)
        assert here.receivers.taken(HOOK) == [1, 2]


async def test_a_new_url_gets_the_events_that_the_old_one_has_not_accepted(tmp_path: Path) -> None:
    async with scene(tmp_path, asker, hold=60.0) as here:
        task = await here.send()
        await here.until(task.id, PushState.LIVE, last_delivered=2)
        await here.create(task.id, url=OTHER)
        await here.world.send("more", task_id=task.id)
        await here.until(task.id, PushState.DONE)
        assert (here.receivers.taken(HOOK), here.receivers.taken(OTHER)) == ([1, 2], [3, 4, 5])


async def test_two_receivers_of_a_task_progress_independently(tmp_path: Path) -> None:
    async with scene(tmp_path, asker) as here:
        here.receivers.answer(OTHER, answered(500))
        task = await here.send()
        await here.create(task.id, url=OTHER, id="other")
        await here.world.send("more", task_id=task.id)
        await here.receivers.until(lambda: here.receivers.taken(HOOK)[-1:] == [5])
        await here.receivers.until(lambda: len(here.receivers.at(OTHER)) == 1)
        await here.idle()
        await here.later(SECOND)
        await here.receivers.until(lambda: here.receivers.taken(OTHER) == [3, 4, 5])


async def test_an_erased_task_is_no_longer_pushed(tmp_path: Path) -> None:
    async with scene(tmp_path, asker, hold=60.0) as here:
        task = await here.send()
        await here.until(task.id, PushState.LIVE, last_delivered=2)
        await here.world.runtime.maintenance.purge(TaskSelection(task=task.id))
        await here.idle()
        assert here.receivers.taken(HOOK) == [1, 2]


async def test_a_receiver_whose_next_event_was_truncated_gets_the_current_task(tmp_path: Path) -> None:
    async def long(turn: Turn) -> AsyncIterator[str]:
        for number in range(200):
            yield f"{number} "
            await turn.flush()

    async with scene(tmp_path, long, sizes=StorageOptions(0, 1.0, 1 << 20)) as here:
        here.receivers.answer(HOOK, then=answered(500))
        for dialect in ("1.0", "0.3"):
            task = await here.send(dialect=dialect)
            await here.until(task.id, PushState.LIVE, failures=1, session=0)
            await here.later(3600 * SECOND)
            await here.until(task.id, PushState.DEAD)  # nobody waits for it any more, so its log is cut
            here.clock.now += 10 * SECOND
            assert (await here.world.store.compact()).events > 0
            before = len(here.receivers.posts)
            here.receivers.answer(HOOK)
            await here.world.store.pushes.restart(await here.ref(task.id), ())
            await here.later(0)
            await here.until(task.id, PushState.DONE)
            (post,) = here.receivers.posts[before:]
            body = post.body["task"] if dialect == "1.0" else post.body
            assert body["metadata"]["urn:dragoman:resume:v1"] == {"gap": True, "from": 0, "sequence": post.sequence}
            assert body["status"]["state"] in ("TASK_STATE_COMPLETED", "completed")
            here.receivers.answer(HOOK, then=answered(500))


# Processes ---------------------------------------------------------------------------------------------------------


async def test_undelivered_events_of_a_stopped_process_are_delivered_by_the_next(tmp_path: Path) -> None:
    receivers, clock = Receivers(), Clock()
    receivers.answer(HOOK, OK, OK, answered(500), then=answered(500))
    async with scene(tmp_path, counter, receivers=receivers, clock=clock) as here:
        task = await here.send()
        await here.until(task.id, PushState.LIVE, failures=1, session=0)
    receivers.answer(HOOK)
    clock.now += SECOND
    async with scene(tmp_path, counter, receivers=receivers, clock=clock) as here:
        await here.until(task.id, PushState.DONE)
    assert receivers.taken(HOOK) == [1, 2, 3, 4, 5, 6]


async def test_nothing_is_pushed_before_the_server_listens(tmp_path: Path) -> None:
    receivers, ready, listening = Receivers(), asyncio.Event(), []

    async def take() -> OutboundResponse:
        listening.append(ready.is_set())
        return OK

    receivers.answer(HOOK, then=take)
    async with scene(tmp_path, counter, receivers=receivers, ready=ready) as here:
        task = await here.send()
        ready.set()
        await here.until(task.id, PushState.DONE)
    assert listening == [True] * 6


async def test_a_stopping_process_finishes_its_request_and_leaves_the_rest_to_others(tmp_path: Path) -> None:
    receivers, calling, let_go = Receivers(), asyncio.Event(), asyncio.Event()

    async def slow() -> OutboundResponse:
        calling.set()
        await let_go.wait()
        return OK

    receivers.answer(HOOK, OK, slow)
    async with scene(tmp_path, counter, receivers=receivers) as here:
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


async def test_of_two_processes_on_one_store_one_delivers(tmp_path: Path) -> None:
    receivers = Receivers()
    async with scene(tmp_path, counter, receivers=receivers) as here:
        pushing = PushOptions(
            outbound=receivers, encoder=DialectWebhookEncoder(Stamp(), AesGcmSecretBox()), retry_policy=RETRY_POLICY
        )
        async with open_runtime(
            here.world.store, LocalBus(), [agent()(counter)], exclusive=False, push_options=pushing
        ) as second:
            assert second.push_scheduler is not None
            tasks = [await here.send(f"{number}", url=f"https://{number}.example/") for number in range(10)]
            for _ in range(5):
                await asyncio.gather(second.push_scheduler.poll(), here.push_scheduler.poll())
            for task in tasks:
                await here.until(task.id, PushState.DONE)
    for number in range(10):
        assert receivers.taken(f"https://{number}.example/") == [1, 2, 3, 4, 5, 6]


# What may be asked for ---------------------------------------------------------------------------------------------


async def test_a_configuration_that_cannot_be_used_is_refused_and_so_is_its_send(tmp_path: Path) -> None:
    async with scene(tmp_path, echo) as here:
        for config, field in (
            ({"url": ""}, "url"),
            ({"url": "https://forbidden.example"}, "url"),
            ({"token": "a\r\nb"}, "token"),
            ({"id": "a/b"}, "id"),
        ):
            with pytest.raises(InvalidParams) as refused:
                await here.send(**config)
            assert refused.value.violations[0].field == f"configuration.taskPushNotificationConfig.{field}"
            with pytest.raises(InvalidParams) as refused:
                await here.send(dialect="0.1", **config)
            assert refused.value.violations[0].field == f"pushNotification.{field}"
        assert (await here.world.list()).total_size == 0
        task = await here.world.send()
        with pytest.raises(InvalidParams, match=r"^pushNotificationConfig\.url: the URL is not one"):
            await here.create(task.id, dialect="0.3", url="https://forbidden.example")
        with pytest.raises(InvalidParams, match=r"^taskId: is required"):
            await here.create("")
        with pytest.raises(TaskNotFound):
            await here.create("no such task")


async def test_a_task_takes_only_so_many(tmp_path: Path) -> None:
    async with scene(tmp_path, asker) as here:
        task = await here.world.send()
        for number in range(MAX_PUSH_CONFIGS):
            await here.create(task.id, id=f"{number}")
        with pytest.raises(InvalidParams, match=f"^id: a task can have at most {MAX_PUSH_CONFIGS} push configurations"):
            await here.create(task.id, id="one more")
        push_request = request("more", task_id=task.id)
        push_request.configuration.task_push_notification_config.url = HOOK
        with pytest.raises(InvalidParams, match=f"{MAX_PUSH_CONFIGS} push configurations"):
            await here.world.runtime.service.send_message(here.call(), push_request)
        assert (await here.world.get(task.id)).status.state == pb.TASK_STATE_INPUT_REQUIRED


async def test_they_are_listed_page_by_page_without_secrets(tmp_path: Path) -> None:
    async with scene(tmp_path, asker) as here:
        task = await here.world.send()
        created = [
            await here.create(
                task.id,
                id=f"c{number}",
                token="secret",
                authentication=pb.AuthenticationInfo(scheme="Bearer", credentials="secret"),
            )
            for number in range(5)
        ]
        assert all("secret" not in str(one) for one in created)
        seen: list[pb.TaskPushNotificationConfig] = []
        push_request = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id, page_size=2)
        while True:
            page = pb.ListTaskPushNotificationConfigsResponse.FromString(
                await here.world.runtime.service.list_push(here.call(), push_request)
            )
            assert len(page.configs) <= 2
            seen += page.configs
            if not page.next_page_token:
                break
            push_request.page_token = page.next_page_token
        assert seen == created
        assert seen[0].authentication.scheme == "Bearer"
        for wrong in ({"page_size": 101}, {"page_size": -1}, {"page_token": "x"}):
            bad = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id, **wrong)
            with pytest.raises(InvalidParams, match=r"^page(Size|Token): "):
                await here.world.runtime.service.list_push(here.call(), bad)


async def test_one_is_read_by_its_id_or_as_the_first(tmp_path: Path) -> None:
    async with scene(tmp_path, asker) as here:
        task = await here.world.send()
        service = here.world.runtime.service
        with pytest.raises(TaskNotFound, match="no such push"):
            await service.get_push(
                here.call(), pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id=OLDEST_CONFIG_ID)
            )
        await here.create(task.id, id="b")
        here.clock.now += 1
        await here.create(task.id, id="a", url=OTHER)
        for id, url in ((OLDEST_CONFIG_ID, HOOK), ("a", OTHER), ("b", HOOK)):
            push_request = pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id=id)
            found = pb.TaskPushNotificationConfig.FromString(await service.get_push(here.call(), push_request))
            assert found.url == url
        with pytest.raises(TaskNotFound, match="no such push"):
            await service.get_push(here.call(), pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id="c"))
        for call in (
            service.get_push(here.call(), pb.GetTaskPushNotificationConfigRequest(task_id=task.id)),
            service.delete_push(here.call(), pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id)),
        ):
            with pytest.raises(InvalidParams, match=r"^id: is required"):
                await call


async def test_a_stranger_sees_none_and_changes_none(tmp_path: Path) -> None:
    async with scene(tmp_path, asker) as here:
        task = await here.send()
        caller = here.call().caller
        stranger = Call(replace(caller, owner=caller.owner._replace(principal="eve")))
        service = here.world.runtime.service
        for call in (
            service.create_push(stranger, pb.TaskPushNotificationConfig(task_id=task.id, url=OTHER)),
            service.get_push(stranger, pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id=OLDEST_CONFIG_ID)),
            service.list_push(stranger, pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)),
            service.delete_push(stranger, pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=task.id)),
        ):
            with pytest.raises(TaskNotFound):
                await call
        assert len(await here.pushes(task.id)) == 1


async def test_a_refused_message_leaves_no_receiver(tmp_path: Path) -> None:
    async with scene(tmp_path, echo) as here:
        task = await here.world.send()
        push_request = request("late", task_id=task.id)
        push_request.configuration.task_push_notification_config.url = HOOK
        with pytest.raises(TaskEnded):
            await here.world.runtime.service.send_message(here.call(), push_request)
        assert await here.pushes(task.id) == []


async def test_a_server_that_does_not_push_says_so_to_every_call(tmp_path: Path) -> None:
    async with open_harness(tmp_path, echo) as without_push:
        service, task = without_push.runtime.service, await without_push.send()
        assert not service.push_enabled
        push_request = request()
        push_request.configuration.task_push_notification_config.url = "nonsense"
        for call in (
            service.create_push(without_push.call, pb.TaskPushNotificationConfig(task_id=task.id)),
            service.get_push(without_push.call, pb.GetTaskPushNotificationConfigRequest()),
            service.list_push(without_push.call, pb.ListTaskPushNotificationConfigsRequest(task_id="none")),
            service.delete_push(without_push.call, pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id)),
            service.send_message(without_push.call, push_request),
        ):
            with pytest.raises(PushNotificationNotSupported):
                await call
        assert (await without_push.list()).total_size == 1
