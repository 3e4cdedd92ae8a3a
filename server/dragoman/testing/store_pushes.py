"""What every store does with push configurations: cursors that last, and claims that hold once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dragoman.core import states
from dragoman.core.erasing import RETENTION, Selection
from dragoman.core.log import ABSENT, CROWDED, Append, NotTerminal, Refused, TaskRef
from dragoman.core.names import Owner
from dragoman.core.push import KEPT, Attempt, Push, PushState, Settled, Verdict
from dragoman.core.webhook import MOST, PushConfig
from dragoman.ports import Store
from dragoman.testing.changes import OWNER, artifact, by_runner, cancel, created, follow_up, new_ref, running, status
from dragoman.testing.store_writes import Clock

HOOK = PushConfig(id="hook", url="https://one.example/hook", token="t", scheme="Bearer", credentials="c", dialect="1.0")
SECOND = 1000
DAY = 86_400 * SECOND


def with_push(change: Append, config: PushConfig = HOOK) -> Append:
    """A change that brings a configuration along."""
    return replace(change, push=config)


async def claimed(store: Store, session: int, *refs: TaskRef) -> list[Push]:
    """What `session` gets of that which is due, of these tasks or of all."""
    due, _ = await store.pushes.due(each=100, hosts=100)
    return await store.pushes.claim(session, [(p.task, p.config.id) for p in due if not refs or p.task in refs])


def of(push: Push, verdict: Verdict, delivered: int, **more: object) -> Settled:
    """What whoever holds a push says of it."""
    values = {"wait": SECOND, "give_up": DAY, "shown": 0, **more}
    return Settled(
        task=push.task, id=push.config.id, session=push.session, token=push.token, verdict=verdict,
        delivered=delivered, **values,  # type: ignore[arg-type]  # by name
    )  # fmt: skip


def tried(sequence: int, status: int = 200) -> Attempt:
    return Attempt(sequence=sequence, status=status, ms=3)


class StorePushes:
    """Give a `store` fixture, opened with a `clock` fixture (store_writes.Clock)."""

    @pytest.fixture
    async def session(self, store: Store) -> int:
        """A session that is alive; the clock stands still unless a test moves it."""
        return await store.open_session(3600.0)

    @pytest.fixture
    async def ref(self, store: Store) -> TaskRef:
        """A task with `HOOK` from its first event on."""
        change = with_push(created(new_ref()))
        await store.append(change)
        return change.task

    # Beginning --------------------------------------------------------------------------------------------------

    async def test_a_configuration_of_the_send_that_makes_the_task_begins_with_its_first_event(
        self, store: Store, ref: TaskRef, clock: Clock
    ) -> None:
        (push,) = await store.pushes.of(ref)
        assert push.config == HOOK
        assert (push.delivered, push.last, push.lag, push.due) == (0, 1, 1, clock.now)
        assert (push.state, push.over, push.agent) == (PushState.LIVE, False, "echo")

    async def test_one_of_a_follow_up_begins_with_the_event_that_accepts_it(self, store: Store) -> None:
        change = created(new_ref())
        await store.append(change)
        await store.append(with_push(follow_up(change.task, "more")))
        (push,) = await store.pushes.of(change.task)
        assert (push.delivered, push.last) == (1, 2)

    async def test_one_that_comes_later_begins_after_what_there_is(self, store: Store) -> None:
        task = await running(store)
        await store.append(by_runner(task, artifact("a", "1")))
        push = await store.pushes.put(task.head.ref, HOOK)
        assert (push.delivered, push.last, push.due) == (2, 2, 0)
        assert await store.pushes.of(task.head.ref) == [push]

    async def test_one_of_a_finished_task_has_nothing_to_wait_for(self, store: Store, session: int) -> None:
        change = created(new_ref())
        await store.append(change)
        await store.append(cancel(change.task))
        assert (await store.pushes.put(change.task, HOOK)).state is PushState.DONE
        assert await claimed(store, session) == []

    async def test_a_refused_append_leaves_no_configuration(self, store: Store) -> None:
        change = created(new_ref())
        await store.append(change)
        await store.append(cancel(change.task))
        with pytest.raises(Refused):
            await store.append(with_push(follow_up(change.task, "late")))
        assert await store.pushes.of(change.task) == []

    async def test_a_task_that_is_not_there_has_none(self, store: Store) -> None:
        with pytest.raises(Refused) as refused:
            await store.pushes.put(new_ref(), HOOK)
        assert refused.value.reason == ABSENT
        assert await store.pushes.of(new_ref()) == []
        assert not await store.pushes.remove(new_ref(), "hook")

    async def test_a_task_has_only_so_many(self, store: Store, ref: TaskRef) -> None:
        for number in range(MOST - 1):
            await store.pushes.put(ref, replace(HOOK, id=f"h{number}"))
        for write in (
            store.pushes.put(ref, replace(HOOK, id="one more")),
            store.append(with_push(follow_up(ref, "x"), replace(HOOK, id="one more"))),
        ):
            with pytest.raises(Refused) as refused:
                await write
            assert refused.value.reason == CROWDED
        await store.pushes.put(ref, replace(HOOK, url="https://other.example/"))  # in the place of one that is there
        assert len(await store.pushes.of(ref)) == MOST
        head = await store.read(ref, history=0)
        assert head is not None
        assert head.head.last == 1

    async def test_a_refused_one_never_hurts_its_neighbours_in_the_batch(self, store: Store) -> None:
        refs = [new_ref() for _ in range(10)]
        await asyncio.gather(*(store.append(created(ref)) for ref in refs))
        writes = [store.pushes.put(ref, HOOK) for ref in (*refs[:5], new_ref(), *refs[5:])]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert [isinstance(result, Refused) for result in results] == [False] * 5 + [True] + [False] * 5

    async def test_they_are_given_in_the_order_in_which_they_came(
        self, store: Store, ref: TaskRef, clock: Clock
    ) -> None:
        for id in ("z", "a", "m"):
            clock.now += 1
            await store.pushes.put(ref, replace(HOOK, id=id))
        assert [push.config.id for push in await store.pushes.of(ref)] == ["hook", "z", "a", "m"]

    # Replacing and removing -------------------------------------------------------------------------------------

    async def test_one_in_the_place_of_another_goes_on_where_that_was(
        self, store: Store, ref: TaskRef, session: int
    ) -> None:
        await store.append(follow_up(ref, "more"))
        (push,) = await claimed(store, session)
        (push,) = await settled(store, of(push, Verdict.TAKEN, 1, attempt=tried(1)))
        moved = await store.pushes.put(ref, replace(HOOK, url="https://other.example/", token="new"))
        assert (moved.delivered, moved.lag, moved.config.url) == (1, 1, "https://other.example/")
        assert await store.pushes.settle([of(push, Verdict.TAKEN, 2)]) == [None]  # who delivered to the old address
        assert [push.delivered for push in await store.pushes.of(ref)] == [1]

    async def test_one_in_the_place_of_another_that_is_gone_begins_anew(
        self, store: Store, ref: TaskRef, session: int
    ) -> None:
        (push,) = await claimed(store, session)
        await settled(store, of(push, Verdict.GONE, 0, attempt=tried(1, 410)))
        again = await store.pushes.put(ref, HOOK)
        assert (again.state, again.delivered, again.lag) == (PushState.LIVE, 1, 0)

    async def test_what_is_removed_is_gone_and_whoever_delivered_is_refused(
        self, store: Store, ref: TaskRef, session: int
    ) -> None:
        (push,) = await claimed(store, session)
        assert await store.pushes.remove(ref, "hook")
        assert not await store.pushes.remove(ref, "hook")
        assert await store.pushes.settle([of(push, Verdict.TAKEN, 1)]) == [None]
        assert await store.pushes.of(ref) == []
        assert await store.pushes.attempts(ref, "hook") == []

    async def test_nobody_else_has_them(self, store: Store, ref: TaskRef) -> None:
        stranger = TaskRef(Owner(OWNER.scope, "someone else"), ref.key)
        assert await store.pushes.of(stranger) == []
        assert not await store.pushes.remove(stranger, "hook")
        assert await store.pushes.revive(stranger, ()) == []
        with pytest.raises(Refused):
            await store.pushes.put(stranger, HOOK)
        assert len(await store.pushes.of(ref)) == 1

    # Claiming ---------------------------------------------------------------------------------------------------

    async def test_an_append_makes_it_due_and_one_gets_it(self, store: Store, session: int) -> None:
        task = await running(store)
        await store.pushes.put(task.head.ref, HOOK)
        assert await claimed(store, session) == []
        appended = await store.append(by_runner(task, artifact("a", "1")))
        assert appended.head.pushed
        (push,) = await claimed(store, session)
        assert (push.delivered, push.last, push.session) == (1, 2, session)
        other = await store.open_session(3600.0)
        assert await claimed(store, other) == []
        assert await store.pushes.claim(other, [(task.head.ref, "hook")]) == []

    async def test_who_was_not_told_of_a_claim_is_given_it_again(self, store: Store, ref: TaskRef) -> None:
        session = await store.open_session(3600.0)
        (push,) = await claimed(store, session)
        (again,) = await store.pushes.claim(session, [(ref, "hook")])
        assert (again.session, again.token) == (session, push.token + 1)
        assert await store.pushes.settle([of(push, Verdict.TAKEN, 1)]) == [None]

    async def test_a_task_without_any_says_so(self, store: Store) -> None:
        assert not (await running(store)).head.pushed

    async def test_a_dead_process_holds_nothing(self, store: Store, ref: TaskRef, clock: Clock) -> None:
        dead, alive = await store.open_session(10.0), await store.open_session(3600.0)
        (push,) = await claimed(store, dead)
        assert await claimed(store, alive) == []
        clock.now += 11 * SECOND
        (again,) = await claimed(store, alive)
        assert again.token > push.token
        assert await store.pushes.settle([of(push, Verdict.TAKEN, 1)]) == [None]
        assert [push.delivered for push in await store.pushes.of(ref)] == [0]

    async def test_what_nobody_may_see_yet_is_told_nobody(self, store: Store, session: int) -> None:
        hidden = await store.append(with_push(created(new_ref(), claim=session, visible=False)))
        assert await claimed(store, session) == []
        assert await store.pushes.claim(session, [(hidden.head.ref, "hook")]) == []
        await store.append(by_runner(hidden, status(states.WORKING)))
        (push,) = await claimed(store, session)
        assert (push.delivered, push.last) == (0, 2)

    async def test_what_became_a_message_takes_its_configuration_along(self, store: Store, session: int) -> None:
        hidden = await store.append(with_push(created(new_ref(), claim=session, visible=False)))
        await store.append(replace(by_runner(hidden), discard=True))
        assert await store.pushes.of(hidden.head.ref) == []

    async def test_one_host_gets_no_more_than_its_share(self, store: Store, session: int) -> None:
        for host in "bac":
            for number in range(3):
                config = replace(HOOK, id=f"{number}", url=f"https://{host}.example/{number}")
                await store.append(with_push(created(new_ref()), config))
        first, after = await store.pushes.due(each=2, hosts=2)
        assert [push.config.host for push in first] == ["a.example:443"] * 2 + ["b.example:443"] * 2
        second, end = await store.pushes.due(each=2, hosts=2, after=after)
        assert ([push.config.host for push in second], end) == (["c.example:443"] * 2, "")

    # Settling ---------------------------------------------------------------------------------------------------

    async def test_a_cursor_lasts_and_the_claim_holds_while_there_is_more(
        self, store: Store, ref: TaskRef, session: int
    ) -> None:
        await store.append(follow_up(ref, "more"))
        (push,) = await claimed(store, session)
        (push,) = await settled(store, of(push, Verdict.TAKEN, 1, shown=states.SUBMITTED, attempt=tried(1)))
        assert (push.delivered, push.shown, push.session, push.lag) == (1, states.SUBMITTED, session, 1)
        (push,) = await settled(store, of(push, Verdict.TAKEN, 2, attempt=tried(2)))
        assert (push.lag, push.session, push.shown) == (0, session, states.SUBMITTED)  # held: more may come
        (push,) = await settled(store, of(push, Verdict.PASSED, 2, release=True))
        assert (push.session, push.due, push.state) == (0, 0, PushState.LIVE)
        assert await claimed(store, session) == []

    async def test_a_claim_is_not_let_go_while_there_is_more(self, store: Store, ref: TaskRef, session: int) -> None:
        (push,) = await claimed(store, session)
        await store.append(follow_up(ref, "in this moment"))
        (push,) = await settled(store, of(push, Verdict.TAKEN, 1, release=True))
        assert (push.session, push.lag) == (session, 1)

    async def test_who_leaves_lets_go_and_somebody_else_goes_on_at_once(
        self, store: Store, ref: TaskRef, session: int
    ) -> None:
        (push,) = await claimed(store, session)
        await settled(store, of(push, Verdict.PASSED, 0, leave=True))
        (push,) = await claimed(store, await store.open_session(3600.0))
        assert push.lag == 1

    async def test_the_end_of_a_task_that_was_delivered_is_the_end(
        self, store: Store, ref: TaskRef, session: int
    ) -> None:
        await store.append(cancel(ref))
        (push,) = await claimed(store, session)
        (push,) = await settled(store, of(push, Verdict.TAKEN, 1))
        assert push.state is PushState.LIVE
        (push,) = await settled(store, of(push, Verdict.TAKEN, 2))
        assert (push.state, push.session, push.due) == (PushState.DONE, 0, 0)
        assert await claimed(store, session) == []

    async def test_a_failure_is_tried_again_later_and_not_before(
        self, store: Store, ref: TaskRef, session: int, clock: Clock
    ) -> None:
        (push,) = await claimed(store, session)
        (push,) = await settled(store, of(push, Verdict.FAILED, 0, attempt=tried(1, 503), wait=5 * SECOND))
        assert (push.delivered, push.tries, push.failing, push.session) == (0, 1, clock.now, 0)
        assert push.why == "answered 503"
        await store.append(follow_up(ref, "an event does not hurry it"))
        clock.now += 5 * SECOND - 1
        assert await claimed(store, session) == []
        clock.now += 1
        (push,) = await claimed(store, session)
        (push,) = await settled(store, of(push, Verdict.TAKEN, 1, attempt=tried(1)))
        assert (push.tries, push.failing, push.why) == (0, 0, "")

    async def test_who_takes_nothing_for_too_long_is_given_up_and_can_be_begun_with_again(
        self, store: Store, ref: TaskRef, session: int, clock: Clock
    ) -> None:
        (push,) = await claimed(store, session)
        (push,) = await settled(store, of(push, Verdict.FAILED, 0, attempt=tried(1, 0)))
        assert [push.state for push in await store.pushes.waiting(10)] == [PushState.LIVE]
        clock.now += DAY
        (push,) = await claimed(store, session)
        (push,) = await settled(store, of(push, Verdict.FAILED, 0, attempt=tried(1, 500)))
        assert (push.state, push.due, push.session) == (PushState.DEAD, 0, 0)
        assert push.why == "given up after 2 tries: answered 500"
        await store.append(follow_up(ref, "nobody is told"))
        assert await claimed(store, session) == []
        assert [push.lag for push in await store.pushes.waiting(10)] == [2]
        (push,) = await store.pushes.revive(ref, ())
        assert (push.state, push.delivered, push.tries, push.failing) == (PushState.LIVE, 0, 0, 0)
        (push,) = await claimed(store, session)
        assert push.lag == 2

    async def test_what_was_delivered_can_be_delivered_once_more(
        self, store: Store, ref: TaskRef, session: int
    ) -> None:
        await store.pushes.put(ref, replace(HOOK, id="other"))
        await store.append(cancel(ref))
        push = next(push for push in await claimed(store, session) if push.config.id == "hook")
        (push,) = await settled(store, of(push, Verdict.TAKEN, 2))
        assert push.state is PushState.DONE
        (again,) = await store.pushes.revive(ref, ["hook"], after=1)
        assert (again.state, again.delivered, again.lag) == (PushState.LIVE, 1, 1)
        (again,) = await claimed(store, session)
        assert again.config.id == "hook"
        assert await store.pushes.settle([of(push, Verdict.TAKEN, 2)]) == [None]

    async def test_only_the_last_tries_are_kept(self, store: Store, ref: TaskRef, session: int, clock: Clock) -> None:
        for number in range(KEPT + 5):
            (push,) = await claimed(store, session)
            attempt = Attempt(sequence=1, status=0, error=f"no {number}", ms=number)
            await settled(store, of(push, Verdict.FAILED, 0, attempt=attempt, wait=1))
            clock.now += 1
        found = await store.pushes.attempts(ref, "hook")
        assert [attempt.ms for attempt in found] == list(range(KEPT + 4, 4, -1))
        assert found[0] == Attempt(sequence=1, at=clock.now - 1, status=0, error=f"no {KEPT + 4}", ms=KEPT + 4)

    async def test_many_are_settled_together(self, store: Store, session: int) -> None:
        refs = [with_push(created(new_ref())) for _ in range(30)]
        await asyncio.gather(*(store.append(change) for change in refs))
        taken = await claimed(store, session)
        assert len(taken) == 30
        said = [of(push, Verdict.TAKEN, 1) for push in taken]
        said[7] = replace(said[7], token=said[7].token + 1)
        after = await store.pushes.settle(said)
        assert [number for number, push in enumerate(after) if push is None] == [7]

    # What waits for it ------------------------------------------------------------------------------------------

    async def test_a_task_says_whether_there_is_something_to_deliver(
        self, store: Store, ref: TaskRef, session: int
    ) -> None:
        async def pushed() -> bool:
            snapshot = await store.read(ref, history=0)
            assert snapshot is not None
            return snapshot.head.pushed

        assert await pushed()
        await store.pushes.put(ref, replace(HOOK, id="other"))
        await store.pushes.remove(ref, "hook")
        assert await pushed()
        await store.append(cancel(ref))
        (push,) = await claimed(store, session)
        await settled(store, of(push, Verdict.TAKEN, 2))
        assert not await pushed()
        await store.pushes.revive(ref, (), after=0)
        assert await pushed()
        await store.pushes.remove(ref, "other")
        assert not await pushed()

    async def test_retention_waits_for_those_who_are_to_be_told_and_a_purge_does_not(
        self, store: Store, ref: TaskRef, session: int, clock: Clock
    ) -> None:
        await store.append(cancel(ref))
        clock.now += DAY
        meant = Selection(older=1, unpushed=True)
        assert (await store.erase(meant, reason=RETENTION)).counts.tasks == 0
        assert (await store.measure(meant)).tasks == 0
        (push,) = await claimed(store, session)
        await settled(store, of(push, Verdict.TAKEN, 2))
        assert (await store.erase(meant, reason=RETENTION)).counts.tasks == 1
        other = with_push(created(new_ref()))
        await store.append(other)
        assert (await store.erase(Selection(task=(await located(store, other))))).counts.tasks == 1

    async def test_an_erased_task_leaves_none(self, store: Store, ref: TaskRef, session: int) -> None:
        (push,) = await claimed(store, session)
        await settled(store, of(push, Verdict.FAILED, 0, attempt=tried(1, 500)))
        await store.erase(Selection(principal=OWNER.principal))
        assert await store.pushes.of(ref) == []
        assert await store.pushes.attempts(ref, "hook") == []
        assert await store.pushes.waiting(10) == []
        assert await store.pushes.settle([of(push, Verdict.TAKEN, 1)]) == [None]

    async def test_events_that_are_to_be_delivered_are_not_dropped(
        self, store: Store, session: int, clock: Clock
    ) -> None:
        task = await store.append(with_push(created(new_ref(), claim=session)))
        for number in range(100):
            await store.append(by_runner(task, artifact(f"a{number}", "x")))
        await store.append(by_runner(task, status(states.COMPLETED), end=True))
        clock.now += 10 * DAY
        assert (await store.tidy()).events == 0
        assert await store.oldest(task.head.ref) == 1
        (push,) = await claimed(store, await store.open_session(3600.0))
        await settled(store, of(push, Verdict.TAKEN, 102))
        assert (await store.tidy()).events > 0

    async def test_a_follow_up_guard_that_does_not_hold_writes_no_configuration(self, store: Store) -> None:
        with pytest.raises(Refused):
            await store.append(Append(task=new_ref(), guard=NotTerminal(), push=HOOK))


async def settled(store: Store, *said: Settled) -> list[Push]:
    """The pushes after that, none of which may have been refused."""
    after = await store.pushes.settle(said)
    assert None not in after
    return [push for push in after if push is not None]


async def located(store: Store, change: Append) -> str:
    """The id under which clients know the task that a change made."""
    snapshot = await store.read(change.task, history=0)
    assert snapshot is not None
    return snapshot.head.id
