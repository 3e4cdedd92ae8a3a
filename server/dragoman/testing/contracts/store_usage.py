"""Contract of quotas and usage: limits are checked in the transaction that would accept the change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from dragoman.core.access.identity import SHARED_PRINCIPAL
from dragoman.core.limits.admission import QUOTA_RETRY_DELAY, QuotaExceeded
from dragoman.core.limits.quotas import MAX_USAGE, Quota, Usage, UsageReport
from dragoman.core.names import Owner
from dragoman.core.push.delivery import DeliveryOutcome, PushState
from dragoman.core.task import states
from dragoman.core.task.cursors import TaskQuery
from dragoman.core.task.log import (
    Append,
    Appended,
    AppendRejected,
    ClaimHeld,
    DuplicateKey,
    Exists,
    IdempotencyKey,
    IncomingMessage,
    Ready,
    TaskRef,
)
from dragoman.core.task.maintenance import TaskSelection
from dragoman.ports import Store
from dragoman.testing.contracts.store_erasure import SAME_PRINCIPAL_OTHER_SCOPE
from dragoman.testing.contracts.store_pushes import DAY, SECOND, attempt_at, claim_due, report_of, with_push
from dragoman.testing.fixtures import (
    AGENT,
    OWNER,
    SESSION,
    Clock,
    by_runner,
    cancel,
    created,
    file_message,
    finished,
    message,
    new_ref,
    running,
    status,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

OWNER_IN_OTHER_SCOPE = Owner("projects/p", OWNER.principal)
OTHER_OWNER = Owner("default", "somebody else")
LARGE_TEXT = "x" * 5_000
"""A message with this text has a little more than ten thousand bytes, since the text is also its id."""


async def usage_of(store: Store, ref: TaskRef) -> Usage:
    """The usage of a task; none without such a task."""
    found = await store.messages(ref)
    return found.usage if found else Usage()


def task_within(quota: Quota, owner: Owner = OWNER, **details: Any) -> Append:
    """Creates a task under a quota."""
    return replace(created(new_ref(owner), **details), quota=quota)


def message_within(task: Appended, quota: Quota, text: str = "more", *, claim: int = 0, sender: str = "") -> Append:
    """Sends a message to a task under a quota."""
    incoming = IncomingMessage(message(text), sender=sender)
    return Append(task=task.record.ref, guard=Exists(), message=incoming, claim_session=claim, quota=quota)


async def assert_exceeds(limit: str, change: Awaitable[Appended]) -> QuotaExceeded:
    """Asserts that a change is rejected for this limit; returns the rejection."""
    with pytest.raises(QuotaExceeded) as caught:
        await change
    assert caught.value.limit == limit
    return caught.value


class StoreAdmission:
    """Provide a `store` fixture, opened with the `clock` fixture of this class."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    # Live tasks -------------------------------------------------------------------------------------------------

    async def test_tasks_are_accepted_up_to_the_limit_and_again_after_one_has_ended(self, store: Store) -> None:
        quota = Quota(live_tasks=2)
        first = await store.append(task_within(quota, claim=7))
        await store.append(task_within(quota))
        refused = task_within(quota)
        error = await assert_exceeds("live_tasks", store.append(refused))
        assert (error.maximum, error.current, error.retry_after) == (2, 2, QUOTA_RETRY_DELAY)
        assert await store.read(refused.task) is None
        await store.append(by_runner(first, status(states.INPUT_REQUIRED), end=True))
        await assert_exceeds("live_tasks", store.append(task_within(quota)))
        await store.append(cancel(first.record.ref))
        await store.append(task_within(quota))
        await assert_exceeds("live_tasks", store.append(task_within(quota)))

    async def test_concurrent_creations_are_accepted_up_to_the_limit(self, store: Store) -> None:
        changes = [task_within(Quota(live_tasks=20)) for _ in range(50)]
        results = await asyncio.gather(*map(store.append, changes), return_exceptions=True)
        assert [isinstance(result, QuotaExceeded) for result in results] == [False] * 20 + [True] * 30

    async def test_a_principal_that_stores_too_much_sends_nothing_new(self, store: Store) -> None:
        key = IdempotencyKey(AGENT, "key", b"digest")
        first = await store.append(replace(created(new_ref()), idempotency_key=key))
        full = Quota(stored_bytes=1_000, stored=1_200)
        for change in (task_within(full), message_within(first, full)):
            error = await assert_exceeds("stored_bytes", store.append(change))
            assert (error.maximum, error.current) == (1_000, 1_200)
        with pytest.raises(DuplicateKey):  # it was sent before
            await store.append(replace(task_within(full), idempotency_key=key))

    async def test_a_quota_covers_all_scopes_of_a_principal(self, store: Store) -> None:
        quota = Quota(live_tasks=2)
        await store.append(task_within(quota))
        await store.append(task_within(quota, OWNER_IN_OTHER_SCOPE))
        await assert_exceeds("live_tasks", store.append(task_within(quota, OWNER_IN_OTHER_SCOPE)))
        await store.append(task_within(quota, OTHER_OWNER))

    async def test_a_principal_creates_tasks_in_so_many_scopes(self, store: Store) -> None:
        quota = Quota(scopes=2)
        owners = [Owner(f"projects/{n}", OWNER.principal) for n in range(4)]
        for owner in (OWNER, owners[0]):  # before there was a limit; the default scope is not counted
            await store.append(created(new_ref(owner)))
        for owner in (owners[0], owners[1], owners[1]):
            await store.append(task_within(quota, owner))
        for owner in owners[2:]:
            refused = replace(task_within(quota, owner), idempotency_key=IdempotencyKey(AGENT, "key", b"digest"))
            error = await assert_exceeds("scopes", store.append(refused))
            assert (error.maximum, error.current) == (2, 2)
        await store.append(task_within(quota, owners[0]))
        await store.append(task_within(quota, Owner("projects/2", "somebody else")))
        await store.append(task_within(Quota(live_tasks=100), owners[3]))  # of credentials without this limit

    async def test_concurrent_tasks_in_new_scopes_are_accepted_up_to_the_limit(self, store: Store) -> None:
        owners = [Owner(f"projects/{n // 2}", OWNER.principal) for n in range(20)]
        changes = [task_within(Quota(scopes=4), owner) for owner in owners]
        results = await asyncio.gather(*map(store.append, changes), return_exceptions=True)
        assert [isinstance(result, QuotaExceeded) for result in results] == [False] * 8 + [True] * 12

    async def test_the_scopes_of_who_creates_shared_tasks_are_limited(self, store: Store) -> None:
        def shared(scope: str, sender: str) -> Append:
            change = task_within(Quota(scopes=1), Owner(scope, SHARED_PRINCIPAL))
            assert change.message is not None
            return replace(change, message=replace(change.message, sender=sender))

        await store.append(shared("projects/1", "ann"))
        await store.append(shared("projects/1", "ann"))
        await store.append(shared("projects/2", "bob"))
        for scope in ("projects/2", "projects/3"):
            await assert_exceeds("scopes", store.append(shared(scope, "ann")))

    async def test_an_agent_can_have_its_own_limit(self, store: Store) -> None:
        quota = Quota(live_tasks_per_agent=1)
        await store.append(task_within(quota))
        await assert_exceeds("live_tasks_per_agent", store.append(task_within(quota)))
        await store.append(task_within(quota, agent="other"))

    async def test_a_quota_counts_tasks_from_before_it_was_set(self, store: Store) -> None:
        hidden = await store.append(created(new_ref(), claim=7, visible=False))
        for _ in range(2):
            await store.append(created(new_ref()))
        quota = Quota(live_tasks=4)
        await store.append(task_within(quota))
        await assert_exceeds("live_tasks", store.append(task_within(quota)))
        await store.append(replace(by_runner(hidden), discard=True))
        await store.append(task_within(quota))

    async def test_erased_tasks_free_quota(self, store: Store) -> None:
        quota = Quota(live_tasks=2, queued_bytes=15_000)
        erased = (await store.append(task_within(quota, text=LARGE_TEXT))).record
        await store.append(task_within(quota))
        await assert_exceeds("live_tasks", store.append(task_within(quota)))
        await store.erasures.erase(TaskSelection(task=erased.id))
        await store.append(task_within(quota, text=LARGE_TEXT))

    async def test_a_task_counts_for_its_creator(self, store: Store) -> None:
        everyone = Owner("default", "shared:scope")
        quota = Quota(live_tasks=1)

        def by(sender: str) -> Append:
            return replace(task_within(quota, everyone), message=IncomingMessage(message("hello"), sender=sender))

        await store.append(replace(by("alice"), quota=None))
        await assert_exceeds("live_tasks", store.append(by("alice")))
        bobs = await store.append(by("bob"))
        await assert_exceeds("live_tasks", store.append(by("bob")))
        await store.append(cancel(bobs.record.ref))
        await store.append(by("bob"))
        await assert_exceeds("live_tasks", store.append(by("alice")))

    # Queued bytes -----------------------------------------------------------------------------------------------

    async def test_queued_bytes_are_limited_but_a_single_message_may_be_larger(self, store: Store) -> None:
        quota = Quota(queued_bytes=15_000)
        first = await store.append(task_within(quota, text=LARGE_TEXT + LARGE_TEXT))
        error = await assert_exceeds("queued_bytes", store.append(task_within(quota)))
        assert error.current > 20_000
        claimed = await store.append(Append(task=first.record.ref, guard=Ready(), claim_session=7))
        await store.append(by_runner(claimed, status(states.WORKING)))
        await store.append(task_within(quota, text=LARGE_TEXT))
        await assert_exceeds("queued_bytes", store.append(message_within(claimed, quota, LARGE_TEXT)))
        await store.append(message_within(claimed, quota, "small"))

    async def test_messages_of_an_ended_task_are_not_queued(self, store: Store) -> None:
        quota = Quota(queued_bytes=15_000)
        claimed = await store.append(task_within(quota, claim=7))
        await store.append(by_runner(claimed, status(states.WORKING)))
        await store.append(message_within(claimed, quota, LARGE_TEXT))
        await assert_exceeds("queued_bytes", store.append(task_within(quota, text=LARGE_TEXT)))
        await store.append(cancel(claimed.record.ref))
        await store.append(task_within(quota, text=LARGE_TEXT))

    async def test_a_restarted_turn_queues_its_message_again(self, store: Store) -> None:
        quota = Quota(queued_bytes=15_000)
        claimed = await store.append(task_within(quota, text=LARGE_TEXT, claim=7))
        await store.append(by_runner(claimed, status(states.WORKING)))
        again = Append(task=claimed.record.ref, guard=ClaimHeld(7, claimed.record.token), retry=True)
        await store.append(again)
        await assert_exceeds("queued_bytes", store.append(task_within(quota, text=LARGE_TEXT)))

    async def test_a_file_counts_with_its_content(self, store: Store) -> None:
        quota = Quota(queued_bytes=600_000)
        large = IncomingMessage(file_message("f", b"0" * 400_000))
        first = await store.append(replace(task_within(quota), message=large))
        await assert_exceeds("queued_bytes", store.append(replace(task_within(quota), message=large)))
        await store.append(cancel(first.record.ref))
        await store.append(replace(task_within(quota), message=large))

    async def test_queued_bytes_count_for_their_sender(self, store: Store) -> None:
        quota = Quota(queued_bytes=15_000)
        claimed = await store.append(task_within(quota, claim=7))
        await store.append(by_runner(claimed, status(states.WORKING)))
        await store.append(message_within(claimed, quota, LARGE_TEXT, sender="guest"))
        await assert_exceeds("queued_bytes", store.append(message_within(claimed, quota, LARGE_TEXT, sender="guest")))
        await store.append(message_within(claimed, quota, LARGE_TEXT))

    # Starts -----------------------------------------------------------------------------------------------------

    async def test_turn_starts_are_limited_by_burst_and_rate(self, store: Store, clock: Clock) -> None:
        quota = Quota(starts_per_minute=3)
        for _ in range(3):
            await store.append(task_within(quota))
        error = await assert_exceeds("starts_per_minute", store.append(task_within(quota)))
        assert error.retry_after == pytest.approx(20)
        clock.now += 20_000
        await store.append(task_within(quota))
        await assert_exceeds("starts_per_minute", store.append(task_within(quota)))
        await store.append(task_within(quota, agent="other"))
        await store.append(task_within(quota, OTHER_OWNER))

    async def test_only_appends_that_begin_a_turn_count_as_starts(self, store: Store) -> None:
        quota = Quota(starts_per_minute=2)
        claimed = await store.append(task_within(quota, claim=7))
        for _ in range(3):
            await store.append(message_within(claimed, quota))
        await store.append(by_runner(claimed, status(states.INPUT_REQUIRED), last_delivered=4, end=True))
        await store.append(message_within(claimed, quota))
        await store.append(message_within(claimed, quota))  # the task is already ready
        await assert_exceeds("starts_per_minute", store.append(task_within(quota)))

    # All limits -------------------------------------------------------------------------------------------------

    async def test_a_repeated_accepted_change_is_never_rejected(self, store: Store) -> None:
        quota = Quota(live_tasks=1, queued_bytes=1, starts_per_minute=1)
        key = IdempotencyKey(AGENT, "k", b"digest")
        first = (await store.append(replace(task_within(quota), idempotency_key=key))).record.ref
        with pytest.raises(DuplicateKey) as caught:
            await store.append(replace(task_within(quota), idempotency_key=key))
        assert caught.value.key_record.task == first
        other = IdempotencyKey(AGENT, "other", b"digest")
        await assert_exceeds("live_tasks", store.append(replace(task_within(quota), idempotency_key=other)))
        await store.append(cancel(first))
        await assert_exceeds("starts_per_minute", store.append(replace(task_within(quota), idempotency_key=other)))
        await store.append(replace(created(new_ref()), idempotency_key=other))  # the rejected change used no key

    async def test_a_follow_up_does_not_count_as_a_task(self, store: Store) -> None:
        quota = Quota(live_tasks=1, live_tasks_per_agent=1)
        task = await store.append(task_within(quota))
        await store.append(message_within(task, quota))


