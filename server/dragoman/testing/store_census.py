"""What every store says of how much there is in it, and of what its tasks have used."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.json_format import MessageToDict

from dragoman.core import states
from dragoman.core.erasing import Selection
from dragoman.core.log import Appended, Refused
from dragoman.core.pages import Query
from dragoman.core.push import PushState, Verdict
from dragoman.core.usage import MOST, Usage, Used
from dragoman.ports import Store
from dragoman.testing.changes import (
    AGENT,
    OWNER,
    SESSION,
    by_runner,
    cancel,
    created,
    finished,
    new_ref,
    running,
    status,
)
from dragoman.testing.store_pushes import DAY, SECOND, claimed, of, tried, with_push
from dragoman.testing.store_upkeep import ELSEWHERE
from dragoman.testing.store_writes import Clock
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class StoreCensus:
    """Give a `store` fixture, opened with the `clock` fixture of this class."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    async def test_an_empty_store_has_nothing(self, store: Store, clock: Clock) -> None:
        census = await store.census()
        assert (census.tasks, census.waiting, census.pushes, census.dead) == ({}, {}, 0, 0)
        assert census.age(census.pushes_since) == census.age(census.failing_since) == 0.0
        assert census.at == clock()

    async def test_tasks_are_counted_over_all_owners_by_agent_and_state(self, store: Store) -> None:
        for owner in (OWNER, ELSEWHERE):
            await store.append(created(new_ref(owner), claim=SESSION))
        await finished(store)
        await store.append(created(new_ref(), agent="other", visible=False, claim=SESSION))  # nobody has seen it
        tasks = (await store.census()).tasks
        assert tasks == {(AGENT, states.SUBMITTED): 2, (AGENT, states.COMPLETED): 1}

    async def test_the_queue_is_as_old_as_the_task_that_has_waited_the_longest(
        self, store: Store, clock: Clock
    ) -> None:
        await store.append(created(new_ref()))
        clock.now += 30 * SECOND
        await store.append(created(new_ref(ELSEWHERE)))
        await store.append(created(new_ref(), agent="other"))
        census = await store.census()
        assert {agent: one.tasks for agent, one in census.waiting.items()} == {AGENT: 2, "other": 1}
        assert census.age(census.waiting[AGENT].since) == pytest.approx(30.0, abs=1)
        assert census.age(census.waiting["other"].since) == pytest.approx(0.0, abs=1)

    async def test_pushes_are_counted_by_what_is_due_fails_and_was_given_up(self, store: Store, clock: Clock) -> None:
        session = await store.open_session(3600.0)
        late, dead = new_ref(), new_ref()
        for ref in (late, dead):
            await store.append(with_push(created(ref)))
        clock.now += 10 * SECOND
        census = await store.census()
        assert census.pushes == 2
        assert census.age(census.pushes_since) == pytest.approx(10.0, abs=1)
        for push in await claimed(store, session, dead):
            (after,) = await store.pushes.settle([of(push, Verdict.FAILED, 0, attempt=tried(1, 500), wait=5 * SECOND)])
            assert after is not None
            clock.now += 5 * SECOND
            census = await store.census()
            assert census.age(census.failing_since) == pytest.approx(5.0, abs=1)
            clock.now += DAY
            for again in await claimed(store, session, dead):
                (gone,) = await store.pushes.settle([of(again, Verdict.FAILED, 0, attempt=tried(1, 500))])
                assert gone is not None
                assert gone.state is PushState.DEAD
        census = await store.census()
        assert (census.pushes, census.dead, census.failing_since) == (1, 1, 0)

    async def test_commits_are_counted_with_their_sizes(self, store: Store) -> None:
        before = store.commits.changes.count
        await store.append(created(new_ref()))
        assert store.commits.changes.count > before
        assert store.commits.seconds.count == store.commits.changes.count
        assert store.commits.failed == 0

    async def test_what_a_task_uses_is_summed_and_a_key_counts_once(self, store: Store) -> None:
        claimed, other = await running(store), await running(store)
        assert await store.usage(claimed.head.ref) == Usage()
        sums = [
            (await store.append(replace(by_runner(claimed), used=used))).usage
            for used in (Used(10, 5), Used(1, 0, "call"), Used(1, 0, "call"), Used(2, 7))
        ]
        assert sums == [Usage(10, 5), Usage(11, 5), Usage(11, 5), Usage(13, 12)]
        assert await store.usage(claimed.head.ref) == Usage(13, 12)
        assert await store.usage(other.head.ref) == Usage()
        assert (await store.append(by_runner(claimed, status(states.WORKING)))).usage is None
        for _ in range(3):  # what is beyond all counting stays what it is
            most = (await store.append(replace(by_runner(other), used=Used(MOST, MOST, "")))).usage
        assert most == Usage(MOST, MOST)

    async def test_what_a_task_uses_counts_for_those_that_it_works_for(self, store: Store) -> None:
        top = await running(store)
        middle = await self.working_for(store, top)
        below, beside = await self.working_for(store, middle), await self.working_for(store, top)
        sums = [
            (await store.append(replace(by_runner(one), used=used))).usage
            for one, used in (
                (top, Used(1, 10)),
                (below, Used(2, 0, "call")),
                (below, Used(2, 0, "call")),
                (beside, Used(4, 0)),
                (middle, Used(8, 20)),
                (below, Used(0, 0)),
                (top, Used(0, 0)),
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
        assert await store.usage(top.head.ref) == Usage(15, 30, 14, 20)
        await store.erase(Selection(task=below.head.id))  # it was spent all the same
        assert await store.usage(top.head.ref) == Usage(15, 30, 14, 20)
        await store.erase(Selection(task=top.head.id))
        await store.append(replace(by_runner(middle), used=Used(1)))
        assert await store.usage(top.head.ref) == Usage()
        assert await store.usage(middle.head.ref) == Usage(11, 20, 2, 0)

    async def working_for(self, store: Store, above: Appended) -> Appended:
        """A task that runs, and works for another one."""
        change = created(new_ref(), claim=SESSION)
        assert change.create is not None
        return await store.append(replace(change, create=replace(change.create, parent=above.head.ref.key)))

    async def test_what_a_task_used_stands_in_its_metadata_as_soon_as_its_agent_reports(self, store: Store) -> None:
        change = created(new_ref(), claim=SESSION)
        assert change.create is not None
        about = pb.Message(metadata={"of": "its maker"}).metadata.SerializeToString()
        top = await store.append(replace(change, create=replace(change.create, metadata=about)))
        below = await self.working_for(store, top)

        async def shown(one: Appended) -> dict[str, object]:
            found = await store.read(one.head.ref)
            (listed,) = [
                task
                for task in map(pb.Task.FromString, (await store.page(Query(OWNER, AGENT))).tasks)
                if task.id == one.head.id
            ]
            assert found is not None
            assert pb.Task.FromString(found.task) == listed
            return MessageToDict(listed.metadata)

        assert await shown(top) == {"of": "its maker"}
        await store.append(replace(by_runner(below), used=Used(3, 500_000_000)))
        assert await shown(below) == {"usage": {"tokens": 3.0, "cost": 0.5}}
        await store.append(replace(by_runner(top), used=Used(1)))
        sums = {"tokens": 4.0, "cost": 0.5, "delegated": {"tokens": 3.0, "cost": 0.5}}
        assert await shown(top) == {"of": "its maker", "usage": sums}
        await store.append(replace(by_runner(below), used=Used(5)))
        await store.append(replace(by_runner(top), used=Used()))  # asks for the sum
        sums = {"tokens": 9.0, "cost": 0.5, "delegated": {"tokens": 8.0, "cost": 0.5}}
        assert await shown(top) == {"of": "its maker", "usage": sums}
        await store.append(by_runner(below, status(states.COMPLETED), end=True))
        await store.append(by_runner(top, status(states.COMPLETED), end=True))
        assert await shown(top) == {"of": "its maker", "usage": sums}
        assert await shown(below) == {"usage": {"tokens": 8.0, "cost": 0.5}}

    async def test_a_run_that_has_lost_its_task_reports_for_nothing(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(cancel(claimed.head.ref))
        with pytest.raises(Refused):
            await store.append(replace(by_runner(claimed), used=Used(1)))
        assert await store.usage(claimed.head.ref) == Usage()

    async def test_what_it_used_goes_with_the_task(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(replace(by_runner(claimed), used=Used(1)))
        await store.erase(Selection(task=claimed.head.id))
        assert await store.usage(claimed.head.ref) == Usage()

    async def test_the_request_that_brought_a_message_is_kept_as_it_came(self, store: Store) -> None:
        change = created(new_ref())
        assert change.message is not None
        await store.append(replace(change, message=replace(change.message, envelope=b"\x12\x00 and more")))
        assert await store.envelope(change.task, 1) == b"\x12\x00 and more"
        assert await store.envelope(change.task, 2) == await store.envelope(new_ref(), 1) == b""
