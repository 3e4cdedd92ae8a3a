"""Several processes on one database: two independent stores, and what they must agree on."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.postgres import execute

from dragoman.core.limits.admission import QuotaExceeded
from dragoman.core.limits.quotas import Quota, Usage, UsageReport
from dragoman.core.names import Owner
from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import DeliveryOutcome, DeliveryReport
from dragoman.core.task import states
from dragoman.core.task.cursors import TaskQuery
from dragoman.core.task.log import (
    CHANGED,
    EXISTS,
    FENCED,
    NOT_READY,
    Append,
    Appended,
    AppendRejected,
    ContextState,
    DuplicateKey,
    IdempotencyKey,
    IncomingMessage,
    NewTask,
    NotTerminal,
    Ready,
)
from dragoman.core.task.maintenance import TaskSelection
from dragoman.stores.postgres import PostgresStore, database, open_store
from dragoman.testing.fixtures import (
    AGENT,
    OWNER,
    SESSION,
    Clock,
    artifact,
    by_runner,
    cancel,
    chunk,
    created,
    file_message,
    follow_up,
    message,
    new_ref,
    running,
    status,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

Stores = tuple[PostgresStore, PostgresStore]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def stores(postgres_url: str, clock: Clock) -> AsyncIterator[Stores]:
    first, second = await open_store(postgres_url, clock=clock), await open_store(postgres_url, clock=clock)
    yield first, second
    await first.close()
    await second.close()


async def all_of(stores: Stores, changes: list[Append]) -> list[Appended | BaseException]:
    """The results of concurrent changes, every other one on the second store."""
    futures = [stores[number % 2].append(change) for number, change in enumerate(changes)]
    return await asyncio.gather(*futures, return_exceptions=True)


def reasons(results: list[Appended | BaseException]) -> list[str]:
    """Why each was rejected; empty for what was written. Other exceptions are raised."""
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, AppendRejected):
            raise result
    return [result.reason if isinstance(result, AppendRejected) else "" for result in results]


# Conflicts -----------------------------------------------------------------------------------------------------------


async def test_a_task_is_claimed_once(stores: Stores) -> None:
    refs = [(await stores[0].append(created(new_ref()))).record.ref for _ in range(40)]
    claims = [Append(task=ref, guard=Ready(), claim_session=session) for ref in refs for session in (1, 2)]
    reasons_given = reasons(await all_of(stores, claims))
    for one, other in zip(reasons_given[::2], reasons_given[1::2], strict=True):
        assert sorted((one, other)) == ["", NOT_READY]


async def test_events_of_two_writers_have_no_gap(stores: Stores) -> None:
    claimed = await running(stores[0])
    changes = [by_runner(claimed, chunk("out", f"{number} ")) for number in range(200)]
    assert set(reasons(await all_of(stores, changes))) == {""}
    events = await stores[1].events(claimed.record.ref, 0, 1000)
    assert [event.sequence for event in events] == list(range(1, 202))


async def test_usage_of_delegated_tasks_is_exact_across_processes(stores: Stores) -> None:
    tops = [await running(stores[0]) for _ in range(3)]

    async def under(above: Appended) -> Appended:
        change = created(new_ref(), claim=SESSION)
        assert change.create is not None
        return await stores[0].append(replace(change, create=replace(change.create, parent=above.record.ref.key)))

    middles = [await under(top) for top in tops]
    below = [await under(middle) for middle in middles for _ in range(4)]
    changes = [
        replace(by_runner(one), usage_report=UsageReport(1, 2))
        for turn in range(8)
        for one in ([*tops, *middles, *below] if turn % 2 else [*reversed(below), *reversed(middles), *reversed(tops)])
    ]
    assert set(reasons(await all_of(stores, changes))) == {""}
    assert set(
        reasons(await all_of(stores, [replace(by_runner(top), usage_report=UsageReport()) for top in tops]))
    ) == {""}
    for top, middle in zip(tops, middles, strict=True):
        assert await stores[0].usage(top.record.ref) == Usage(48, 96, 40, 80)
        assert await stores[1].usage(middle.record.ref) == Usage(40, 80, 32, 64)
        found = await stores[1].read(top.record.ref)
        assert found is not None
        shown = pb.Task.FromString(found.task).metadata.fields["usage"].struct_value.fields
        assert shown["tokens"].number_value == 48


async def test_one_of_two_concurrent_ends_is_written(stores: Stores) -> None:
    for _ in range(10):
        claimed = await running(stores[0])
        end = by_runner(claimed, status(states.COMPLETED), end=True)
        reasons_given = reasons(await all_of(stores, [end, cancel(claimed.record.ref)]))
        assert sorted(bool(reason) for reason in reasons_given) == [False, True]


async def test_appends_of_an_expired_session_are_rejected(stores: Stores, clock: Clock) -> None:
    dead, alive = await stores[0].open_session(10), await stores[1].open_session(3600)
    first = await stores[0].append(created(new_ref(), claim=dead))
    clock.now += 11_000
    (orphan,) = await stores[1].orphaned_tasks(alive, 10)
    await stores[1].append(Append(task=orphan.ref, guard=by_runner(first).guard, retry=True, claim_session=alive))
    with pytest.raises(AppendRejected, match=FENCED):
        await stores[0].append(by_runner(first, artifact("a", "late")))


async def test_one_of_many_concurrent_sends_with_one_key_is_written(stores: Stores) -> None:
    changes = [replace(created(new_ref()), idempotency_key=IdempotencyKey(AGENT, "k", b"same")) for _ in range(40)]
    results = await all_of(stores, changes)
    (written,) = [result for result in results if isinstance(result, Appended)]
    others = [result for result in results if isinstance(result, DuplicateKey)]
    assert len(others) == 39
    assert {other.key_record.task for other in others} == {written.record.ref}


async def test_keys_in_any_order_never_deadlock(stores: Stores, postgres_url: str) -> None:
    for _ in range(5):
        keys = [f"{_}-{number}" for number in range(100)]
        changes = [replace(created(new_ref()), idempotency_key=IdempotencyKey(AGENT, key, b"d")) for key in keys]
        again = [
            replace(created(new_ref()), idempotency_key=IdempotencyKey(AGENT, key, b"d")) for key in reversed(keys)
        ]
        results = await all_of(stores, [one for pair in zip(changes, again, strict=True) for one in pair])
        assert reasons(results).count("repeated") == 100
    name = postgres_url.rpartition("/")[2]
    (row,) = await execute(postgres_url, "SELECT deadlocks FROM pg_stat_database WHERE datname = $1", name)
    assert row[0] == 0


async def test_an_alias_is_assigned_once(stores: Stores) -> None:
    changes = [replace(created(new_ref()), create=NewTask(AGENT, "mine", "c", alias=True)) for _ in range(20)]
    assert sorted(reasons(await all_of(stores, changes))) == ["", *[EXISTS] * 19]


async def test_the_state_of_a_conversation_is_written_once_for_each_version(stores: Stores) -> None:
    ref = (await stores[0].append(created(new_ref()))).record.ref
    changes = [Append(task=ref, guard=NotTerminal(), context_state=ContextState(b"%d" % n, 1)) for n in range(10)]
    assert sorted(reasons(await all_of(stores, changes))) == ["", *[CHANGED] * 9]


async def test_the_default_isolation_level_of_a_database_has_no_effect(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MAX_COLLISION_RETRIES", 0)  # no retries
    name = postgres_url.rpartition("/")[2]
    await execute(postgres_url, f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    first, second = await open_store(postgres_url), await open_store(postgres_url)
    claimed = await running(first)
    changes = [by_runner(claimed, chunk("out", f"{number} ")) for number in range(100)]
    assert set(reasons(await all_of((first, second), changes))) == {""}
    await first.close()
    await second.close()


async def test_two_processes_create_one_row_for_a_new_owner(stores: Stores) -> None:
    owners = [Owner("default", f"caller {number}") for number in range(50)]
    backwards = [created(new_ref(owner)) for owner in reversed(owners)]
    forwards = [created(new_ref(owner)) for owner in owners]
    results = await all_of(stores, [one for pair in zip(forwards, backwards, strict=True) for one in pair])
    assert set(reasons(results)) == {""}
    for owner in owners:
        assert (await stores[0].page(TaskQuery(owner, AGENT))).total == 2


# Counters ------------------------------------------------------------------------------------------------------------


async def test_the_last_free_capacity_is_given_once(stores: Stores) -> None:
    quota = Quota(live_tasks=20)
    results = await all_of(stores, [replace(created(new_ref()), quota=quota) for _ in range(60)])
    assert sum(isinstance(result, Appended) for result in results) == 20
    assert sum(isinstance(result, QuotaExceeded) for result in results) == 40


async def test_bytes_delivered_in_one_process_make_room_in_another(stores: Stores) -> None:
    quota = Quota(queued_bytes=15_000)
    big = created(new_ref(), text="x" * 10_000)
    first = await stores[0].append(replace(big, quota=quota, claim_session=7))
    with pytest.raises(QuotaExceeded):
        await stores[1].append(replace(created(new_ref()), quota=quota))
    await stores[1].append(by_runner(first, status(states.WORKING)))
    await stores[0].append(replace(created(new_ref()), quota=quota))


async def test_counters_are_exact_across_processes(stores: Stores, postgres_url: str) -> None:
    """After all that can happen to tasks, the counters agree with the tables."""
    created_tasks = await all_of(stores, [created(new_ref(), claim=7) for _ in range(40)])
    heads = [result for result in created_tasks if isinstance(result, Appended)]
    changes: list[Append] = []
    for number, task in enumerate(heads):
        ref = task.record.ref
        changes += [
            [follow_up(ref, "more")],
            [by_runner(task, status(states.COMPLETED), end=True)],
            [by_runner(task, status(states.WORKING)), follow_up(ref, "again")],
            [cancel(ref)],
            [Append(task=ref, guard=by_runner(task).guard, retry=True)],
            [follow_up(ref, "x"), by_runner(task, status(states.INPUT_REQUIRED), last_delivered=2, end=True)],
        ][number % 6]
    await all_of(stores, changes)
    await stores[1].erase(TaskSelection(task=heads[0].record.id))
    hidden = await stores[0].append(created(new_ref(), claim=7, visible=False))
    await stores[1].append(replace(by_runner(hidden), discard=True))
    large = IncomingMessage(file_message("f", b"x" * 300_000), sender="guest")
    await stores[0].append(replace(created(new_ref()), message=large))
    live = "SELECT principal, agent, count(*) FROM tasks WHERE state NOT IN (3, 4, 5, 7) GROUP BY 1, 2"
    queued = """
        SELECT coalesce(nullif(m.sender, ''), o.principal), t.agent, sum(m.size)
        FROM tasks t JOIN owners o USING (owner) JOIN messages m USING (owner, task)
        WHERE m.number > t.taken AND m.size > 0 AND t.state NOT IN (3, 4, 5, 7) GROUP BY 1, 2"""
    seen = "SELECT owner, agent, state, count(*) FROM tasks WHERE visible GROUP BY 1, 2, 3"
    for counted, real in (
        ("SELECT principal, agent, sum(live) FROM standings GROUP BY 1, 2 HAVING sum(live) <> 0", live),
        ("SELECT principal, agent, sum(queued) FROM standings GROUP BY 1, 2 HAVING sum(queued) <> 0", queued),
        ("SELECT owner, agent, state, sum(tasks) FROM totals GROUP BY 1, 2, 3 HAVING sum(tasks) <> 0", seen),
    ):
        found = [sorted(map(tuple, await execute(postgres_url, sql))) for sql in (counted, real)]
        assert found[0] == found[1]
        assert found[0]
    (slots,) = await execute(postgres_url, "SELECT count(DISTINCT slot) FROM totals")
    assert slots[0] == len({store._writer.counter_slot for store in stores})


# Erasure -------------------------------------------------------------------------------------------------------------


async def test_a_principal_erased_by_another_process_may_return(stores: Stores) -> None:
    """Owner numbers are not cached: rows for an erased owner would have no owner."""
    owner = Owner("default", "alice")
    await stores[0].append(created(new_ref(owner)))
    await stores[1].erase(TaskSelection(principal="alice"))
    again = (await stores[0].append(created(new_ref(owner)))).record
    assert await stores[1].find(owner, AGENT, again.id) is not None


async def test_tasks_created_while_their_principal_is_erased_exist_or_are_erased(stores: Stores) -> None:
    owner = Owner("default", "alice")
    for _ in range(10):
        sent = [stores[0].append(created(new_ref(owner))) for _ in range(20)]
        await stores[1].erase(TaskSelection(principal="alice"))
        heads = [appended.record for appended in await asyncio.gather(*sent)]
        found = [await stores[0].find(owner, AGENT, head.id) for head in heads]
        left = {head.id for head in found if head is not None}
        page = await stores[1].page(TaskQuery(owner, AGENT, page_size=100))
        assert page.total == len(page.tasks) == len(left)
        await stores[1].erase(TaskSelection(principal="alice"))


async def test_an_erasure_in_progress_in_another_process_is_not_resumed(stores: Stores, clock: Clock) -> None:
    created_tasks = [(await running(stores[0])).record for _ in range(5)]
    seen, go_on = asyncio.Event(), asyncio.Event()
    database = stores[0]._database
    change = database.write

    async def slow(write: object, *arguments: object) -> object:
        result: object = await change(write, *arguments)  # type: ignore[arg-type]
        seen.set()
        await go_on.wait()
        return result

    database.write = slow  # type: ignore[method-assign, assignment]
    erasing = asyncio.create_task(stores[0].erase(TaskSelection(principal=OWNER.principal)))
    await seen.wait()
    assert await stores[1].resume_erasures() == []
    clock.now += 61_000  # a minute without progress: its process is dead
    (receipt,) = await stores[1].resume_erasures()
    assert receipt.counts.tasks == len(created_tasks)
    go_on.set()
    assert (await erasing).digest == receipt.digest


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


async def test_pages_are_the_same_for_owner_and_participant(stores: Stores) -> None:
    ref = (await stores[0].append(created(new_ref()))).record.ref
    await stores[1].append(
        Append(task=ref, guard=NotTerminal(), message=IncomingMessage(message("hi"), sender="guest"))
    )
    assert await stores[0].read(ref) == await stores[1].read(ref)


# Dead processes -------------------------------------------------------------------------------------------------------


RUNS = """
import asyncio, os, sys
from dragoman.stores.postgres import open_store
from dragoman.testing.fixtures import created, new_ref

async def main():
    store = await open_store(sys.argv[1])
    claimed = await store.append(created(new_ref(), claim=await store.open_session(3600)))
    print(claimed.record.id, flush=True)
    input()

asyncio.run(main())
"""


async def test_the_tasks_of_a_dead_process_are_orphans_at_once(stores: Stores, postgres_url: str) -> None:
    """Not only when its session expires, in an hour; and not while it runs."""
    runs = [sys.executable, "-c", RUNS, postgres_url]
    process = await asyncio.create_subprocess_exec(*runs, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    task = (await process.stdout.readline()).decode().strip()
    own = await stores[0].open_session(3600)
    assert await stores[0].orphaned_tasks(own, 10) == []
    process.kill()
    await process.wait()
    assert [head.id for head in await stores[0].orphaned_tasks(own, 10, expired=False)] == [task]
    assert list(await stores[0].sessions()) == [own]