class StoreUsage:
    """Provide a `store` fixture, opened with the `clock` fixture of this class."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    async def test_an_empty_store_has_empty_statistics(self, store: Store, clock: Clock) -> None:
        stats = await store.stats()
        assert (stats.tasks, stats.backlog, stats.pending_pushes, stats.dead_pushes) == ({}, {}, 0, 0)
        assert stats.age(stats.pending_pushes_since) == stats.age(stats.failing_since) == 0.0
        assert stats.counted_at == clock()

    async def test_tasks_are_counted_over_all_owners_by_agent_and_state(self, store: Store) -> None:
        for owner in (OWNER, SAME_PRINCIPAL_OTHER_SCOPE):
            await store.append(created(new_ref(owner), claim=SESSION))
        await finished(store)
        await store.append(created(new_ref(), agent="other", visible=False, claim=SESSION))  # hidden
        tasks = (await store.stats()).tasks
        assert tasks == {(AGENT, states.SUBMITTED): 2, (AGENT, states.COMPLETED): 1}

    async def test_the_queue_age_is_that_of_the_oldest_waiting_task(self, store: Store, clock: Clock) -> None:
        await store.append(created(new_ref()))
        clock.now += 30 * SECOND
        await store.append(created(new_ref(SAME_PRINCIPAL_OTHER_SCOPE)))
        await store.append(created(new_ref(), agent="other"))
        stats = await store.stats()
        assert {agent: one.tasks for agent, one in stats.backlog.items()} == {AGENT: 2, "other": 1}
        assert stats.age(stats.backlog[AGENT].since) == pytest.approx(30.0, abs=1)
        assert stats.age(stats.backlog["other"].since) == pytest.approx(0.0, abs=1)

    async def test_pushes_are_counted_as_due_failing_and_given_up(self, store: Store, clock: Clock) -> None:
        session = await store.open_session(3600.0)
        late, dead = new_ref(), new_ref()
        for ref in (late, dead):
            await store.append(with_push(created(ref)))
        clock.now += 10 * SECOND
        stats = await store.stats()
        assert stats.pending_pushes == 2
        assert stats.age(stats.pending_pushes_since) == pytest.approx(10.0, abs=1)
        for push in await claim_due(store, session, dead):
            (after,) = await store.pushes.apply_reports(
                [report_of(push, DeliveryOutcome.FAILED, 0, attempt=attempt_at(1, 500), retry_delay=5 * SECOND)]
            )
            assert after is not None
            clock.now += 5 * SECOND
            stats = await store.stats()
            assert stats.age(stats.failing_since) == pytest.approx(5.0, abs=1)
            clock.now += DAY
            for again in await claim_due(store, session, dead):
                (final,) = await store.pushes.apply_reports(
                    [report_of(again, DeliveryOutcome.FAILED, 0, attempt=attempt_at(1, 500))]
                )
                assert final is not None
                assert final.state is PushState.GIVEN_UP
        stats = await store.stats()
        assert (stats.pending_pushes, stats.dead_pushes, stats.failing_since) == (1, 1, 0)

    async def test_commits_are_counted_with_their_sizes(self, store: Store) -> None:
        before = store.commit_counters.changes.count
        await store.append(created(new_ref()))
        assert store.commit_counters.changes.count > before
        assert store.commit_counters.seconds.count == store.commit_counters.changes.count
        assert store.commit_counters.failed_batches == 0

    async def test_usage_of_a_task_is_summed_and_a_key_counts_once(self, store: Store) -> None:
        claimed, other = await running(store), await running(store)
        assert await usage_of(store, claimed.record.ref) == Usage()
        sums = [
            (await store.append(replace(by_runner(claimed), usage_report=used))).usage
            for used in (UsageReport(10, 5), UsageReport(1, 0, "call"), UsageReport(1, 0, "call"), UsageReport(2, 7))
        ]
        assert sums == [Usage(10, 5), Usage(11, 5), Usage(11, 5), Usage(13, 12)]
        assert await usage_of(store, claimed.record.ref) == Usage(13, 12)
        assert await usage_of(store, other.record.ref) == Usage()
        assert (await store.append(by_runner(claimed, status(states.WORKING)))).usage is None
        for _ in range(3):  # the sum saturates
            most = (
                await store.append(replace(by_runner(other), usage_report=UsageReport(MAX_USAGE, MAX_USAGE, "")))
            ).usage
        assert most == Usage(MAX_USAGE, MAX_USAGE)

    async def test_usage_of_a_task_counts_for_its_parent_tasks(self, store: Store) -> None:
        top = await running(store)
        middle = await self.delegated_task(store, top)
        below, beside = await self.delegated_task(store, middle), await self.delegated_task(store, top)
        sums = [
            (await store.append(replace(by_runner(one), usage_report=used))).usage
            for one, used in (
                (top, UsageReport(1, 10)),
                (below, UsageReport(2, 0, "call")),
                (below, UsageReport(2, 0, "call")),
                (beside, UsageReport(4, 0)),
                (middle, UsageReport(8, 20)),
                (below, UsageReport(0, 0)),
                (top, UsageReport(0, 0)),
            )
        ]
        assert sums == [
            Usage(1, 10),
            Usage(2, 0),
            Usage(2, 0),
            Usage(4, 0),
            Usage(10, 20, 2, 0),
            Usage(2, 0),
            Usage(15, 30, 14, 20),
        ]
        assert await usage_of(store, top.record.ref) == Usage(15, 30, 14, 20)
        await store.erasures.erase(TaskSelection(task=below.record.id))  # its usage stays counted
        assert await usage_of(store, top.record.ref) == Usage(15, 30, 14, 20)
        await store.erasures.erase(TaskSelection(task=top.record.id))
        await store.append(replace(by_runner(middle), usage_report=UsageReport(1)))
        assert await usage_of(store, top.record.ref) == Usage()
        assert await usage_of(store, middle.record.ref) == Usage(11, 20, 2, 0)

    async def test_delegated_tasks_are_listed_in_the_order_of_their_creation(self, store: Store) -> None:
        top, other = await running(store), await running(store)
        first, second = await self.delegated_task(store, top), await self.delegated_task(store, top)
        below = await self.delegated_task(store, first)
        listed = await store.delegated_tasks(top.record.ref, 10)
        assert [(one.ref, one.id, one.state) for one in listed] == [
            (one.record.ref, one.record.id, one.record.state) for one in (first, second)
        ]
        assert await store.delegated_tasks(top.record.ref, 1) == listed[:1]
        assert [one.ref for one in await store.delegated_tasks(first.record.ref, 10)] == [below.record.ref]
        assert await store.delegated_tasks(other.record.ref, 10) == []
        assert await store.delegated_tasks(TaskRef(OTHER_OWNER, top.record.ref.key), 10) == []
        await store.erasures.erase(TaskSelection(task=first.record.id))
        assert await store.delegated_tasks(top.record.ref, 10) == listed[1:]

    async def delegated_task(self, store: Store, parent: Appended) -> Appended:
        """A running task that another one delegated."""
        change = created(new_ref(), claim=SESSION)
        assert change.create is not None
        return await store.append(replace(change, create=replace(change.create, parent=parent.record.ref.key)))

    async def test_usage_appears_in_task_metadata_after_the_first_report(self, store: Store) -> None:
        change = created(new_ref(), claim=SESSION)
        assert change.create is not None
        about = pb.Message(metadata={"of": "its creator"}).metadata.SerializeToString()
        top = await store.append(replace(change, create=replace(change.create, metadata=about)))
        below = await self.delegated_task(store, top)

        async def shown(one: Appended) -> dict[str, object]:
            found = await store.read(one.record.ref)
            (listed,) = [
                task
                for task in map(pb.Task.FromString, (await store.page(TaskQuery(OWNER, AGENT))).tasks)
                if task.id == one.record.id
            ]
            assert found is not None
            assert pb.Task.FromString(found.task) == listed
            return MessageToDict(listed.metadata)

        assert await shown(top) == {"of": "its creator"}
        await store.append(replace(by_runner(below), usage_report=UsageReport(3, 500_000_000)))
        assert await shown(below) == {"usage": {"tokens": 3.0, "cost": 0.5}}
        await store.append(replace(by_runner(top), usage_report=UsageReport(1)))
        sums = {"tokens": 4.0, "cost": 0.5, "delegated": {"tokens": 3.0, "cost": 0.5}}
        assert await shown(top) == {"of": "its creator", "usage": sums}
        await store.append(replace(by_runner(below), usage_report=UsageReport(5)))
        await store.append(replace(by_runner(top), usage_report=UsageReport()))  # returns the sum
        sums = {"tokens": 9.0, "cost": 0.5, "delegated": {"tokens": 8.0, "cost": 0.5}}
        assert await shown(top) == {"of": "its creator", "usage": sums}
        await store.append(by_runner(below, status(states.COMPLETED), end=True))
        await store.append(by_runner(top, status(states.COMPLETED), end=True))
        assert await shown(top) == {"of": "its creator", "usage": sums}
        assert await shown(below) == {"usage": {"tokens": 8.0, "cost": 0.5}}

    async def test_a_turn_without_its_claim_reports_no_usage(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(cancel(claimed.record.ref))
        with pytest.raises(AppendRejected):
            await store.append(replace(by_runner(claimed), usage_report=UsageReport(1)))
        assert await usage_of(store, claimed.record.ref) == Usage()

    async def test_erasing_a_task_deletes_its_usage(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(replace(by_runner(claimed), usage_report=UsageReport(1)))
        await store.erasures.erase(TaskSelection(task=claimed.record.id))
        assert await usage_of(store, claimed.record.ref) == Usage()

    async def test_the_envelope_of_a_message_is_stored_unchanged(self, store: Store) -> None:
        change = created(new_ref())
        assert change.message is not None
        await store.append(replace(change, message=replace(change.message, envelope=b"\x12\x00 and more")))
        assert await store.envelope(change.task, 1) == b"\x12\x00 and more"
        assert await store.envelope(change.task, 2) == await store.envelope(new_ref(), 1) == b""
