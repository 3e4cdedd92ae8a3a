"""Contract of push configurations: cursors are durable, and a claim is granted once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dragoman.core.names import Owner
from dragoman.core.push.configuration import MAX_PUSH_CONFIGS, PushConfig
from dragoman.core.push.delivery import (
    MAX_KEPT_ATTEMPTS,
    MAX_REJECTIONS,
    DeliveryAttempt,
    DeliveryOutcome,
    DeliveryReport,
    PushRecord,
    PushState,
)
from dragoman.core.task import states
from dragoman.core.task.log import ABSENT, TOO_MANY_CONFIGS, Append, AppendRejected, Exists, TaskRef
from dragoman.core.task.maintenance import RETENTION_REASON, TaskSelection
from dragoman.ports import Store
from dragoman.testing.fixtures import (
    OWNER,
    Clock,
    artifact,
    by_runner,
    cancel,
    created,
    follow_up,
    new_ref,
    running,
    status,
)

HOOK = PushConfig(id="hook", url="https://one.example/hook", token="t", scheme="Bearer", credentials="c", dialect="1.0")
SECOND = 1000
DAY = 86_400 * SECOND


def with_push(change: Append, config: PushConfig = HOOK) -> Append:
    """A change that adds a configuration."""
    return replace(change, push_config=config)


async def claim_due(store: Store, session: int, *refs: TaskRef) -> list[PushRecord]:
    """Claims the due pushes of these tasks, or of all, for `session`."""
    due, _ = await store.pushes.due(per_share=100, max_hosts=100)
    return await store.pushes.claim(session, [(p.task, p.config.id) for p in due if not refs or p.task in refs])


def report_of(push: PushRecord, outcome: DeliveryOutcome, last_delivered: int, **more: object) -> DeliveryReport:
    """A report of the session that has claimed a push."""
    values = {"retry_delay": SECOND, "give_up_after": DAY, "last_state_sent": 0, **more}
    return DeliveryReport(
        task=push.task, id=push.config.id, session=push.session, token=push.token, outcome=outcome,
        last_delivered=last_delivered, **values,  # type: ignore[arg-type]  # by name
    )  # fmt: skip


def attempt_at(sequence: int, status: int = 200) -> DeliveryAttempt:
    return DeliveryAttempt(sequence=sequence, status=status, duration_ms=3)


class StorePushes:
    """Provide a `store` fixture, opened with a `clock` fixture (testing.fixtures.Clock)."""

    @pytest.fixture
    async def session(self, store: Store) -> int:
        """A live session; the clock stands still unless a test advances it."""
        return await store.open_session(3600.0)

    @pytest.fixture
    async def ref(self, store: Store) -> TaskRef:
        """A task created with `HOOK`."""
        change = with_push(created(new_ref()))
        await store.append(change)
        return change.task

    # Creation ---------------------------------------------------------------------------------------------------

    async def test_a_push_config_of_the_creating_send_starts_at_the_first_event(
        self, store: Store, ref: TaskRef, clock: Clock
    ) -> None:
        (push,) = await store.pushes.list_configs(ref)
        assert push.config == HOOK
        assert (push.last_delivered, push.last_sequence, push.lag, push.due_at) == (0, 1, 1, clock.now)
        assert (push.state, push.task_ended, push.agent) == (PushState.LIVE, False, "echo")

    async def test_a_push_config_of_a_follow_up_starts_at_the_event_that_accepts_it(self, store: Store) -> None:
        change = created(new_ref())
        await store.append(change)
        await store.append(with_push(follow_up(change.task, "more")))
        (push,) = await store.pushes.list_configs(change.task)
        assert (push.last_delivered, push.last_sequence) == (1, 2)

    async def test_a_push_config_added_later_starts_after_the_existing_events(self, store: Store) -> None:
        task = await running(store)
        await store.append(by_runner(task, artifact("a", "1")))
        push = await store.pushes.put(task.record.ref, HOOK)
        assert (push.last_delivered, push.last_sequence, push.due_at) == (2, 2, 0)
        assert await store.pushes.list_configs(task.record.ref) == [push]

    async def test_a_push_config_of_a_finished_task_is_already_ended(self, store: Store, session: int) -> None:
        change = created(new_ref())
        await store.append(change)
        await store.append(cancel(change.task))
        assert (await store.pushes.put(change.task, HOOK)).state is PushState.COMPLETE
        assert await claim_due(store, session) == []

    async def test_a_rejected_append_stores_no_push_config(self, store: Store) -> None:
        change = created(new_ref())
        await store.append(change)
        await store.append(cancel(change.task))
        with pytest.raises(AppendRejected):
            await store.append(with_push(follow_up(change.task, "late")))
        assert await store.pushes.list_configs(change.task) == []

    async def test_an_unknown_task_has_no_push_configs(self, store: Store) -> None:
        with pytest.raises(AppendRejected) as refused:
            await store.pushes.put(new_ref(), HOOK)
        assert refused.value.reason == ABSENT
        assert await store.pushes.list_configs(new_ref()) == []
        assert not await store.pushes.remove(new_ref(), "hook")

    async def test_the_number_of_push_configs_of_a_task_is_limited(self, store: Store, ref: TaskRef) -> None:
        for number in range(MAX_PUSH_CONFIGS - 1):
            await store.pushes.put(ref, replace(HOOK, id=f"h{number}"))
        for write in (
            store.pushes.put(ref, replace(HOOK, id="one more")),
            store.append(with_push(follow_up(ref, "x"), replace(HOOK, id="one more"))),
        ):
            with pytest.raises(AppendRejected) as refused:
                await write
            assert refused.value.reason == TOO_MANY_CONFIGS
        await store.pushes.put(ref, replace(HOOK, url="https://other.example/"))  # replaces an existing one
        assert len(await store.pushes.list_configs(ref)) == MAX_PUSH_CONFIGS
        snapshot = await store.read(ref, history=0)
        assert snapshot is not None
        assert snapshot.record.last_sequence == 1

    async def test_a_rejected_push_config_does_not_affect_its_batch(self, store: Store) -> None:
        refs = [new_ref() for _ in range(10)]
        await asyncio.gather(*(store.append(created(ref)) for ref in refs))
        writes = [store.pushes.put(ref, HOOK) for ref in (*refs[:5], new_ref(), *refs[5:])]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert [isinstance(result, AppendRejected) for result in results] == [False] * 5 + [True] + [False] * 5

    async def test_push_configs_are_listed_in_order_of_creation(self, store: Store, ref: TaskRef, clock: Clock) -> None:
        for id in ("z", "a", "m"):
            clock.now += 1
            await store.pushes.put(ref, replace(HOOK, id=id))
        assert [push.config.id for push in await store.pushes.list_configs(ref)] == ["hook", "z", "a", "m"]

    # Replacing and removing -------------------------------------------------------------------------------------

    async def test_replacing_a_live_push_config_keeps_its_cursor(
        self, store: Store, ref: TaskRef, session: int
    ) -> None:
        await store.append(follow_up(ref, "more"))
        (push,) = await claim_due(store, session)
        (push,) = await apply_reports(store, report_of(push, DeliveryOutcome.DELIVERED, 1, attempt=attempt_at(1)))
        moved = await store.pushes.put(ref, replace(HOOK, url="https://other.example/", token="new"))
        assert (moved.last_delivered, moved.lag, moved.config.url) == (1, 1, "https://other.example/")
        assert await store.pushes.apply_reports([report_of(push, DeliveryOutcome.DELIVERED, 2)]) == [
            None
        ]  # from the delivery to the old address
        assert [push.last_delivered for push in await store.pushes.list_configs(ref)] == [1]

    async def test_replacing_an_ended_push_config_starts_over(self, store: Store, ref: TaskRef, session: int) -> None:
        (push,) = await claim_due(store, session)
        await apply_reports(store, report_of(push, DeliveryOutcome.ENDED, 0, attempt=attempt_at(1, 410)))
        again = await store.pushes.put(ref, HOOK)
        assert (again.state, again.last_delivered, again.lag) == (PushState.LIVE, 1, 0)

    async def test_a_removed_push_config_rejects_later_reports(self, store: Store, ref: TaskRef, session: int) -> None:
        (push,) = await claim_due(store, session)
        assert await store.pushes.remove(ref, "hook")
        assert not await store.pushes.remove(ref, "hook")
        assert await store.pushes.apply_reports([report_of(push, DeliveryOutcome.DELIVERED, 1)]) == [None]
        assert await store.pushes.list_configs(ref) == []
        assert await store.pushes.attempts(ref, "hook") == []

    async def test_other_owners_do_not_see_push_configs(self, store: Store, ref: TaskRef) -> None:
        stranger = TaskRef(Owner(OWNER.scope, "someone else"), ref.key)
        assert await store.pushes.list_configs(stranger) == []
        assert not await store.pushes.remove(stranger, "hook")
        assert await store.pushes.restart(stranger, ()) == []
        with pytest.raises(AppendRejected):
            await store.pushes.put(stranger, HOOK)
        assert len(await store.pushes.list_configs(ref)) == 1

    # Claiming ---------------------------------------------------------------------------------------------------

    async def test_an_append_makes_a_push_due_and_one_session_claims_it(self, store: Store, session: int) -> None:
        task = await running(store)
        await store.pushes.put(task.record.ref, HOOK)
        assert await claim_due(store, session) == []
        appended = await store.append(by_runner(task, artifact("a", "1")))
        assert appended.record.has_live_push
        (push,) = await claim_due(store, session)
        assert (push.last_delivered, push.last_sequence, push.session) == (1, 2, session)
        other = await store.open_session(3600.0)
        assert await claim_due(store, other) == []
        assert await store.pushes.claim(other, [(task.record.ref, "hook")]) == []

    async def test_a_claim_whose_response_was_lost_is_granted_again(self, store: Store, ref: TaskRef) -> None:
        session = await store.open_session(3600.0)
        (push,) = await claim_due(store, session)
        (again,) = await store.pushes.claim(session, [(ref, "hook")])
        assert (again.session, again.token) == (session, push.token + 1)
        assert await store.pushes.apply_reports([report_of(push, DeliveryOutcome.DELIVERED, 1)]) == [None]

    async def test_a_task_without_push_configs_has_no_live_push(self, store: Store) -> None:
        assert not (await running(store)).record.has_live_push

    async def test_claims_of_a_dead_process_are_released(self, store: Store, ref: TaskRef, clock: Clock) -> None:
        dead, alive = await store.open_session(10.0), await store.open_session(3600.0)
        (push,) = await claim_due(store, dead)
        assert await claim_due(store, alive) == []
        clock.now += 11 * SECOND
        (again,) = await claim_due(store, alive)
        assert again.token > push.token
        assert await store.pushes.apply_reports([report_of(push, DeliveryOutcome.DELIVERED, 1)]) == [None]
        assert [push.last_delivered for push in await store.pushes.list_configs(ref)] == [0]

    async def test_expired_sessions_keep_their_claims_where_they_may_renew(
        self, store: Store, ref: TaskRef, clock: Clock
    ) -> None:
        expired, alive = await store.open_session(10.0), await store.open_session(3600.0)
        await claim_due(store, expired)
        clock.now += 11 * SECOND
        assert await store.pushes.due(per_share=9, max_hosts=9, expired=False) == ([], "")
        assert await store.pushes.claim(alive, [(ref, "hook")], expired=False) == []
        sole = await store.open_session(3600.0, exclusive=True)  # ends all others for certain
        (push,), _ = await store.pushes.due(per_share=9, max_hosts=9, expired=False)
        (push,) = await store.pushes.claim(sole, [(ref, "hook")], expired=False)
        assert push.session == sole

    async def test_events_of_a_hidden_task_are_not_delivered(self, store: Store, session: int) -> None:
        hidden = await store.append(with_push(created(new_ref(), claim=session, visible=False)))
        assert await claim_due(store, session) == []
        assert await store.pushes.claim(session, [(hidden.record.ref, "hook")]) == []
        await store.append(by_runner(hidden, status(states.WORKING)))
        (push,) = await claim_due(store, session)
        assert (push.last_delivered, push.last_sequence) == (0, 2)

    async def test_a_discarded_task_deletes_its_push_config(self, store: Store, session: int) -> None:
        hidden = await store.append(with_push(created(new_ref(), claim=session, visible=False)))
        await store.append(replace(by_runner(hidden), discard=True))
        assert await store.pushes.list_configs(hidden.record.ref) == []

    async def test_claims_per_share_are_limited(self, store: Store, session: int) -> None:
        for host in "bac":
            for number in range(3):
                config = replace(HOOK, id=f"{number}", url=f"https://{host}.example/{number}")
                await store.append(with_push(created(new_ref()), config))
        first, after = await store.pushes.due(per_share=2, max_hosts=2)
        assert [push.config.host for push in first] == ["a.example:443"] * 2 + ["b.example:443"] * 2
        second, end = await store.pushes.due(per_share=2, max_hosts=2, after_host=after)
        assert ([push.config.host for push in second], end) == (["c.example:443"] * 2, "")

    async def test_failing_receivers_leave_the_share_of_the_others_of_their_host(
        self, store: Store, session: int, clock: Clock
    ) -> None:
        refs = [with_push(created(new_ref())) for _ in range(3)]
        for change in refs:
            await store.append(change)
        for push in await claim_due(store, session):
            attempt = attempt_at(1, 0)
            await apply_reports(store, report_of(push, DeliveryOutcome.FAILED, 0, attempt=attempt, retry_delay=1))
        clock.now += SECOND
        late = with_push(created(new_ref()))
        await store.append(late)
        due, after = await store.pushes.due(per_share=2, max_hosts=2)
        assert after == ""
        assert [push.task for push in due] == [late.task, due[1].task, due[2].task]
        assert [push.failures for push in due] == [0, 1, 1]

    # Reports ----------------------------------------------------------------------------------------------------

    async def test_a_claim_lasts_while_events_are_undelivered(self, store: Store, ref: TaskRef, session: int) -> None:
        await store.append(follow_up(ref, "more"))
        (push,) = await claim_due(store, session)
        (push,) = await apply_reports(
            store,
            report_of(push, DeliveryOutcome.DELIVERED, 1, last_state_sent=states.SUBMITTED, attempt=attempt_at(1)),
        )
        assert (push.last_delivered, push.last_state_sent, push.session, push.lag) == (1, states.SUBMITTED, session, 1)
        (push,) = await apply_reports(store, report_of(push, DeliveryOutcome.DELIVERED, 2, attempt=attempt_at(2)))
        assert (push.lag, push.session, push.last_state_sent) == (
            0,
            session,
            states.SUBMITTED,
        )  # still claimed: more events may follow
        (push,) = await apply_reports(store, report_of(push, DeliveryOutcome.SKIPPED, 2, release=True))
        assert (push.session, push.due_at, push.state) == (0, 0, PushState.LIVE)
        assert await claim_due(store, session) == []

    async def test_a_claim_is_not_released_while_events_are_undelivered(
        self, store: Store, ref: TaskRef, session: int
    ) -> None:
        (push,) = await claim_due(store, session)
        await store.append(follow_up(ref, "in this moment"))
        (push,) = await apply_reports(store, report_of(push, DeliveryOutcome.DELIVERED, 1, release=True))
        assert (push.session, push.lag) == (session, 1)

    async def test_a_handed_over_push_can_be_claimed_immediately(
        self, store: Store, ref: TaskRef, session: int
    ) -> None:
        (push,) = await claim_due(store, session)
        await apply_reports(store, report_of(push, DeliveryOutcome.SKIPPED, 0, hand_over=True))
        (push,) = await claim_due(store, await store.open_session(3600.0))
        assert push.lag == 1

    async def test_delivering_the_end_of_a_task_ends_the_push(self, store: Store, ref: TaskRef, session: int) -> None:
        await store.append(cancel(ref))
        (push,) = await claim_due(store, session)
        (push,) = await apply_reports(store, report_of(push, DeliveryOutcome.DELIVERED, 1))
        assert push.state is PushState.LIVE
        (push,) = await apply_reports(store, report_of(push, DeliveryOutcome.DELIVERED, 2))
        assert (push.state, push.session, push.due_at) == (PushState.COMPLETE, 0, 0)
        assert await claim_due(store, session) == []

    async def test_a_failed_delivery_is_retried_after_its_delay(
        self, store: Store, ref: TaskRef, session: int, clock: Clock
    ) -> None:
        (push,) = await claim_due(store, session)
        (push,) = await apply_reports(
            store, report_of(push, DeliveryOutcome.FAILED, 0, attempt=attempt_at(1, 503), retry_delay=5 * SECOND)
        )
        assert (push.last_delivered, push.failures, push.failing_since, push.session) == (0, 1, clock.now, 0)
        assert push.reason == "answered 503"
        await store.append(follow_up(ref, "an event does not hurry it"))
        clock.now += 5 * SECOND - 1
        assert await claim_due(store, session) == []
        clock.now += 1
        (push,) = await claim_due(store, session)
        (push,) = await apply_reports(store, report_of(push, DeliveryOutcome.DELIVERED, 1, attempt=attempt_at(1)))
        assert (push.failures, push.failing_since, push.reason) == (0, 0, "")

    async def test_a_push_to_a_failing_receiver_is_given_up_and_can_be_restarted(
        self, store: Store, ref: TaskRef, session: int, clock: Clock
    ) -> None:
        (push,) = await claim_due(store, session)
        (push,) = await apply_reports(store, report_of(push, DeliveryOutcome.FAILED, 0, attempt=attempt_at(1, 0)))
        assert [push.state for push in await store.pushes.unfinished(10)] == [PushState.LIVE]
        clock.now += DAY
        (push,) = await claim_due(store, session)
        (push,) = await apply_reports(store, report_of(push, DeliveryOutcome.FAILED, 0, attempt=attempt_at(1, 500)))
        assert (push.state, push.due_at, push.session) == (PushState.GIVEN_UP, 0, 0)
        assert push.reason == "given up after 2 attempts: answered 500"
        await store.append(follow_up(ref, "undelivered"))
        assert await claim_due(store, session) == []
        assert [push.lag for push in await store.pushes.unfinished(10)] == [2]
        (push,) = await store.pushes.restart(ref, ())
        assert (push.state, push.last_delivered, push.failures, push.failing_since) == (PushState.LIVE, 0, 0, 0)
        (push,) = await claim_due(store, session)
        assert push.lag == 2

    async def test_an_event_that_is_rejected_three_times_is_given_up_and_the_next_ones_follow(
        self, store: Store, ref: TaskRef, session: int, clock: Clock
    ) -> None:
        await store.append(follow_up(ref, "more"))
        await store.append(cancel(ref))
        for number in range(MAX_REJECTIONS):
            (push,) = await claim_due(store, session)
            assert (push.rejections, push.last_delivered) == (number, 0)
            report = report_of(push, DeliveryOutcome.FAILED, 0, attempt=attempt_at(1, 400), retry_delay=SECOND)
            (push,) = await apply_reports(store, report)
            clock.now += SECOND
        assert (push.state, push.session, push.last_delivered, push.failures) == (PushState.LIVE, session, 1, 0)
        assert (push.given_up_events, push.first_given_up) == (1, 1)
        assert push.reason == "given up after 3 rejections: event 1"
        assert [attempt.status for attempt in await store.pushes.attempts(ref, "hook")] == [400] * 3
        (push,) = await apply_reports(store, report_of(push, DeliveryOutcome.DELIVERED, 3))
        assert (push.state, push.last_delivered, push.lag) == (PushState.GIVEN_UP, 3, 0)
        assert await store.pushes.unfinished(10) == [push]
        (again,) = await store.pushes.restart(ref, ())
        assert (again.state, again.last_delivered, again.first_given_up) == (PushState.LIVE, 0, 0)
        (again,) = await claim_due(store, session)
        (again,) = await apply_reports(store, report_of(again, DeliveryOutcome.DELIVERED, 3))
        assert (again.state, again.reason) == (PushState.COMPLETE, "")
        assert await store.pushes.unfinished(10) == []

    async def test_an_event_that_was_given_up_is_listed_while_its_task_is_active(
        self, store: Store, ref: TaskRef, session: int, clock: Clock
    ) -> None:
        for _ in range(MAX_REJECTIONS):
            (push,) = await claim_due(store, session)
            attempt = attempt_at(1, 422)
            (push,) = await apply_reports(
                store, report_of(push, DeliveryOutcome.FAILED, 0, attempt=attempt, retry_delay=1)
            )
            clock.now += 1
        (push,) = await apply_reports(store, report_of(push, DeliveryOutcome.SKIPPED, 1, release=True))
        assert await store.pushes.unfinished(10) == [push]
        await store.append(follow_up(ref, "more"))
        assert [push.lag for push in await store.pushes.unfinished(10)] == [1]
        (moved,) = [await store.pushes.put(ref, replace(HOOK, url="https://other.example/"))]
        assert (moved.last_delivered, moved.first_given_up) == (0, 0)

    async def test_a_finished_push_can_be_restarted(self, store: Store, ref: TaskRef, session: int) -> None:
        await store.pushes.put(ref, replace(HOOK, id="other"))
        await store.append(cancel(ref))
        push = next(push for push in await claim_due(store, session) if push.config.id == "hook")
        (push,) = await apply_reports(store, report_of(push, DeliveryOutcome.DELIVERED, 2))
        assert push.state is PushState.COMPLETE
        (again,) = await store.pushes.restart(ref, ["hook"], after=1)
        assert (again.state, again.last_delivered, again.lag) == (PushState.LIVE, 1, 1)
        (again,) = await claim_due(store, session)
        assert again.config.id == "hook"
        assert await store.pushes.apply_reports([report_of(push, DeliveryOutcome.DELIVERED, 2)]) == [None]

    async def test_only_the_last_attempts_are_stored(
        self, store: Store, ref: TaskRef, session: int, clock: Clock
    ) -> None:
        for number in range(MAX_KEPT_ATTEMPTS + 5):
            (push,) = await claim_due(store, session)
            attempt = DeliveryAttempt(sequence=1, status=0, error=f"no {number}", duration_ms=number)
            await apply_reports(store, report_of(push, DeliveryOutcome.FAILED, 0, attempt=attempt, retry_delay=1))
            clock.now += 1
        found = await store.pushes.attempts(ref, "hook")
        assert [attempt.duration_ms for attempt in found] == list(range(MAX_KEPT_ATTEMPTS + 4, 4, -1))
        assert found[0] == DeliveryAttempt(
            sequence=1,
            at=clock.now - 1,
            status=0,
            error=f"no {MAX_KEPT_ATTEMPTS + 4}",
            duration_ms=MAX_KEPT_ATTEMPTS + 4,
        )

    async def test_many_reports_are_applied_together(self, store: Store, session: int) -> None:
        refs = [with_push(created(new_ref())) for _ in range(30)]
        await asyncio.gather(*(store.append(change) for change in refs))
        claimed = await claim_due(store, session)
        assert len(claimed) == 30
        reports = [report_of(push, DeliveryOutcome.DELIVERED, 1) for push in claimed]
        reports[7] = replace(reports[7], token=reports[7].token + 1)
        after = await store.pushes.apply_reports(reports)
        assert [number for number, push in enumerate(after) if push is None] == [7]

    # Maintenance with pending pushes ----------------------------------------------------------------------------

    async def test_a_task_shows_whether_it_has_a_live_push(self, store: Store, ref: TaskRef, session: int) -> None:
        async def pushed() -> bool:
            snapshot = await store.read(ref, history=0)
            assert snapshot is not None
            return snapshot.record.has_live_push

        assert await pushed()
        await store.pushes.put(ref, replace(HOOK, id="other"))
        await store.pushes.remove(ref, "hook")
        assert await pushed()
        await store.append(cancel(ref))
        (push,) = await claim_due(store, session)
        await apply_reports(store, report_of(push, DeliveryOutcome.DELIVERED, 2))
        assert not await pushed()
        await store.pushes.restart(ref, (), after=0)
        assert await pushed()
        await store.pushes.remove(ref, "other")
        assert not await pushed()

    async def test_retention_waits_for_pending_pushes_and_a_purge_does_not(
        self, store: Store, ref: TaskRef, session: int, clock: Clock
    ) -> None:
        await store.append(cancel(ref))
        clock.now += DAY
        selection = TaskSelection(older_than=1, by_retention=True)
        assert (await store.erasures.erase(selection, reason=RETENTION_REASON)).counts.tasks == 0
        assert (await store.erasures.measure(selection)).tasks == 0
        (push,) = await claim_due(store, session)
        await apply_reports(store, report_of(push, DeliveryOutcome.DELIVERED, 2))
        assert (await store.erasures.erase(selection, reason=RETENTION_REASON)).counts.tasks == 1
        other = (await store.append(with_push(created(new_ref())))).record
        assert (await store.erasures.erase(TaskSelection(task=other.id))).counts.tasks == 1

    async def test_erasing_a_task_deletes_its_push_configs(self, store: Store, ref: TaskRef, session: int) -> None:
        (push,) = await claim_due(store, session)
        await apply_reports(store, report_of(push, DeliveryOutcome.FAILED, 0, attempt=attempt_at(1, 500)))
        await store.erasures.erase(TaskSelection(principal=OWNER.principal))
        assert await store.pushes.list_configs(ref) == []
        assert await store.pushes.attempts(ref, "hook") == []
        assert await store.pushes.unfinished(10) == []
        assert await store.pushes.apply_reports([report_of(push, DeliveryOutcome.DELIVERED, 1)]) == [None]

    async def test_undelivered_events_are_not_truncated(self, store: Store, session: int, clock: Clock) -> None:
        task = await store.append(with_push(created(new_ref(), claim=session)))
        for number in range(100):
            await store.append(by_runner(task, artifact(f"a{number}", "x")))
        await store.append(by_runner(task, status(states.COMPLETED), end=True))
        clock.now += 10 * DAY
        assert (await store.compact()).events == 0
        assert await store.oldest_sequence(task.record.ref) == 1
        (push,) = await claim_due(store, await store.open_session(3600.0))
        await apply_reports(store, report_of(push, DeliveryOutcome.DELIVERED, 102))
        assert (await store.compact()).events > 0

    async def test_a_follow_up_with_a_failed_guard_stores_no_push_config(self, store: Store) -> None:
        with pytest.raises(AppendRejected):
            await store.append(Append(task=new_ref(), guard=Exists(), push_config=HOOK))


async def apply_reports(store: Store, *reports: DeliveryReport) -> list[PushRecord]:
    """The pushes after these reports, none of which may be rejected."""
    after = await store.pushes.apply_reports(reports)
    assert None not in after
    return [push for push in after if push is not None]
